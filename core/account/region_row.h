// One region on one device, over one window or the whole run, as the ledger keeps it.
#pragma once

#include <array>
#include <vector>

#include "core/account/device_timeline.h"
#include "core/account/latency_stats.h"
#include "core/account/product_stats.h"
#include "core/account/shape_resolver.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// Counts that add up by themselves, and what their summary is worked out from.
struct RegionRow : RegionCounts {
  double flop = 0, hfu_flop = 0, bytes = 0;
  bool any_work = false;   ///< some instance has FLOP
  bool flop_known = true;  ///< no instance whose FLOP are unknown
  bool bytes_known = true;
  bool flop_pending = false;  ///< some of its time has FLOP that will be known later only
  bool cut = false;  ///< an instance across its edge left part of its FLOP here, but not as much of its matmuls
  std::array<ShapeSource, ShapeWords::kCount> shape_source{};  ///< least trusted of any instance
  LatencyStats latency;                                        ///< of the instances that ended
  std::vector<KernelStat> kernel_stats;                        ///< by KernelNameId
  double flop_least = 0, bytes_least = 0;                      ///< bounds from below, where `flop` is not known
  FlopSource flop_source = FlopSource::kNone;                  ///< least trusted of any instance
  ProductStats products;
  AttentionWork attention;  ///< of the instances that ended
  TimeByWork idle_work;     ///< of time_ns[kIdle], as far as it is known
  double product_rows = 0;  ///< rows of projections, of instances whose tokens are given
  double said_tokens = 0;   ///< those tokens
  double sequences = 0;     ///< of instances that prefill, where it is known of each
  bool sequences_known = true;
  std::uint64_t unowned_untimed = 0;  ///< of the process: untimed launches outside of every region
  std::uint64_t maybe_untimed = 0;    ///< untimed launches of other windows that may have run in this one
  bool ends_known = true;             ///< it is known when the instances with untimed launches ended

  void add_times(const WindowSlice& slice) noexcept {
    mfu::add_times(time_ns, slice.time_ns);
    add_idle(slice.idle);
    mfu::add_times(idle_work, slice.idle_work);
    busy_ns += slice.busy_ns;
    kernel_sum_ns += slice.kernel_sum_ns;
  }
  void add_idle(const IdleGaps& gaps) noexcept {
    if (!idle_gaps) idle_gaps.emplace();
    idle_gaps->add(gaps);
  }
  /// Another window or device. `open`, `flop_pending`, `cut` and `maybe_untimed` are those of a window and stay.
  void add(const RegionRow& other);
  void add_kernels(const std::vector<KernelStat>& stats);
  void keep_least_trusted(const std::array<ShapeSource, ShapeWords::kCount>& source) noexcept;
  /// Nothing happened in it.
  [[nodiscard]] bool empty() const noexcept;
};

}  // namespace mfu

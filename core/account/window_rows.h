// The rows of the run by window, region and device: the work of instances goes in, closed windows come out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/account/device_timeline.h"
#include "core/account/instance.h"
#include "core/account/latency_stats.h"
#include "core/account/live_instances.h"
#include "core/account/product_roles.h"
#include "core/account/region_row.h"
#include "core/kernels/kernel_names.h"
#include "core/model/flops_model.h"
#include "core/peak/peak.h"
#include "core/ranges/region_rules.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// Windows [k, k+1) x window_ns from the origin.
struct WindowGrid {
  TimeNs origin_ns = 0;
  DurationNs window_ns = 10 * kNsPerSecond;

  [[nodiscard]] TimeNs edge(std::int64_t window) const noexcept { return origin_ns + window * window_ns; }
  [[nodiscard]] std::int64_t window_of(TimeNs at) const noexcept { return (at - origin_ns) / window_ns; }
  /// Calls `each(window, part)` with every window that the interval touches and the part of it that lies there.
  template <typename Each>
  void split(Interval interval, Each&& each) const {
    interval.begin_ns = std::max(interval.begin_ns, origin_ns);
    while (interval.begin_ns < interval.end_ns) {
      const std::int64_t window = window_of(interval.begin_ns);
      const TimeNs end = std::min(interval.end_ns, edge(window + 1));
      each(window, Interval{interval.begin_ns, end});
      interval.begin_ns = end;
    }
  }
};

/// [mfu-drain] Windows are emitted in order, each once; what is added to an emitted one counts in the run alone.
class WindowRows {
 public:
  using WindowCallback = std::function<void(WindowSummary&&)>;
  /// Devices that an instance is accounted on, each with its share of the instance's work; they sum to 1.
  using Shares = std::vector<std::pair<std::uint32_t, double>>;
  static constexpr std::uint32_t kTotal = 0x10000;  ///< the process, where a region's number is asked for

  /// \param model nullptr: none. \param ranges_only there is no device activity.
  WindowRows(const RegionRules& rules, const FlopsModel* model, ProductRoles& roles, KernelNames& names,
             const WindowGrid& grid, bool ranges_only, WindowCallback on_window)
      : rules_(rules),
        model_(model),
        roles_(roles),
        names_(names),
        grid_(grid),
        ranges_only_(ranges_only),
        on_window_(std::move(on_window)),
        named_by_(rules.regions().size(), NamedBy::kNobody),
        nested_(rules.regions().size(), false) {}

  void add_device(std::uint32_t device);
  void set_peak(std::uint32_t device, const Peak& peak) { devices_[device]->peak = peak; }
  void note_host_seen() noexcept { host_seen_ = true; }
  void note_named_by(RegionId region, NamedBy by) { named_by_[raw(region)] = std::max(named_by_[raw(region)], by); }
  /// The number of `region` inside the regions of `outer`; 0 is the path without a region.
  [[nodiscard]] std::uint32_t path_of(std::uint32_t outer, RegionId region);

  [[nodiscard]] const WindowGrid& grid() const noexcept { return grid_; }
  [[nodiscard]] bool is_emitted(std::int64_t window) const noexcept { return window < next_window_; }
  /// End of the first window that was not emitted.
  [[nodiscard]] TimeNs next_end() const noexcept { return grid().edge(next_window_ + 1); }

  /// Nothing is known from `at` on, or from an earlier call on, until measured_again: windows that it touches say so,
  /// and the run leaves them out.
  void not_measured_from(TimeNs at) {
    constexpr TimeNs kOpen = std::numeric_limits<TimeNs>::max();
    if (unmeasured_.empty() || unmeasured_.back().end_ns != kOpen) unmeasured_.push_back({at, kOpen});
  }
  void measured_again(TimeNs at) {
    if (!unmeasured_.empty()) unmeasured_.back().end_ns = at;
  }

  /// Calls `change` with the row; not where its window was emitted and not measured.
  template <typename Change>
  void change(std::int64_t window, std::uint32_t region, std::uint32_t device, Change&& change) {
    if (!is_emitted(window) || measured({grid().edge(window), grid().edge(window + 1)}))
      change(row(window, region, device));
  }

  /// A launch ran somewhere in `when`, and its record carries no times. It counts in the first window of these, and
  /// leaves the times of none of them known. \param path see path_of. \param first no record of the launch came before.
  void add_untimed(std::uint32_t path, std::uint32_t device, Interval when, bool first);

  /// A launch outside of every region copies to the host.
  void add_copied(std::uint32_t device, TimeNs begin, std::uint64_t bytes) {
    std::optional<double>& sum = row(std::max(next_window_, grid().window_of(begin)), kTotal, device).to_host_bytes;
    sum = sum.value_or(0) + static_cast<double>(bytes);
  }

  /// A window ends on the device: the process's times in it, and the activities that began in it.
  void close_edge(std::uint32_t device, DeviceTimeline& timeline);
  /// Class times before the window that the device's timeline is in have changed by `by`, and busy time by `busy_ns`.
  void correct_edge(std::uint32_t device, const ClassTimes& by, DurationNs busy_ns) noexcept;

  /// An instance with work ended on the device: its index, and which prefills it decodes. In the order of ends.
  void follow_in_order(std::uint32_t device, Instance& instance);
  [[nodiscard]] Shares shares_of(const Instance& instance) const;
  /// The instance is over on every device, and its work is known.
  void account(const Instance& instance, const Shares& shares);

  /// Emits the first window that was not emitted. Of `live` instances it has the time, and the FLOP of ended parts.
  void emit(const LiveInstances& live) { emit_until(next_end(), live); }
  /// Emits the window that `end` lies in, and the whole run.
  void finish(const LiveInstances& live, TimeNs end);
  /// Emits the whole run up to `end`, with the windows that were not emitted. \param so_far it goes on
  void emit_run(TimeNs end, bool so_far);

 private:
  using RowKey = std::pair<std::uint32_t, std::uint32_t>;  ///< region or kTotal, device
  using Rows = std::map<RowKey, RegionRow>;
  struct Finished {  ///< a top-level instance that is over, to find overlaps with
    TimeNs begin_ns, end_ns;
    std::uint32_t thread;
    std::uint32_t region;
    std::int64_t window;
  };
  /// Timed instances of a region: whether their work outlived their ranges.
  struct Ends {
    std::uint64_t timed = 0, outlived = 0;
    /// So few did that the end of a range is that of the instance.
    [[nodiscard]] bool with_ranges() const noexcept { return timed != 0 && outlived * 100 <= timed; }
  };
  struct Device {
    Peak peak;
    std::vector<Ends> ends;  ///< by region
    std::deque<Finished> finished;
    std::size_t newest_of_thread = 0;  ///< how many of the newest are of one thread
    std::vector<std::uint64_t> ended;  ///< by region: instances so far
    WaitingPrefills prefills;
    ClassTimes edge_times{};   ///< class times at the last edge
    IdleGaps edge_gaps;        ///< likewise
    IdleWork::Sums edge_work;  ///< likewise
    DurationNs edge_busy_ns = 0, edge_sum_ns = 0;

    std::uint64_t next_nth(RegionId region) {
      if (ended.size() <= raw(region)) ended.resize(raw(region) + 1u);
      return ended[raw(region)]++;
    }
  };
  struct RegionPath {  ///< a region inside those around it, as instances nest
    std::uint32_t outer;
    RegionId region;
  };

  RegionRow& row(std::int64_t window, std::uint32_t region, std::uint32_t device) {
    return is_emitted(window) ? run_[{region, device}] : windows_[window][{region, device}];
  }
  [[nodiscard]] bool measured(Interval window) const noexcept;
  /// Where an instance that is over counts: the window that it ended in, or the first that was not emitted.
  [[nodiscard]] std::int64_t window_of_end(const InstanceOnDevice& share) const noexcept {
    return std::max(next_window_, share.ended ? grid().window_of(share.end_ns) : next_window_);
  }
  void note_end(const Instance& instance, std::uint32_t device);
  void spread_untimed(Rows& rows) const;
  void count_began(std::int64_t window, std::uint32_t device, std::vector<ActivityCounts>& by_region_path);
  void emit_until(TimeNs end, const LiveInstances& live);
  void give_out_early(Instance& instance, std::int64_t window);
  void add_work(const Instance& instance, std::uint32_t device, std::int64_t window, const Work& work, double part,
                bool cut);
  void add_attention(const Instance& instance, std::uint32_t device, std::int64_t window, double part);
  void spread_work(const Instance& instance, std::uint32_t device, double part);
  void count_ended(const Instance& instance, std::uint32_t device, double part, std::int64_t tokens, bool has_latency);
  void add_latency(const Instance& instance, std::uint32_t device, double part, std::int64_t tokens, RegionRow& into);
  void mark_overlaps(const Instance& instance, std::uint32_t device, std::int64_t window);
  void summarize(const Rows& rows, WindowSummary& out) const;

  const RegionRules& rules_;
  const FlopsModel* model_;
  ProductRoles& roles_;
  KernelNames& names_;
  const WindowGrid grid_;
  const bool ranges_only_;
  WindowCallback on_window_;
  bool host_seen_ = false;  ///< its work in idle time is known
  std::vector<std::unique_ptr<Device>> devices_;
  std::map<std::int64_t, Rows> windows_;
  Rows run_;
  std::int64_t next_window_ = 0;  ///< the first that was not emitted
  std::deque<Interval> unmeasured_;
  bool left_out_ = false;                                       ///< the run lacks windows that were not measured
  std::vector<NamedBy> named_by_;                               ///< by region
  std::vector<bool> nested_;                                    ///< by region: its instances were parts of others
  std::vector<RegionPath> region_paths_{{0, RegionId::kNone}};  ///< [0]: no region
  std::map<std::pair<std::uint32_t, RegionId>, std::uint32_t> region_path_index_;
};

}  // namespace mfu

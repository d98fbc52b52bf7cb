// The part of the ledger that says what the rows of a window mean.
#include <algorithm>
#include <array>

#include "core/account/executed.h"
#include "core/account/ledger.h"
#include "core/rows/metrics.h"

namespace mfu {

namespace {

constexpr std::size_t kTopKernels = 10;

}  // namespace

RegionSummary Ledger::summary_of(const RegionRow& row, std::uint32_t region, std::optional<std::uint32_t> device,
                                 const WindowSummary& out, const Peak& peak) const {
  RegionSummary s;
  s.region = region == kTotal ? "total" : rules_.regions()[region].name;
  s.device = device;
  s.window = out.window;
  static_cast<RegionCounts&>(s) = row;
  for (const DurationNs t : row.time_ns) s.elapsed_ns += t;
  for (std::size_t key = 0; key < row.shape_source.size(); ++key) {
    static constexpr std::array<const char*, 5> kSources{"", "detected", "cached", "given", "range"};
    if (row.shape_source[key] != ShapeSource::kNone)
      s.shape_source.emplace_back(kShapeKeys[key], kSources[static_cast<std::size_t>(row.shape_source[key])]);
  }
  if (region != kTotal) s.named_by = named_by_[region];
  s.classes_known = !options_.ranges_only;
  row.latency.describe(s, peak);
  if (model_ && row.any_work && row.flop_known && !row.flop_pending) {
    s.flop = row.flop;
    s.hfu_flop = row.hfu_flop;
    if (row.bytes_known) s.bytes = row.bytes;
  }
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < row.kernel_stats.size(); ++i)
    if (row.kernel_stats[i].count != 0) order.push_back(i);
  for (const std::uint32_t i : order) {
    if (names_.class_of(static_cast<KernelNameId>(i)) != KernelClass::kComm) continue;
    s.comm_kernels += row.kernel_stats[i].count;
    s.comm_sum_ns += row.kernel_stats[i].sum_ns;
  }
  const std::size_t keep = std::min(kTopKernels, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(),
                    [&row](std::uint32_t a, std::uint32_t b) {
                      return row.kernel_stats[a].sum_ns != row.kernel_stats[b].sum_ns
                                 ? row.kernel_stats[a].sum_ns > row.kernel_stats[b].sum_ns
                                 : a < b;
                    });
  for (std::size_t i = 0; i < keep; ++i) {
    const auto id = static_cast<KernelNameId>(order[i]);
    s.top_kernels.push_back(
        {names_.display(id), names_.class_of(id), row.kernel_stats[order[i]].count, row.kernel_stats[order[i]].sum_ns});
  }
  const Phase phase = region == kTotal ? Phase::kNone : rules_.regions()[region].phase;
  complete_metrics(s, phase, peak);
  // FLOP of an instance across an edge are split by time, its matmul kernels are where they are.
  // Above 100 % of the time that is no excuse.
  if (row.cut && s.suspect.starts_with("flops_exceed_matmul_time") && s.mfu.value_or(0) <= 1) s.suspect.clear();
  if (!s.classes_known) {  // no kernel was seen: nothing can be said of what they lost
    s.lost = std::nullopt;
    s.mfu_busy = std::nullopt;
    if (!s.mfu || *s.mfu <= 1) s.suspect.clear();
  }
  describe_matmuls(row, roles_, names_, model_, phase, peak, out.final_run ? kComponentsOfRun : kComponentsOfWindow, s);
  return s;
}

/// \param out its window, and whether it is the whole run, are set.
void Ledger::summarize(const Rows& rows, WindowSummary& out) const {
  RegionRow total;
  std::uint32_t total_devices = 0, last_device = 0;
  Peak total_peak;
  bool peaks_agree = true;
  for (const auto& [key, r] : rows) {
    const auto& [region, device] = key;
    const Peak& peak = devices_[device]->peak;
    if (region == kTotal) {
      total.add(r);
      total.open += r.open;
      total.flop_pending = total.flop_pending || r.flop_pending;
      // Device-seconds times one device's peak is right for all only while they are alike.
      peaks_agree = peaks_agree && (total_devices == 0 || (total_peak.flop_per_s == peak.flop_per_s &&
                                                           total_peak.bytes_per_s == peak.bytes_per_s));
      total_peak = peak;
      ++total_devices;
      last_device = device;
    } else if (!r.empty()) {
      out.regions.push_back(summary_of(r, region, device, out, peak));
    }
  }
  if (!peaks_agree) {
    total_peak.flop_per_s = total_peak.bytes_per_s = std::nullopt;
    total_peak.by_dtype = {};
  }
  if (total_devices == 0) return;
  out.regions.push_back(
      summary_of(total, kTotal, total_devices == 1 ? std::optional(last_device) : std::nullopt, out, total_peak));
}

}  // namespace mfu

#include "core/account/row_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/account/executed.h"
#include "core/rows/idle_causes.h"
#include "core/rows/metrics.h"
#include "core/rows/region_totals.h"

namespace mfu {
namespace {

void describe_shape(const RegionRow& row, RegionSummary& s) {
  static constexpr std::array<const char*, 5> kSources{"", "detected", "cached", "given", "range"};
  for (std::size_t key = 0; key < row.shape_source.size(); ++key)
    if (row.shape_source[key] != ShapeSource::kNone)
      s.shape_source.emplace_back(kShapeKeys[key].name, kSources[static_cast<std::size_t>(row.shape_source[key])]);
}

void describe_kernels(const RegionRow& row, KernelNames& names, RegionSummary& s) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < row.kernel_stats.size(); ++i)
    if (row.kernel_stats[i].count != 0) order.push_back(i);
  const KernelNameId whole_graph = names.intern(kWholeGraph);
  for (const std::uint32_t i : order) {
    if (static_cast<KernelNameId>(i) == whole_graph) s.graph_sum_ns = row.kernel_stats[i].sum_ns;
    if (names.class_of(static_cast<KernelNameId>(i)) != KernelClass::kComm) continue;
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
        {names.display(id), names.class_of(id), row.kernel_stats[order[i]].count, row.kernel_stats[order[i]].sum_ns});
  }
}

/// Gaps that were too short to look into are time between launches. Late records have filled gaps: the longest first.
void describe_idle(const RegionRow& row, RegionSummary& s) {
  DurationNs launching = s.time_ns[static_cast<std::size_t>(TimeClass::kIdle)];
  TimeByWork by = row.idle_work;
  share_out_rests(by);
  for (const auto& [work, ns] : by) {
    const bool known = work != nullptr && work != not_looked_at();
    add_cause(s.idle_by, known ? IdleCause{work->cause, work->where, work->thread, ns} : IdleCause{"", "", "", ns});
    launching -= ns;
  }
  if (launching > 0) add_cause(s.idle_by, {std::string(kLaunching), "", "", launching});
  keep_longest(s.idle_by, kMostIdleCauses);
  for (IdleCause& cause : s.idle_by) {
    const DurationNs less = std::min(cause.ns, std::max<DurationNs>(0, -launching));
    cause.ns -= less;
    launching += less;
  }
}

/// MFU stays where it is known when the instances ended.
void forget_untimed(bool ends_known, RegionSummary& s) {
  s.forget_kernel_times();
  if (s.mbu.value_or(0) > 1) s.mbu = std::nullopt;
  if (ends_known && s.mfu.value_or(0) <= 1) return;
  s.mfu = s.mbu = s.mfu_lower = s.mbu_lower = std::nullopt;
  s.forget_single_instances();
}

}  // namespace

RegionSummary summary_of(const RegionRow& row, const RowContext& of, const FlopsModel* model, ProductRoles& roles,
                         KernelNames& names) {
  RegionSummary s;
  static_cast<RegionCounts&>(s) = row;
  for (const DurationNs t : row.time_ns) s.elapsed_ns += t;
  describe_shape(row, s);
  s.untimed += row.maybe_untimed;
  s.classes_known = of.device_activity && s.untimed == 0;
  if (s.classes_known) {
    if (!s.idle_gaps) s.idle_gaps.emplace();
    s.idle_gaps->fit(s.time_ns[static_cast<std::size_t>(TimeClass::kIdle)]);
    if (of.host_seen) describe_idle(row, s);
  } else {
    s.idle_gaps.reset();
  }
  row.latency.describe(s, of.peak);
  // An instance may have another model.
  if ((model != nullptr || row.flop > 0) && row.any_work && row.flop_known && !row.flop_pending) {
    s.flop = row.flop;
    s.hfu_flop = row.hfu_flop;
    if (row.bytes_known) s.bytes = row.bytes;
  }
  describe_kernels(row, names, s);
  complete_metrics(s, of.phase, of.peak);
  // FLOP of an instance across an edge are split by time, its matmul kernels are where they are.
  // Above 100 % of the time that is no excuse.
  if (row.cut && s.suspect.starts_with("flops_exceed_matmul_time") && s.mfu.value_or(0) <= 1) s.suspect.clear();
  if (!s.classes_known) {  // no kernel was seen: nothing can be said of what they lost
    s.lost = std::nullopt;
    s.mfu_busy = std::nullopt;
    if (!s.mfu || *s.mfu <= 1) s.suspect.clear();
  }
  describe_matmuls(row, roles, names, model, of.phase, of.peak, of.final_run ? kComponentsOfRun : kComponentsOfWindow,
                   s);
  if (s.graph_sum_ns > 0)
    s.findings.push_back(
        {"graphs", fmt::format("{:.0f} % of the kernels' time is of CUDA graphs recorded as one: of which class it "
                               "is, and what matmuls lost in them, is unknown",
                               100 * seconds(s.graph_sum_ns) / seconds(s.kernel_sum_ns))});
  if (s.untimed != 0) forget_untimed(row.ends_known, s);
  return s;
}

}  // namespace mfu

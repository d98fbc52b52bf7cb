#include "tools/job/totals.h"

#include <algorithm>
#include <set>

#include "core/base/number_text.h"
#include "core/sinks/row_peak.h"

namespace mfu {
namespace {

/// A bound from below of all ranks: the least FLOP of each, over the peak of all.
struct LowerBound {
  double least = 0, at_peak = 0;
  bool any = false;
  void add(const std::optional<double>& ratio, const std::optional<double>& peak_per_s, double elapsed_s) {
    if (!peak_per_s) return;
    any = any || ratio;
    least += ratio.value_or(0) * *peak_per_s * elapsed_s;
    at_peak += *peak_per_s * elapsed_s;
  }
  [[nodiscard]] std::optional<double> value() const {
    return any && at_peak > 0 ? std::optional(least / at_peak) : std::nullopt;
  }
};

}  // namespace

RowPeak peak_of(const Rank& rank, const RegionSummary& row) noexcept {
  return rank.run ? row_peak(rank.run->devices, row) : RowPeak{};
}

JobTotals job_totals(const std::vector<const Rank*>& ranks) {
  JobTotals job;
  std::set<std::string> hosts;
  for (const Rank* rank : ranks) {
    switch (rank->state) {
      case RankState::kLive:
        ++job.live;
        break;
      case RankState::kStarting:
        ++job.starting;
        break;
      case RankState::kStale:
        ++job.stale;
        break;
      case RankState::kEnded:
        ++job.ended;
        break;
      case RankState::kReplaced:
        ++job.replaced;
        continue;
      case RankState::kUnreadable:
        ++job.unreadable;
        continue;
    }
    hosts.insert(rank->run->host);
    job.devices += rank->run->devices.size();
    job.world_size = std::max(job.world_size, rank->run->world_size);
  }
  job.hosts = hosts.size();
  job.whole_run = job.live == 0 && job.ended != 0;
  const RankState wanted = job.whole_run ? RankState::kEnded : RankState::kLive;

  RegionTotals totals;
  WeightedMean clock, overhead;  // each rank or device once
  LowerBound mfu_lower, mbu_lower;
  for (const Rank* rank : ranks) {
    if (rank->state != wanted) continue;
    const RegionSummary* total = rank->total();
    if (total == nullptr) continue;
    ++job.counted;
    job.dropped_records += rank->dropped_records();
    const RowPeak peak = peak_of(*rank, *total);
    totals.add_beside(*total, peak);
    mfu_lower.add(total->mfu_lower, peak.flop_per_s, seconds(total->elapsed_ns));
    mbu_lower.add(total->mbu_lower, peak.bytes_per_s, seconds(total->elapsed_ns));
    const double window_s = seconds(total->window.length_ns());
    if (window_s > 0) {
      job.flop_per_s += total->flop.value_or(0) / window_s;
      // Tokens are counted by regions too where no model is known; the process's line has them all.
      job.tokens_per_s += static_cast<double>(total->tokens) / window_s;
    }
    const WindowSummary* shown = rank->shown();
    overhead.add(shown->self.overhead, 1);
    std::set<std::uint32_t> clocked;
    for (const RegionSummary& r : shown->regions)
      if (r.clock_ratio && r.device && clocked.insert(*r.device).second) clock.add(*r.clock_ratio, 1);
  }
  job.clock_ratio = clock.mean();
  job.overhead = overhead.mean();
  if (totals.empty()) return job;
  const SummedRegion all = totals.summed();
  const RegionSummary& sum = all.sum;
  job.with_mfu = all.rows - static_cast<std::size_t>(all.weights.left_out);
  job.mfu = all.weights.mfu();
  job.hfu = all.weights.hfu();
  job.mbu = all.weights.mbu();
  if (!job.mfu) job.mfu_lower = mfu_lower.value();
  if (!job.mbu) job.mbu_lower = mbu_lower.value();
  for (const std::optional<double>& ratio : {job.mfu, job.mfu_lower, job.hfu, job.mbu, job.mbu_lower})
    if (ratio && !is_possible(*ratio)) job.suspect = sum.suspect;
  if (all.weights.matmul_ns > 0) job.seen = std::min(1.0, all.weights.covered_ns / all.weights.matmul_ns);
  job.hfu_of_seen = all.weights.hfu_is_executed();
  job.classes_known = sum.classes_known && sum.elapsed_ns > 0;
  if (!job.classes_known) return job;
  job.busy = static_cast<double>(sum.busy_ns) / static_cast<double>(sum.elapsed_ns);
  job.time_share = all.weights.time_shares().value_or(job.time_share);
  job.lost = all.weights.lost();
  return job;
}

}  // namespace mfu

#include "tools/job/totals.h"

#include <algorithm>
#include <set>

namespace mfu {

namespace {

std::optional<double> mean_peak(const Rank& rank, const RegionSummary& row,
                                std::optional<double> DeviceInfo::*peak) noexcept {
  if (!rank.run) return std::nullopt;
  double sum = 0;
  int devices = 0;
  for (const DeviceInfo& d : rank.run->devices) {
    if (row.device && d.device != *row.device) continue;
    if (!(d.*peak) || !(*(d.*peak) > 0)) return std::nullopt;
    sum += *(d.*peak);
    ++devices;
  }
  if (devices == 0) return std::nullopt;
  return sum / devices;
}

struct Weighted {
  double part = 0, whole = 0;
  [[nodiscard]] std::optional<double> ratio() const { return whole > 0 ? std::optional(part / whole) : std::nullopt; }
};

}  // namespace

std::optional<double> peak_flop_of(const Rank& rank, const RegionSummary& row) noexcept {
  return mean_peak(rank, row, &DeviceInfo::peak_flop_per_s);
}

std::optional<double> peak_bytes_of(const Rank& rank, const RegionSummary& row) noexcept {
  return mean_peak(rank, row, &DeviceInfo::peak_bytes_per_s);
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

  Weighted mfu, hfu, mbu, busy, clock, overhead;
  std::array<double, kTimeClasses> class_flop{}, class_s{};  // peak x time [FLOP], time [s]
  double capable_flop = 0, known_s = 0;                      // of the ranks in class_flop, in class_s
  double done_flop = 0;
  for (const Rank* rank : ranks) {
    if (rank->state != wanted) continue;
    const RegionSummary* total = rank->total();
    if (total == nullptr) continue;
    ++job.counted;
    job.dropped_records += rank->dropped_records();
    const double elapsed_s = seconds(total->elapsed_ns);
    const double window_s = seconds(total->window.length_ns());
    const auto peak = peak_flop_of(*rank, *total);
    const auto bandwidth = peak_bytes_of(*rank, *total);
    if (total->flop && peak && elapsed_s > 0) {
      ++job.with_mfu;
      mfu.part += *total->flop;
      mfu.whole += *peak * elapsed_s;
      hfu.part += total->hfu_flop.value_or(*total->flop);
      hfu.whole += *peak * elapsed_s;
    }
    if (total->bytes && bandwidth && elapsed_s > 0) {
      mbu.part += *total->bytes;
      mbu.whole += *bandwidth * elapsed_s;
    }
    if (total->classes_known && elapsed_s > 0) {
      busy.part += seconds(total->busy_ns);
      busy.whole += elapsed_s;
      known_s += elapsed_s;
      for (std::size_t c = 0; c < kTimeClasses; ++c) class_s[c] += seconds(total->time_ns[c]);
      if (total->flop && peak) {
        done_flop += *total->flop;
        capable_flop += *peak * elapsed_s;
        for (std::size_t c = 0; c < kTimeClasses; ++c) class_flop[c] += *peak * seconds(total->time_ns[c]);
      }
    }
    if (window_s > 0) {
      job.flop_per_s += total->flop.value_or(0) / window_s;
      // Tokens are counted by regions too where no model is known; the process's line has them all.
      job.tokens_per_s += static_cast<double>(total->tokens) / window_s;
    }
    const WindowSummary* shown = rank->shown();
    overhead.part += shown->self.overhead;
    overhead.whole += 1;
    std::set<std::uint32_t> clocked;
    for (const RegionSummary& r : shown->regions) {
      if (!r.clock_ratio || !r.device || !clocked.insert(*r.device).second) continue;
      clock.part += *r.clock_ratio;
      clock.whole += 1;
    }
  }
  job.mfu = mfu.ratio();
  job.hfu = hfu.ratio();
  job.mbu = mbu.ratio();
  job.busy = busy.ratio();
  job.clock_ratio = clock.ratio();
  job.overhead = overhead.ratio();
  job.classes_known = known_s > 0;
  if (known_s > 0)
    for (std::size_t c = 0; c < kTimeClasses; ++c) job.time_share[c] = class_s[c] / known_s;
  if (capable_flop > 0) {
    std::array<double, kTimeClasses> lost{};
    for (std::size_t c = 0; c < kTimeClasses; ++c) lost[c] = class_flop[c] / capable_flop;
    lost[static_cast<std::size_t>(TimeClass::kMatmul)] -= done_flop / capable_flop;
    job.lost = lost;
  }
  return job;
}

}  // namespace mfu

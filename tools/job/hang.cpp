#include "tools/job/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/number_text.h"
#include "tools/job/process_life.h"

namespace mfu {

HangProcess::HangProcess(const RunInfo& run, std::optional<Stall> lasting, const RegionSummary* total)
    : rank(run.rank),
      world_size(run.world_size),
      host(run.host),
      gpus(std::max<std::size_t>(1, run.devices.size())),
      stall(std::move(lasting)),
      begin_ns(run.t_ns) {
  constexpr double kIdle = 0.9;
  if (total == nullptr) {
    idles = "has not begun";
    return;
  }
  const auto idle = static_cast<double>(total->time_ns[static_cast<std::size_t>(TimeClass::kIdle)]);
  if (idle < kIdle * static_cast<double>(total->elapsed_ns)) return;
  const auto most = std::ranges::max_element(total->idle_by, {}, &IdleCause::ns);
  const bool known = most != total->idle_by.end() && !most->cause.empty() && most->cause != "launching";
  idles = known ? "is in " + most->cause + (most->where.empty() ? "" : ", " + most->where) : "launches no work";
  saves = known && saves_checkpoint(most->cause);
}

std::string Hang::text() const {
  std::string text = fmt::format("stalled for {}: ", duration_text(since_s));
  if (rank)
    text += fmt::format("rank {} ({}) {}", *rank, host, why);
  else
    text += why;
  return text + fmt::format("; {} {}, {:.2g} GPU-hours so far", waiting, waiting == 1 ? "rank waits" : "ranks wait",
                            gpu_s / 3600);
}

std::optional<Hang> find_hang(const std::vector<HangProcess>& processes, TimeNs now_ns) {
  Hang hang;
  const HangProcess* found = nullptr;
  int best = 0;
  std::uint64_t fewest = ~std::uint64_t{0}, most = 0;
  const auto take = [&](const HangProcess& p, int weight, std::string why, bool saves = false) {
    if (weight <= best) return;
    best = weight;
    found = &p;
    hang.why = std::move(why);
    hang.saves = saves;
  };
  std::set<std::int64_t> ranks;
  std::int64_t world = 1;
  for (const HangProcess& p : processes) {
    ranks.insert(p.rank);
    world = std::max(world, p.world_size);
    if (p.stall && !p.ended) {
      const double waited = std::max(0.0, seconds(now_ns - p.stall->since_ns));
      ++hang.waiting;
      hang.since_s = std::max(hang.since_s, waited);
      hang.gpu_s += waited * static_cast<double>(p.gpus);
      if (p.stall->comm) fewest = std::min(fewest, p.stall->comm_kernels), most = std::max(most, p.stall->comm_kernels);
      if (!p.stall->comm && !p.stall->kernel.empty())
        take(p, 5,
             "runs a kernel that does not end and is no collective: " + p.stall->kernel + " or one launched after it");
      continue;
    }
    if (p.ended)
      take(p, 3, "has ended");
    else if (p.quiet)
      take(p, 4, fmt::format("has written nothing for {}", duration_text(seconds(now_ns - p.last_ns))));
    else if (!p.idles.empty())
      take(p, 2, p.idles, p.saves);
  }
  if (hang.waiting == 0) return std::nullopt;
  for (const HangProcess& p : processes)
    if (p.stall && p.stall->comm && p.stall->comm_kernels == fewest && fewest < most)
      take(p, 1, fmt::format("has launched {} kernels of communication, others {}", fewest, most));
  const auto missing = world - static_cast<std::int64_t>(ranks.size());
  if (best < 2 && missing > 0) {
    hang.why = fmt::format("{} of {} ranks have written nothing at all", missing, world);
  } else if (found != nullptr) {
    hang.rank = found->rank;
    hang.host = found->host;
  } else {
    hang.why = "no rank differs from the others";
  }
  return hang;
}

std::optional<Hang> find_hang(const LiveJob& job) {
  std::vector<HangProcess> processes;
  TimeNs newest = 0;
  for (const Rank* rank : job.ranks()) {
    if (!rank->run || rank->state == RankState::kReplaced) continue;
    HangProcess& p = processes.emplace_back(*rank->run, rank->stall, rank->total());
    p.last_ns = rank->last_line_ns;
    p.set_clock(ahead_of(job.clocks(), p.host));
    p.quiet = rank->state == RankState::kStale;
    p.ended = rank->state == RankState::kEnded;
    newest = std::max(newest, p.last_ns);
  }
  constexpr double kOver = 120;  // it is no longer there, and costs nothing more
  return find_hang(processes, newest + (job.silent_s() < kOver ? static_cast<TimeNs>(job.silent_s() * 1e9) : 0));
}

}  // namespace mfu

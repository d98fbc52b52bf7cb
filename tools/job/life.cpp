#include "tools/job/life.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/base/number_text.h"
#include "core/sinks/row_peak.h"

namespace mfu {
namespace {

/// A process where it lies in the life of the job.
struct Placed {
  const ProcessLife* life = nullptr;
  DurationNs ahead_ns = 0;
  Interval span;  ///< by the clock of the job
  std::size_t attempt = 0;
};

/// The processes of one rank that followed each other.
using Lane = std::vector<Placed*>;

/// Each rank's processes, in as many lanes as run at the same time.
std::vector<Lane> lanes_of(std::vector<Placed>& processes) {
  std::map<std::int64_t, std::vector<Lane>> by_rank;
  for (Placed& p : processes) {
    std::vector<Lane>& lanes = by_rank[p.life->run.rank];
    const auto is_over = [&p](const Lane& lane) { return lane.back()->span.end_ns <= p.span.begin_ns; };
    const auto free = std::ranges::find_if(lanes, is_over);
    (free != lanes.end() ? *free : lanes.emplace_back()).push_back(&p);
  }
  std::vector<Lane> all;
  for (auto& [rank, lanes] : by_rank) all.insert(all.end(), lanes.begin(), lanes.end());
  return all;
}

/// Numbers the attempts: processes of one start of the launcher are together, as it says itself or, where it says
/// nothing, as long as none of them follows another one of its rank.
std::vector<Attempt> find_attempts(std::vector<Placed>& processes, const std::vector<Lane>& lanes) {
  std::map<const Placed*, const Placed*> before;
  for (const Lane& lane : lanes)
    for (std::size_t i = 1; i < lane.size(); ++i) before[lane[i]] = lane[i - 1];
  std::vector<Attempt> attempts;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> by_launch;
  for (Placed& p : processes) {
    const RunInfo& run = p.life->run;
    const std::size_t least = before.contains(&p) ? before[&p]->attempt + 1 : 0;
    p.attempt = std::max(least, std::max<std::size_t>(1, attempts.size()) - 1);
    if (!run.job_id.empty()) {
      std::size_t& known = by_launch.try_emplace({run.job_id, run.restart}, attempts.size()).first->second;
      if (known < least) known = attempts.size();
      p.attempt = known;
    }
    if (p.attempt >= attempts.size()) attempts.push_back({p.span});
    Attempt& a = attempts[p.attempt];
    a.span = {std::min(a.span.begin_ns, p.span.begin_ns), std::max(a.span.end_ns, p.span.end_ns)};
    a.world_size = std::max(a.world_size, run.world_size);
    a.ended = a.ended && p.life->ended;
    ++a.processes;
  }
  return attempts;
}

/// The region that a step of this job is.
std::string step_name(const std::vector<Placed>& processes) {
  std::map<std::string, DurationNs> sums;
  for (const Placed& p : processes)
    for (const auto& [name, region] : p.life->regions) sums[name] += region.all.elapsed_ns;
  for (const char* name : {"step", "pass"})
    if (sums.contains(name)) return name;
  const auto most = std::ranges::max_element(sums, {}, [](const auto& item) { return item.second; });
  return most == sums.end() ? "" : most->first;
}

/// Puts every moment of every lane into a part.
class Ledger {
 public:
  Ledger(const std::vector<Placed>& processes, JobLife& job)
      : job_(job), steps_(step_name(processes)), span_(processes.front().span) {
    for (const Placed& p : processes) {
      span_.end_ns = std::max(span_.end_ns, p.span.end_ns);
      if (const auto saved = p.life->regions.find("checkpoint"); saved != p.life->regions.end())
        for (const auto& stretch : saved->second.parts)
          add_checkpoint(p, stretch.in, stretch.elapsed_ns, stretch.times);
    }
    find_copied(processes);
    merge_checkpoints();
    job_.wall_ns = span_.length_ns();
  }

  void add(const Lane& lane) {
    std::size_t gpus = 1;
    for (const Placed* p : lane) gpus = std::max(gpus, p->life->run.devices.size());
    times_ = {};
    TimeNs at = span_.begin_ns;
    const Placed* before = nullptr;
    for (const Placed* p : lane) {
      gap(before, p, {at, p->span.begin_ns});
      process(*p, p != lane.back(), static_cast<double>(gpus));
      at = p->span.end_ns;
      before = p;
    }
    gap(before, nullptr, {at, span_.end_ns});
    for (std::size_t part = 0; part < kLifeParts; ++part)
      job_.parts[part] += Count(times_[part]) * Count(static_cast<std::int64_t>(gpus));
    job_.gpus += gpus;
  }

  [[nodiscard]] std::optional<double> mfu() const {
    return at_peak_ > 0 ? std::optional(flop_ / at_peak_) : std::nullopt;
  }

 private:
  /// Without a region: copies to the host, by all ranks in windows side by side, are a checkpoint where they add up to
  /// the weights, a byte for a parameter at least. A rank that copies more than weights, gradients, master weights and
  /// two moments (2 + 4 x 4 bytes for a parameter) swaps something out, and a server saves nothing.
  void find_copied(const std::vector<Placed>& processes) {
    constexpr double kMostOfParam = 20;  // [B]
    if (steps_ == "pass") return;
    std::vector<std::pair<const Placed*, const ProcessLife::Copied*>> all;
    double params = 0;
    for (const Placed& p : processes) {
      params = std::max(params, p.life->params);
      for (const ProcessLife::Copied& c : p.life->copied)
        if (c.bytes <= kMostOfParam * p.life->params) all.emplace_back(&p, &c);
    }
    const auto begin_of = [](const auto& c) { return c.second->span.begin_ns - c.first->ahead_ns; };
    std::ranges::sort(all, {}, begin_of);
    for (std::size_t i = 0, end = 0; i < all.size(); i = end) {
      double bytes = 0;
      for (TimeNs until = begin_of(all[i]) + 1; end < all.size() && begin_of(all[end]) < until; ++end) {
        until = std::max(until, all[end].second->span.end_ns - all[end].first->ahead_ns);
        bytes += all[end].second->bytes;
      }
      for (std::size_t c = i; c < end && bytes >= params; ++c) {
        saved_.insert(all[c].second);
        add_checkpoint(*all[c].first, all[c].second->span, all[c].second->outside_ns);
      }
    }
  }

  void add_checkpoint(const Placed& by, const Interval& in, DurationNs elapsed_ns, std::uint64_t times = 1) {
    checkpoints_.push_back({{in.begin_ns - by.ahead_ns, in.end_ns - by.ahead_ns}, elapsed_ns, times, &by});
  }

  /// Those of several ranks, and of windows side by side, are one. It takes as long as the slowest rank needs.
  void merge_checkpoints() {
    std::ranges::sort(checkpoints_, {}, [](const Checkpoint& c) { return c.in.begin_ns; });
    std::vector<Checkpoint> merged;
    std::vector<DurationNs> periods;
    for (std::size_t i = 0; i < checkpoints_.size();) {
      Checkpoint one{checkpoints_[i].in, 0, 0, nullptr};
      std::map<const Placed*, std::pair<DurationNs, std::uint64_t>> of;
      for (; i < checkpoints_.size() && checkpoints_[i].in.begin_ns <= one.in.end_ns; ++i) {
        auto& [elapsed, times] = of[checkpoints_[i].by];
        one.in.end_ns = std::max(one.in.end_ns, checkpoints_[i].in.end_ns);
        one.elapsed_ns = std::max(one.elapsed_ns, elapsed += checkpoints_[i].elapsed_ns);
        one.times = std::max(one.times, times += checkpoints_[i].times);
      }
      job_.checkpoints += one.times;
      if (!merged.empty() && merged.back().times == 1) periods.push_back(one.in.begin_ns - merged.back().in.begin_ns);
      merged.push_back(one);
    }
    checkpoints_ = std::move(merged);
    std::ranges::sort(periods);
    if (!periods.empty()) job_.checkpoint_period_s = seconds(periods[periods.size() / 2]);
  }

  /// Time of the stalls in it.
  [[nodiscard]] static DurationNs stalled(const ProcessLife& life, const Interval& in) {
    DurationNs sum = 0;
    for (const Interval& stall : life.stalls) sum += stall.overlap(in).length_ns();
    return sum;
  }

  /// The sum of `of(windows)`, by the clock of the process's host, over all checkpoints of the job: of each at most as
  /// long as it took.
  template <typename Of>
  [[nodiscard]] DurationNs during_checkpoints(const Placed& p, Of&& of) const {
    DurationNs sum = 0;
    for (const Checkpoint& c : checkpoints_)
      sum +=
          std::clamp<DurationNs>(of(Interval{c.in.begin_ns + p.ahead_ns, c.in.end_ns + p.ahead_ns}), 0, c.elapsed_ns);
    return sum;
  }

  /// Time outside of steps while a rank of the job saves a checkpoint.
  [[nodiscard]] DurationNs beside_checkpoints(const Placed& p, const ProcessLife::Region& steps) const {
    return during_checkpoints(p, [&](const Interval& in) {
      DurationNs outside = in.overlap(p.life->span).length_ns();
      // Steps lie beside the checkpoint as far as their windows have room there.
      for (const auto& stretch : steps.parts) {
        const DurationNs inside = in.overlap(stretch.in).length_ns();
        outside -= std::max<DurationNs>(0, stretch.elapsed_ns - (stretch.in.length_ns() - inside));
      }
      return outside;
    });
  }

  /// Books at most `wanted` of `rest`.
  void take(DurationNs& rest, LifePart part, DurationNs wanted) {
    const DurationNs taken = std::clamp<DurationNs>(wanted, 0, rest);
    times_[static_cast<std::size_t>(part)] += taken;
    rest -= taken;
  }

  /// No process of the rank.
  void gap(const Placed* before, const Placed* behind, const Interval& at) {
    DurationNs rest = at.length_ns();
    if (before == nullptr) return take(rest, behind->attempt == 0 ? LifePart::kStartUp : LifePart::kAway, rest);
    const RunInfo& run = before->life->run;
    const bool scheduled = run.job_id.starts_with("slurm-") || run.job_id.starts_with("flux-");
    // A rank that was done needs no GPU, and between two of its jobs a scheduler has it.
    if (behind == nullptr ? before->life->ended : scheduled && run.job_id != behind->life->run.job_id)
      return take(rest, LifePart::kAway, rest);
    // A window that is still open says nothing yet.
    if (behind == nullptr && rest <= 2 * before->life->longest_window_ns) return take(rest, LifePart::kOutside, rest);
    const std::size_t next = behind == nullptr ? job_.attempts.size() : behind->attempt;
    for (std::size_t i = before->attempt + 1; i < next; ++i)
      if (const Attempt& a = job_.attempts[i]; a.world_size <= run.rank)
        take(rest, LifePart::kAway, std::min(a.span.end_ns, at.end_ns) - std::max(a.span.begin_ns, at.begin_ns));
    take(rest, LifePart::kRestart, rest);
  }

  void process(const Placed& p, bool followed, double gpus) {
    const ProcessLife& life = *p.life;
    DurationNs rest = p.span.length_ns();
    const auto found = life.regions.find(steps_);
    if (found == life.regions.end()) {
      take(rest, LifePart::kStalled, stalled(life, life.span));
      return take(rest, followed || !life.ended ? LifePart::kStartUp : LifePart::kOutside, rest);
    }
    const ProcessLife::Region& steps = found->second;
    const Interval before_steps{life.span.begin_ns, steps.first_ns};
    take(rest, LifePart::kStartUp, before_steps.length_ns() - stalled(life, before_steps));
    DurationNs in_steps = std::min(rest, steps.all.elapsed_ns);
    rest -= in_steps;
    const auto stalled_of = [&life](const auto& stretch) {
      return std::min(stretch.elapsed_ns, stalled(life, stretch.in));
    };
    DurationNs stalled_steps = 0;
    for (const auto& stretch : steps.parts) stalled_steps += stalled_of(stretch);
    const DurationNs waits = during_checkpoints(p, [&life](const Interval& in) { return stalled(life, in); });
    take(in_steps, LifePart::kCheckpoint, std::min(stalled_steps, waits));
    take(in_steps, LifePart::kStalled, stalled_steps - std::min(stalled_steps, waits));
    take(rest, LifePart::kStalled, stalled(life, life.span) - stalled_steps);
    const DurationNs before = rest;
    const auto in_region = [&](const char* name) {
      const auto other = life.regions.find(name);
      return other != life.regions.end() && steps_ != name ? other->second.all.elapsed_ns : 0;
    };
    take(rest, LifePart::kCheckpoint, in_region("checkpoint"));
    for (const ProcessLife::Copied& c : life.copied)
      if (saved_.contains(&c)) take(rest, LifePart::kCheckpoint, c.outside_ns);
    const DurationNs saved = before - rest;
    take(rest, LifePart::kEvaluation, in_region("eval") + in_region("pass"));
    if (steps_ != "pass") take(rest, LifePart::kCheckpoint, beside_checkpoints(p, steps) - saved);
    take(rest, LifePart::kOutside, rest);
    take(in_steps, LifePart::kWarmUp, steps.warm_up_ns());
    double flop = steps.all.flop;
    if (followed && steps_ != "pass") {
      job_.repeated_known = job_.repeated_known && !checkpoints_.empty();
      // The last one that was there when it ended; before the first one, that of an earlier process.
      TimeNs since = 0;
      for (const Checkpoint& c : checkpoints_)
        if (c.in.end_ns <= p.span.end_ns) since = c.in.end_ns;
      for (const auto& stretch : steps.parts) {
        if (checkpoints_.empty() || stretch.in.end_ns - p.ahead_ns <= since) continue;
        take(in_steps, LifePart::kRepeated, stretch.elapsed_ns - stalled_of(stretch));
        flop -= stretch.flop;
      }
    }
    const double covered = static_cast<double>(steps.covered_ns) / static_cast<double>(steps.all.elapsed_ns);
    const auto peak = row_peak(life.run.devices, RegionSummary{}).flop_per_s;
    if (peak) flop_ += flop;
    at_peak_ += peak.value_or(0) * gpus * seconds(in_steps) * covered;
    take(in_steps, LifePart::kProductive, in_steps);
  }

  /// Somewhere in these windows, by the clock of the job, a rank saved one for so long.
  struct Checkpoint {
    Interval in;
    DurationNs elapsed_ns = 0;
    std::uint64_t times = 1;  ///< more: they are too old to be kept one by one
    const Placed* by = nullptr;
  };

  JobLife& job_;
  std::string steps_;
  Interval span_;
  std::vector<Checkpoint> checkpoints_;  ///< in order of time
  std::set<const ProcessLife::Copied*> saved_;
  std::array<DurationNs, kLifeParts> times_{};  ///< of the lane
  double flop_ = 0, at_peak_ = 0;
};

}  // namespace

JobLife job_life(const std::vector<const ProcessLife*>& lives, const Clocks& clocks) {
  JobLife job;
  std::vector<Placed> processes;
  for (const ProcessLife* life : lives) {
    const DurationNs ahead = ahead_of(clocks, life->run.host);
    if (life->span.begin_ns != 0)
      processes.push_back({life, ahead, {life->span.begin_ns - ahead, life->span.end_ns - ahead}});
  }
  if (processes.empty()) return job;
  std::ranges::stable_sort(processes, {},
                           [](const Placed& p) { return std::tuple(p.span.begin_ns, p.life->run.rank); });
  const std::vector<Lane> lanes = lanes_of(processes);
  job.attempts = find_attempts(processes, lanes);
  Ledger ledger(processes, job);
  for (const Lane& lane : lanes) ledger.add(lane);
  // A wrong shape or peak makes it impossible; the rows of its regions say so.
  if (const std::optional<double> mfu = ledger.mfu(); mfu && *mfu >= 0 && *mfu <= 1) job.mfu = mfu;
  return job;
}

double JobLife::gpu_s() const {
  double sum = -gpu_s(LifePart::kAway);
  for (const Count part : parts) sum += part.to_double() * 1e-9;
  return sum;
}

std::optional<double> JobLife::alive() const {
  const double all = gpu_s();
  return all > 0 ? std::optional(1 - gpu_s(LifePart::kRestart) / all) : std::nullopt;
}

std::optional<double> JobLife::productive() const {
  const double living = gpu_s() - gpu_s(LifePart::kRestart);
  return living > 0 ? std::optional(gpu_s(LifePart::kProductive) / living) : std::nullopt;
}

std::optional<double> JobLife::job_mfu() const {
  return mfu && alive() && productive() ? std::optional(*mfu * *productive() * *alive()) : std::nullopt;
}

std::string JobLife::text() const {
  constexpr std::array<const char*, kLifeParts> kWords{
      "",           "restarts",       "start-up", "warm-up",       "checkpoints",
      "evaluation", "repeated steps", "stalls",   "between steps", ""};
  if (productive().value_or(0) <= 0) return "";
  std::string text = mfu ? fmt::format("job MFU {}{:.1f} % = {:.1f} % in steps x ", repeated_known ? "" : "at most ",
                                       100 * *job_mfu(), 100 * *mfu)
                         : "job: ";
  const double lost = gpu_s() - gpu_s(LifePart::kProductive);
  const auto [unit, name] = lost >= 3600 ? std::pair(3600.0, "GPU-hours")
                            : lost >= 60 ? std::pair(60.0, "GPU-minutes")
                                         : std::pair(1.0, "GPU-seconds");
  text += fmt::format("{:.0f} % productive x {:.0f} % alive; {:.3g} {} lost", 100 * *productive(), 100 * *alive(),
                      lost / unit, name);
  std::vector<std::pair<double, const char*>> sorted;
  for (std::size_t i = 1; i + 1 < kLifeParts; ++i)
    if (const double s = gpu_s(static_cast<LifePart>(i)); s > 0.005 * lost) sorted.emplace_back(s, kWords[i]);
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& part) { return part.first; });
  for (std::size_t i = 0; i < sorted.size(); ++i)
    text += fmt::format("{}{} {:.3g}", i == 0 ? ": " : ", ", sorted[i].second, sorted[i].first / unit);
  if (checkpoint_period_s) text += fmt::format("; a checkpoint every {}", duration_text(*checkpoint_period_s));
  return text + (repeated_known ? "" : "; repeated steps unknown: no checkpoint was seen");
}

}  // namespace mfu

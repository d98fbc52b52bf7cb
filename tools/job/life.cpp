#include "tools/job/life.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/sinks/row_peak.h"

namespace mfu {

bool saves_checkpoint(std::string_view name) noexcept {
  return name.find("checkpoint") != name.npos || name.substr(name.rfind('.') + 1).starts_with("save");
}

namespace {

std::string_view kind_of(std::string_view region) {
  constexpr std::string_view kPasses[] = {"prefill",          "decode",    "mixed",
                                          "prefill_or_mixed", "iteration", "verification"};
  if (std::ranges::find(kPasses, region) != std::end(kPasses)) return "pass";
  if (saves_checkpoint(region)) return "checkpoint";
  return region.starts_with("eval") || region.starts_with("valid") ? "eval" : region;
}

}  // namespace

void ProcessLife::Region::add(const Interval& window, const Stretch& now, bool flop_known, std::uint64_t instances) {
  constexpr std::size_t kFirstWindows = 32, kParts = 128;
  if (now.elapsed_ns <= 0) return;
  // Instances go on from the first one to the window's end, as a rule.
  if (parts.empty()) first_ns = std::max(window.begin_ns, window.end_ns - now.elapsed_ns);
  const auto put = [&now](Stretch& into) {
    into = {now.end_ns, into.elapsed_ns + now.elapsed_ns, into.flop + now.flop};
  };
  put(all);
  if (flop_known) covered_ns += now.elapsed_ns;
  if (!first_windows.empty() && first_windows.back().second == 0)  // one instance over several windows
    first_windows.back() = {first_windows.back().first + now.elapsed_ns, instances};
  else if (first_windows.size() < kFirstWindows)
    first_windows.emplace_back(now.elapsed_ns, instances);
  if (instances != 0) means.add(now.elapsed_ns / static_cast<DurationNs>(instances), instances);
  parts.push_back(now);
  if (parts.size() < kParts) return;
  // Checkpoints that matter are near the end: the older half gets coarser.
  for (std::size_t i = 0; i < kParts / 4; ++i) {
    const Stretch &a = parts[2 * i], &b = parts[2 * i + 1];
    parts[i] = {b.end_ns, a.elapsed_ns + b.elapsed_ns, a.flop + b.flop};
  }
  parts.erase(parts.begin() + kParts / 4, parts.begin() + kParts / 2);
}

DurationNs ProcessLife::Region::warm_up_ns() const {
  const DurationNs median = means.quantile(0.5);
  DurationNs beyond = 0;
  for (const auto& [elapsed, instances] : first_windows) {
    const DurationNs excess = elapsed - median * static_cast<DurationNs>(instances);
    if (median == 0 || excess <= elapsed / 10) break;
    beyond += excess;
  }
  return beyond;
}

void ProcessLife::start(const RunInfo& info) {
  const TimeNs began = info.began_ns != 0 ? std::min(info.began_ns, info.t_ns) : info.t_ns;
  if (span.begin_ns == 0) span = {began, info.t_ns};
  run = info;
}

void ProcessLife::window(const WindowSummary& window) {
  span.end_ns = std::max(span.end_ns, window.window.end_ns);
  longest_window_ns = std::max(longest_window_ns, window.window.length_ns());
  struct Sum {
    Stretch stretch;
    bool flop_known = true;
    std::uint64_t instances = 0;
  };
  std::map<std::string_view, Sum> sums;
  for (const RegionSummary& row : window.regions) {
    if (row.region == "total") continue;
    Sum& sum = sums[kind_of(row.region)];
    sum.stretch.elapsed_ns += row.elapsed_ns;
    sum.stretch.flop += row.flop.value_or(0);
    sum.flop_known = sum.flop_known && row.flop;
    sum.instances += row.instances;
  }
  const std::size_t devices = std::max<std::size_t>(1, run.devices.size());
  for (auto& [kind, sum] : sums) {
    sum.stretch.end_ns = window.window.end_ns;
    sum.stretch.elapsed_ns =
        std::min(sum.stretch.elapsed_ns / static_cast<DurationNs>(devices), window.window.length_ns());
    regions[std::string(kind)].add(window.window, sum.stretch, sum.flop_known, sum.instances / devices);
  }
}

void ProcessLife::end(TimeNs at_ns) {
  ended = true;
  span.end_ns = std::max(span.end_ns, at_ns);
}

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
        for (const auto& stretch : saved->second.parts) checkpoints_.push_back(stretch.end_ns - p.ahead_ns);
    }
    std::ranges::sort(checkpoints_);
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
    if (found == life.regions.end())
      return take(rest, followed || !life.ended ? LifePart::kStartUp : LifePart::kOutside, rest);
    const ProcessLife::Region& steps = found->second;
    take(rest, LifePart::kStartUp, steps.first_ns - life.span.begin_ns);
    DurationNs in_steps = std::min(rest, steps.all.elapsed_ns);
    rest -= in_steps;
    for (const auto& [name, part] : {std::pair{"checkpoint", LifePart::kCheckpoint},
                                     {"eval", LifePart::kEvaluation},
                                     {"pass", LifePart::kEvaluation}})
      if (const auto other = life.regions.find(name); other != life.regions.end() && steps_ != name)
        take(rest, part, other->second.all.elapsed_ns);
    take(rest, LifePart::kOutside, rest);
    take(in_steps, LifePart::kWarmUp, steps.warm_up_ns());
    double flop = steps.all.flop;
    if (followed && steps_ != "pass") {
      job_.repeated_known = job_.repeated_known && !checkpoints_.empty();
      // The last one that was there when it ended; before the first one, that of an earlier process.
      const auto last = std::ranges::upper_bound(checkpoints_, p.span.end_ns);
      const TimeNs since = last == checkpoints_.begin() ? 0 : *std::prev(last);
      for (const auto& stretch : steps.parts) {
        if (checkpoints_.empty() || stretch.end_ns - p.ahead_ns <= since) continue;
        take(in_steps, LifePart::kRepeated, stretch.elapsed_ns);
        flop -= stretch.flop;
      }
    }
    const double covered = static_cast<double>(steps.covered_ns) / static_cast<double>(steps.all.elapsed_ns);
    const auto peak = row_peak(life.run.devices, RegionSummary{}).flop_per_s;
    if (peak) flop_ += flop;
    at_peak_ += peak.value_or(0) * gpus * seconds(in_steps) * covered;
    take(in_steps, LifePart::kProductive, in_steps);
  }

  JobLife& job_;
  std::string steps_;
  Interval span_;
  std::vector<TimeNs> checkpoints_;
  std::array<DurationNs, kLifeParts> times_{};  ///< of the lane
  double flop_ = 0, at_peak_ = 0;
};

}  // namespace

JobLife job_life(const std::vector<const ProcessLife*>& lives, const std::map<std::string, DurationNs>& ahead_of) {
  JobLife job;
  std::vector<Placed> processes;
  for (const ProcessLife* life : lives) {
    const auto known = ahead_of.find(life->run.host);
    const DurationNs ahead = known == ahead_of.end() ? 0 : known->second;
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
      "", "restarts", "start-up", "warm-up", "checkpoints", "evaluation", "repeated steps", "between steps", ""};
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
  return text + (repeated_known ? "" : "; repeated steps unknown: no checkpoint was seen");
}

}  // namespace mfu

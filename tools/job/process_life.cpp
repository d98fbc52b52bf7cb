#include "tools/job/process_life.h"

#include <algorithm>
#include <limits>

#include "tools/job/model_facts.h"

namespace mfu {

bool saves_checkpoint(std::string_view name) noexcept {
  constexpr std::string_view kCalls[] = {"save",       "save_model",      "save_pretrained",
                                         "save_state", "save_state_dict", "save_weights"};
  return name.find("checkpoint") != name.npos ||
         std::ranges::find(kCalls, name.substr(name.rfind('.') + 1)) != std::end(kCalls);
}

bool is_checkpoint(std::string_view region) noexcept { return saves_checkpoint(region) || region.starts_with("save"); }

namespace {

std::string_view kind_of(std::string_view region) {
  constexpr std::string_view kPasses[] = {"prefill",          "decode",    "mixed",
                                          "prefill_or_mixed", "iteration", "verification"};
  if (std::ranges::find(kPasses, region) != std::end(kPasses)) return "pass";
  if (is_checkpoint(region)) return "checkpoint";
  return region.starts_with("eval") || region.starts_with("valid") ? "eval" : region;
}

}  // namespace

void ProcessLife::Region::add(const Stretch& now, bool flop_known, std::uint64_t instances, bool joins) {
  constexpr std::size_t kFirstWindows = 32, kParts = 128;
  if (now.elapsed_ns <= 0) return;
  // Instances go on from the first one to the window's end, as a rule.
  if (parts.empty()) first_ns = std::max(now.in.begin_ns, now.in.end_ns - now.elapsed_ns);
  const auto both = [](const Stretch& a, const Stretch& b) {
    return Stretch{{a.in.begin_ns, b.in.end_ns}, a.elapsed_ns + b.elapsed_ns, a.flop + b.flop, a.times + b.times};
  };
  all = parts.empty() ? now : both(all, now);
  if (flop_known) covered_ns += now.elapsed_ns;
  if (!first_windows.empty() && first_windows.back().second == 0)  // one instance over several windows
    first_windows.back() = {first_windows.back().first + now.elapsed_ns, instances};
  else if (first_windows.size() < kFirstWindows)
    first_windows.emplace_back(now.elapsed_ns, instances);
  if (instances != 0) means.add(now.elapsed_ns / static_cast<DurationNs>(instances), instances);
  if (joins && !parts.empty() && parts.back().in.end_ns == now.in.begin_ns) {
    parts.back() = both(parts.back(), now);
    --parts.back().times;
    return;
  }
  parts.push_back(now);
  if (parts.size() < kParts) return;
  // Checkpoints that matter are near the end: the older half gets coarser.
  for (std::size_t i = 0; i < kParts / 4; ++i) parts[i] = both(parts[2 * i], parts[2 * i + 1]);
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
  params = model_facts(run).params;
}

/// A rank copies a hundredth of its part of the weights at least, a byte for a parameter.
void ProcessLife::note_copied(const Interval& window, DurationNs outside_ns, double bytes, bool in_regions) {
  const double least = params / (100 * static_cast<double>(std::max<std::int64_t>(1, run.world_size)));
  const bool much = least > 0 && bytes >= least;
  if (!copied.empty() && copied.back().span.end_ns == window.begin_ns && (much || !in_regions))
    copied.back().span.end_ns = window.end_ns;
  else if (much)
    copied.push_back({window});
  else
    return;
  copied.back().outside_ns += outside_ns;
  copied.back().bytes += bytes;
}

void ProcessLife::stalled_since(TimeNs since_ns) {
  if (std::ranges::find(stalls, since_ns, &Interval::begin_ns) == stalls.end())
    stalls.push_back({since_ns, std::numeric_limits<TimeNs>::max()});
}

void ProcessLife::event(const RunEvent& event) {
  span.end_ns = std::max(span.end_ns, event.t_ns);  // windows of a stall may come a minute later
  if (event.kind == "stalled" && event.stall) stalled_since(event.stall->since_ns);
  if (event.kind == "resumed" && !stalls.empty()) stalls.back().end_ns = event.t_ns;
}

void ProcessLife::window(const WindowSummary& window) {
  span.end_ns = std::max(span.end_ns, window.window.end_ns);
  longest_window_ns = std::max(longest_window_ns, window.window.length_ns());
  if (window.stall) stalled_since(window.stall->since_ns);
  struct Sum {
    Stretch stretch;
    bool flop_known = true;
    std::uint64_t instances = 0;
  };
  std::map<std::string_view, Sum> sums;
  DurationNs saving = 0;
  double to_host_bytes = 0;
  for (const RegionSummary& row : window.regions) {
    DurationNs saving_here = 0;
    for (const IdleCause& cause : row.idle_by)
      if (saves_checkpoint(cause.cause)) saving_here += cause.ns;
    if (row.region == "total") {
      saving += saving_here;
      to_host_bytes += row.to_host_bytes.value_or(0);
      continue;
    }
    const std::string_view kind = kind_of(row.region);
    if (kind == "checkpoint") saving_here = 0;
    Sum& sum = sums[kind];
    sum.stretch.elapsed_ns += row.elapsed_ns - saving_here;
    sum.stretch.flop += row.flop.value_or(0);
    sum.flop_known = sum.flop_known && row.flop;
    sum.instances += row.instances;
  }
  const bool in_regions = !sums.empty();
  if (saving != 0 && !sums.contains("checkpoint")) sums["checkpoint"].stretch.elapsed_ns = saving;
  const std::size_t devices = std::max<std::size_t>(1, run.devices.size());
  DurationNs outside = window.window.length_ns();
  for (auto& [kind, sum] : sums) {
    sum.stretch.in = window.window;
    sum.stretch.elapsed_ns =
        std::min(sum.stretch.elapsed_ns / static_cast<DurationNs>(devices), window.window.length_ns());
    outside -= sum.stretch.elapsed_ns;
    regions[std::string(kind)].add(sum.stretch, sum.flop_known, sum.instances / devices, kind == "checkpoint");
  }
  note_copied(window.window, std::max<DurationNs>(0, outside), to_host_bytes, in_regions);
}

void ProcessLife::end(TimeNs at_ns) {
  ended = true;
  span.end_ns = std::max(span.end_ns, at_ns);
}

}  // namespace mfu

#include "tools/job/rank.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/base/number_text.h"
#include "tools/job/totals.h"

namespace mfu {
namespace {

constexpr DurationNs kLongestWindow = 365 * 86400 * kNsPerSecond;  ///< at most, of a file

std::int64_t stages_of(const std::string& config_json) {
  const auto config = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return 1;
  const auto parallel = config.find("parallel");
  if (parallel == config.end() || !parallel->is_object()) return 1;
  const auto pp = parallel->find("pp");
  return pp != parallel->end() && pp->is_number_integer()
             ? std::clamp<std::int64_t>(pp->get<std::int64_t>(), 1, 1 << 20)
             : 1;
}

HistoryPoint point_of(const RegionSummary& r) {
  const auto ratio = [](const std::optional<double>& v) {
    return v && is_possible(*v) ? static_cast<float>(*v) : -1.0F;
  };
  HistoryPoint point{r.window.end_ns, ratio(r.mfu), ratio(r.mbu), -1};
  if (r.classes_known && r.elapsed_ns > 0)
    point.busy = static_cast<float>(static_cast<double>(r.busy_ns) / static_cast<double>(r.elapsed_ns));
  return point;
}

}  // namespace

std::string_view name(RankState state) noexcept {
  constexpr std::array<std::string_view, 6> kNames{"starting", "live", "stale", "ended", "replaced", "unreadable"};
  return kNames[static_cast<std::size_t>(state)];
}

const RegionSummary* Rank::total() const noexcept {
  const WindowSummary* window = shown();
  if (window == nullptr) return nullptr;
  for (const RegionSummary& r : window->regions)
    if (r.region == "total") return &r;
  return nullptr;
}

std::uint64_t Rank::dropped_records() const noexcept {
  const WindowSummary* window = shown();
  std::uint64_t dropped = 0;
  if (window == nullptr) return dropped;
  for (const auto& [counter, count] : window->counters)
    if (counter == "records_dropped" || counter == "records_no_batch" || counter == "records_truncated")
      dropped += count;
  return dropped;
}

const DeviceInfo* Rank::device(std::optional<std::uint32_t> index) const noexcept {
  if (!run) return nullptr;
  for (const DeviceInfo& d : run->devices)
    if (!index || d.device == *index) return &d;
  return nullptr;
}

void Rank::take(RunLine&& line) {
  last_line_ns = std::max(last_line_ns, line.t_ns);
  if (auto* info = std::get_if<RunInfo>(&line.what)) {
    // Once more when a device appears: the first time is when the run began.
    const TimeNs begin = run ? run->t_ns : info->t_ns;
    run = std::move(*info);
    run->t_ns = begin;
    life.start(*run);
    pipeline_stages = stages_of(run->config_json);
  } else if (auto* window = std::get_if<WindowLine>(&line.what)) {
    take_window(std::move(*window));
  } else if (auto* event = std::get_if<RunEvent>(&line.what)) {
    if (event->kind == "stalled" || event->kind == "resumed") stall = event->stall;
    life.event(*event);
    events.push_back(std::move(*event));
    if (events.size() > kEventsKept) events.pop_front();
  } else if (auto* whole = std::get_if<EndLine>(&line.what); whole != nullptr && !whole->whole.so_far) {
    end = std::move(whole->whole);
    life.end(end->window.end_ns);
  }
}

void Rank::take_window(WindowLine&& window) {
  const Interval at = window.region.window;
  if (open_.regions.empty() || open_.window.begin_ns != at.begin_ns) {
    open_ = {};
    limit_.next_window();
  }
  open_.window = at;
  const RegionSummary as_read = window.region;
  const RegionSummary& region = limit_.put(open_.regions, std::move(window.region));
  sums[{region.region, region.device}].add(as_read, peak_of(*this, as_read));
  std::deque<HistoryPoint>& past = history[{region.region, region.device}];
  past.push_back(point_of(as_read));
  if (past.size() > kHistory) past.pop_front();
  if (as_read.region != "total") return;
  open_.counters = std::move(window.counters);
  open_.stall = window.stall;
  if (window.self) open_.self = *window.self;
  // Where an output's budget is used up, the next window is longer than any before.
  interval_ns = std::min(kLongestWindow, std::max({interval_ns, open_.window.length_ns(), window.next_ns}));
  ++windows;
  life.window(open_);
  // A piece of the file that is found late brings older windows.
  const bool newest = !last || at.end_ns >= last->window.end_ns;
  if (newest) {
    std::vector<CommSample> samples;
    for (const RegionSummary& r : open_.regions)
      if (r.comm_kernels != 0)
        samples.push_back({r.region, r.device, r.window, r.elapsed_ns,
                           r.time_ns[static_cast<std::size_t>(TimeClass::kComm)], r.comm_kernels, r.comm_sum_ns});
    recent.push_back(std::move(samples));
    if (recent.size() > kRecentWindows) recent.pop_front();
    last = std::move(open_);
    stall = std::move(window.stall);  // a file that is read from its end may have its event before that
  }
  open_ = {};
}

}  // namespace mfu

#include "tools/run_dir/run_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace mfu {

void HistoryBuilder::take(RunLine&& line) {
  any_ = true;
  if (auto* run = std::get_if<RunInfo>(&line.what)) {
    // Once more when a device appears: the first time is when the run began.
    const TimeNs begin = started_ ? history_.run.t_ns : run->t_ns;
    history_.run = std::move(*run);
    history_.run.t_ns = begin;
    started_ = true;
  } else if (auto* window = std::get_if<WindowLine>(&line.what)) {
    const Interval& at = window->region.window;
    if (history_.windows.empty() || history_.windows.back().window.begin_ns != at.begin_ns ||
        history_.windows.back().window.end_ns != at.end_ns) {
      history_.windows.emplace_back();
      history_.windows.back().window = at;
      limit_.next_window();
    }
    if (history_.end && history_.end->so_far && at.end_ns > history_.end->window.end_ns) history_.end.reset();
    WindowSummary& into = history_.windows.back();
    if (!window->counters.empty()) into.counters = std::move(window->counters);
    if (window->self) into.self = *window->self;
    if (window->stall) into.stall = std::move(window->stall);
    limit_.put(into.regions, std::move(window->region));
  } else if (auto* event = std::get_if<RunEvent>(&line.what)) {
    history_.events.push_back(std::move(*event));
  } else if (auto* end = std::get_if<EndLine>(&line.what)) {
    history_.end = std::move(end->whole);
    std::vector<RegionSummary> rows;
    limit_.next_window();
    for (RegionSummary& row : history_.end->regions) limit_.put(rows, std::move(row));
    history_.end->regions = std::move(rows);
    limit_.next_window();
  }
}

RunHistory HistoryBuilder::finish() {
  // Pieces may come in any order, and a window may be in two of them.
  const auto begin_of = [](const WindowSummary& w) { return std::pair(w.window.begin_ns, w.window.end_ns); };
  if (!std::ranges::is_sorted(history_.windows, {}, begin_of)) {
    std::ranges::stable_sort(history_.windows, {}, begin_of);
    std::vector<WindowSummary> merged;
    for (WindowSummary& window : history_.windows) {
      if (merged.empty() || begin_of(merged.back()) != begin_of(window)) {
        merged.push_back(std::move(window));
        continue;
      }
      WindowSummary& into = merged.back();
      std::ranges::move(window.regions, std::back_inserter(into.regions));
      if (!window.counters.empty()) into.counters = std::move(window.counters);
      if (window.stall) into.stall = std::move(window.stall);
    }
    history_.windows = std::move(merged);
  }
  if (limit_.reached())
    history_.oddities.push_back(fmt::format("{}: more than {} regions or {} rows to a window; the others are `other`",
                                            history_.source, RegionLimit::kNames, RegionLimit::kRows));
  if (any_ && !started_)
    history_.oddities.push_back(history_.source + ": no start line: device, peak and config are not known");
  return std::move(history_);
}

}  // namespace mfu

#include "tools/run_dir/run_history.h"

#include <fmt/format.h>

#include "tools/run_dir/run_file.h"

namespace mfu {

Result<RunHistory> read_run_history(const std::string& path) {
  RunHistory history;
  history.source = path;
  RunFile file(path, RunFile::From::kBeginning);
  bool started = false;
  bool any = false;
  const auto done = file.poll([&](RunLine&& line) {
    any = true;
    if (auto* run = std::get_if<RunInfo>(&line.what)) {
      // Once more when a device appears: the first time is when the run began.
      const TimeNs begin = started ? history.run.t_ns : run->t_ns;
      history.run = std::move(*run);
      history.run.t_ns = begin;
      started = true;
    } else if (auto* window = std::get_if<WindowLine>(&line.what)) {
      const Interval& at = window->region.window;
      if (history.windows.empty() || history.windows.back().window.begin_ns != at.begin_ns ||
          history.windows.back().window.end_ns != at.end_ns) {
        history.windows.emplace_back();
        history.windows.back().window = at;
      }
      if (!window->counters.empty()) history.windows.back().counters = std::move(window->counters);
      if (window->self) history.windows.back().self = *window->self;
      history.windows.back().regions.push_back(std::move(window->region));
    } else if (auto* event = std::get_if<EventLine>(&line.what)) {
      history.events.push_back({line.t_ns, std::move(event->kind), std::move(event->message)});
    } else if (auto* end = std::get_if<EndLine>(&line.what)) {
      history.end = std::move(end->whole);
    }
  });
  if (!done) return done.error();
  for (const RunFile::Oddity& oddity : file.oddities()) history.oddities.push_back(oddity.message);
  if (file.bad_lines() > file.oddities().size())
    history.oddities.push_back(fmt::format("{}: {} bad lines in all", path, file.bad_lines()));
  if (file.newer_lines() != 0)
    history.oddities.push_back(fmt::format("{}: {} lines are of a newer version: read as far as their keys are known",
                                           path, file.newer_lines()));
  if (!any)
    return Error{
        fmt::format("{}: {}", path, history.oddities.empty() ? "holds no line of a run" : history.oddities.front())};
  if (!started) history.oddities.push_back(path + ": no start line: device, peak and config are not known");
  return history;
}

}  // namespace mfu

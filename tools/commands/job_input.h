// What the commands that look at finished runs share: reading one, and writing to a file or stdout.
#pragma once

#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "tools/commands/command_line.h"
#include "tools/job/job_report.h"
#include "tools/report/assertion.h"
#include "tools/report/outputs/process_writer.h"
#include "tools/report/timelines.h"

namespace mfu {

struct JobInput {
  std::string path;                ///< a run directory, a file of one, a trace, a folder of traces
  std::string config;              ///< of traces: the model
  std::string interval;            ///< of traces: seconds per window
  std::string tensorboard;         ///< a folder that gets event files; empty: none
  Timelines* timelines = nullptr;  ///< gets single instances where the input has them
};

/// One line on stderr for a person.
using Complain = std::function<void(std::string_view message)>;

/// Reads one run, process by process. `writer` sees them as they pass; nullptr: none.
[[nodiscard]] Result<Job> read_job(const JobInput& input, ProcessWriter* writer, const Complain& complain);

/// What is wrong with options that are for traces alone, where no path is one: run directories have a config and
/// windows of their own. Empty: nothing.
[[nodiscard]] std::string wrong_trace_options(std::span<const std::string> paths, const std::string& config,
                                              const std::string& interval);

/// `--config` and `--interval`, which traces alone need.
void add_trace_options(Command& command, std::string& config, std::string& interval);

[[nodiscard]] Result<std::vector<Assertion>> parse_assertions(const std::vector<std::string>& texts);
/// Says of each bound whether it holds, as `check` finds. \return 0; 1: one does not; 2: one names what is not there.
[[nodiscard]] int check_assertions(const std::vector<Assertion>& assertions, const Complain& complain,
                                   const std::function<Result<Verdict>(const Assertion&)>& check);

/// Writes what `write` says to the file `output`, or to stdout where it is empty or `-`.
[[nodiscard]] Result<void> write_to(const std::string& output, const std::function<Result<void>(std::ostream&)>& write);

}  // namespace mfu

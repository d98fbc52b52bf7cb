// The part that the commands share which look at finished runs: reading one.
#pragma once

#include <functional>
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
#include "tools/trace/trace_input.h"

namespace mfu {

struct JobInput {
  std::string path;                ///< a run directory, a file of one, a trace, a folder of traces
  WorkOptions work;                ///< of traces, and of runs that had no config
  std::string tensorboard;         ///< a folder that gets event files; empty: none
  Timelines* timelines = nullptr;  ///< gets single instances where the input has them
};

/// One line on stderr for a person.
using Complain = std::function<void(std::string_view message)>;

/// Reads one run, process by process. `writer` sees them as they pass; nullptr: none.
[[nodiscard]] Result<Job> read_job(const JobInput& input, ProcessWriter* writer, const Complain& complain);

/// The one run that `paths` name, or the one that is meant where they are empty.
[[nodiscard]] Result<std::string> one_run(const std::vector<std::string>& paths);

/// The mistake of options that mean nothing here: an interval without a trace, a shape without a model; or empty.
[[nodiscard]] std::string wrong_work_options(std::span<const std::string> paths, const WorkOptions& work);

/// `--config`, `--batch` and the other options of WorkOptions but the price.
void add_work_options(Command& command, WorkOptions& work);
/// `--gpu-hour`.
void add_price_option(Command& command, std::optional<double>& gpu_hour);

[[nodiscard]] Result<std::vector<Assertion>> parse_assertions(const std::vector<std::string>& texts);
/// Says of each bound whether it holds, as `check` finds. \return 0; 1: one does not; 2: one names what is not there.
[[nodiscard]] int check_assertions(const std::vector<Assertion>& assertions, const Complain& complain,
                                   const std::function<Result<Verdict>(const Assertion&)>& check);

}  // namespace mfu

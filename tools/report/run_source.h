// Where reports come from: a run directory, one of its files, a trace or a folder of traces, all as RunHistory.
#pragma once

#include <functional>
#include <string>

#include "core/base/result.h"
#include "tools/report/timelines.h"
#include "tools/run_dir/run_history.h"
#include "tools/trace/trace_input.h"

namespace mfu {

struct RunSource {
  std::string path;
  WorkOptions work;                ///< of traces, and of runs that had no config
  Timelines* timelines = nullptr;  ///< gets single instances of traces, and of the recordings of runs; nullptr: none
};

/// Gives the rows of a run without a model the work that `config` implies. Error: it has a model.
[[nodiscard]] Result<void> count_late(const Config& config, RunHistory& history);

/// The kind of input at a path.
enum class SourceKind { kRunDirectory, kTraces };

/// Called with what a person should know about the input: one line, without a prefix.
using OnRemark = std::function<void(std::string)>;

/// A folder with *.jsonl files, or one of them, is a run directory; anything else is taken for traces.
/// Error: nothing there.
[[nodiscard]] Result<SourceKind> kind_of(const std::string& path);

/// Hands over one process after the other, in the order of their files. A file of a folder that cannot be used is a
/// remark; one that was named, or a folder without any that can, is an Error. `each` ends it all with an Error.
[[nodiscard]] Result<void> for_each_process(const RunSource& source,
                                            const std::function<Result<void>(RunHistory&&)>& each,
                                            const OnRemark& remark);

}  // namespace mfu

#include "tools/report/outputs/tensorboard.h"

#include <filesystem>

#include "core/sinks/sink_tensorboard.h"

namespace mfu {

Result<std::vector<std::string>> write_tensorboard(const std::vector<RunHistory>& histories,
                                                   const std::string& directory) {
  std::vector<std::string> written;
  for (const RunHistory& history : histories) {
    if (history.windows.empty()) continue;
    TensorboardSink sink(directory, history.run);
    std::error_code failed;
    std::filesystem::remove(sink.path(), failed);
    if (failed) return Error{sink.path() + ": cannot be replaced: " + failed.message()};
    if (auto done = sink.start(history.run); !done) return done.error();
    for (const WindowSummary& window : history.windows)
      if (auto done = sink.write(window); !done) return done.error();
    written.push_back(sink.path());
  }
  return written;
}

}  // namespace mfu

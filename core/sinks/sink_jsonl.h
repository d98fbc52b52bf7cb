// The run directory: one append-only JSON Lines file per process.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/line_file.h"
#include "core/sinks/sink.h"

namespace mfu {

/// `<dir>/<host>-<rank>-<pid>.jsonl`; keys and types are those documented in docs/reference.md. A line is written whole
/// or not at all.
class JsonlSink final : public Sink {
 public:
  JsonlSink(const std::string& directory, const RunInfo& run);
  /// The same lines to `target`: a file, stderr or stdout (MFU_LOG_FORMAT=json).
  explicit JsonlSink(std::string target) : file_(std::move(target)), name_("log") {}

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] Result<void> start(const RunInfo& run) override;
  [[nodiscard]] Result<void> write(const WindowSummary& window) override;
  [[nodiscard]] Result<void> event(TimeNs t_ns, std::string_view kind, std::string_view message) override;
  [[nodiscard]] const std::string& path() const noexcept { return file_.target(); }

 private:
  [[nodiscard]] Result<void> append(const std::string& line);

  LineFile file_;
  std::string_view name_ = "run_dir";
  std::string start_line_;  ///< once more, should the file be made anew
  std::uint64_t seq_ = 0;
};

/// One `window` or `end.regions` entry as JSON text, without `v`, `type`, `t_ns` and `seq`.
[[nodiscard]] std::string region_json(const RegionSummary& region);

}  // namespace mfu

// The run directory: one append-only JSON Lines file per process.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/line_file.h"
#include "core/sinks/output_budget.h"
#include "core/sinks/sink.h"

namespace mfu {

/// `<dir>/<host>-<rank>-<pid>.jsonl`; keys and types as in docs/reference.md. A line is written whole or not at all.
class JsonlSink final : public Sink {
 public:
  /// \param bytes_per_day that are written at most; 0: no limit.
  JsonlSink(const std::string& directory, const RunInfo& run, double bytes_per_day = 0);
  /// The same lines to `target`: a file, stderr or stdout (MFU_LOG_FORMAT=json).
  explicit JsonlSink(std::string target, double bytes_per_day = 0)
      : file_(std::move(target)), name_("log"), budget_("log", bytes_per_day) {}

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] Result<void> start(const RunInfo& run) override;
  [[nodiscard]] Result<void> write(const WindowSummary& window) override;
  [[nodiscard]] Result<void> event(const RunEvent& event) override;
  /// Lines to a standard stream are written by `carrier`.
  void carried_by(LineCarrier* carrier) noexcept { file_.carried_by(carrier); }
  [[nodiscard]] std::string take_notice() override { return budget_.take_notice(); }
  [[nodiscard]] const std::string& path() const noexcept { return file_.target(); }

 private:
  [[nodiscard]] Result<void> write_window(const WindowSummary& window);

  LineFile file_;
  std::string_view name_ = "run_dir";
  OutputBudget budget_;
  std::uint64_t seq_ = 0;
};

/// One `window` or `end.regions` entry as JSON text, without `v`, `type`, `t_ns` and `seq`.
[[nodiscard]] std::string region_json(const RegionSummary& region);

}  // namespace mfu

// Windows as TensorBoard scalars.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/line_file.h"
#include "core/sinks/output_budget.h"
#include "core/sinks/sink.h"

namespace mfu {

/// `<dir>/<host>-<rank>-<pid>/events.out.tfevents.<start>.<host>`: a folder is what TensorBoard calls a run. Tags are
/// `<region>/<figure>`, with `gpu<n>/` between where the process has several devices. A region's step is the number of
/// its instances so far, that of `total` the number of the window; the time is the window's end.
class TensorboardSink final : public Sink {
 public:
  /// \param bytes_per_day that are written at most; 0: no limit.
  TensorboardSink(const std::string& directory, const RunInfo& run, double bytes_per_day = 0);

  [[nodiscard]] std::string_view name() const noexcept override { return "tensorboard"; }
  [[nodiscard]] Result<void> start(const RunInfo& run) override;
  /// The whole run's window says nothing that a curve could show: it is passed over.
  [[nodiscard]] Result<void> write(const WindowSummary& window) override;
  /// Events are not for curves.
  [[nodiscard]] Result<void> event(const RunEvent&) override { return {}; }
  [[nodiscard]] std::string take_notice() override { return budget_.take_notice(); }
  [[nodiscard]] const std::string& path() const noexcept { return file_.target(); }

 private:
  [[nodiscard]] Result<void> write_window(const WindowSummary& window);

  LineFile file_;
  OutputBudget budget_;
  bool several_devices_ = false;
  std::int64_t windows_ = 0;
  std::map<std::pair<std::string, std::optional<std::uint32_t>>, std::int64_t> instances_;
};

}  // namespace mfu

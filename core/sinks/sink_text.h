// The log: one line per region and window, a table at the end of the run.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/base/line_file.h"
#include "core/sinks/output_budget.h"
#include "core/sinks/sink.h"

namespace mfu {

/// Columns of a region's line before its waterfall: region, instances, time of each, slow ones, figures, bound, rate.
inline constexpr std::size_t kLineColumns = 8;
using LineColumns = std::array<std::string, kLineColumns>;
using Widths = std::array<std::size_t, kLineColumns>;

/// Lines with the prefix `[mfu]`, at most 120 columns wide, words in a fixed order, aligned below each other. On a
/// terminal the current line is cleared first, so that progress bars and these lines do not mix, and figures are bold
/// unless NO_COLOR is set.
class TextSink final : public Sink {
 public:
  /// \param every lines for each so many-th window only; 0: none, the table at the end alone.
  /// \param components below each region its matmuls, one line each.
  /// \param bytes_per_day that are written at most; 0: no limit.
  TextSink(std::string target, std::int64_t rank, bool name_rank, std::uint64_t every = 1, bool components = false,
           double bytes_per_day = 0);

  [[nodiscard]] std::string_view name() const noexcept override { return "log"; }
  [[nodiscard]] Result<void> start(const RunInfo& run) override;
  [[nodiscard]] Result<void> write(const WindowSummary& window) override;
  [[nodiscard]] Result<void> event(const RunEvent& event) override;
  /// Lines to a standard stream are written by `carrier`.
  void carried_by(LineCarrier* carrier) noexcept { out_.carried_by(carrier); }
  [[nodiscard]] std::string take_notice() override { return budget_.take_notice(); }

 private:
  [[nodiscard]] Result<void> print(std::string_view text);
  [[nodiscard]] std::string window_text(const WindowSummary& window);

  LineFile out_;
  OutputBudget budget_;
  std::string prefix_;
  std::uint64_t every_ = 1, windows_ = 0;
  bool terminal_ = false, color_ = false, components_ = false;
  DurationNs longest_ = 0;  ///< window so far
  Widths widths_{};
};

/// `12.3%`, `-` where unknown, `suspect` where it cannot be true.
[[nodiscard]] std::string percent(const std::optional<double>& ratio);
/// One region of one window as the log shows it, without the prefix.
[[nodiscard]] std::string region_line(const RegionSummary& region);
/// ` (detected)` or ` (inferred, medium)` where no range named the region: nothing that was inferred looks as if it had
/// been said. Empty otherwise.
[[nodiscard]] std::string origin(const RegionSummary& region);
/// `5-8`, or `1`.
[[nodiscard]] std::string batch_range(const BatchLatency& batch);
/// `#17 41.2 ms (idle +7.5 ms)`: which instance, how long it took, and what it lost most to.
[[nodiscard]] std::string slow_instance(const SlowInstance& slow, bool classes_known);
/// The regions of the whole run as a table. Below a region what single instances took: by batch where there are
/// several, from prefill to decode, and the slowest; the findings of its matmuls, and with `components` each of them.
[[nodiscard]] std::string region_table(const WindowSummary& run, bool components = false);
/// The table at the end of the run: regions, launch account, what the library cost.
[[nodiscard]] std::string run_table(const WindowSummary& run, bool components = false);

}  // namespace mfu

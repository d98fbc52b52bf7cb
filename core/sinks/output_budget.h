// How much a run writes a day: windows become longer before an output becomes too large.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/rows/region_totals.h"
#include "core/sinks/sink.h"

namespace mfu {

/// [mfu-sink] The budget of one output. Windows pass as they are until half of what may be written at once is used;
/// from then on several become one (RegionTotals), as long as it takes to earn the bytes of such a window. Nothing is
/// left out: the sums of the windows are the same.
///
/// Of the bytes of a day kAtOnce may be written at any time, kSteady are earned evenly, kForEvents are for events; what
/// is left is for the start and end lines, which are always written. Time is that of the windows, so no clock is read.
class OutputBudget {
 public:
  static constexpr double kAtOnce = 0.15, kSteady = 0.8, kForEvents = 0.02;

  /// \param what the output, for the notice. \param bytes_per_day 0: without a limit.
  OutputBudget(std::string what, double bytes_per_day);

  /// The devices' peaks are what ratios of several windows are divided by.
  void start(const RunInfo& run) { devices_ = run.devices; }
  /// The next window. \return what to write now: it, or several as one, valid until the next call; nullptr: nothing.
  [[nodiscard]] const WindowSummary* take(const WindowSummary& window);
  /// The line that was held back, at the end of the run; nullptr: none.
  [[nodiscard]] const WindowSummary* rest();
  /// How long a window is written with: decides how long the next one is.
  void wrote(std::size_t bytes);
  /// Whether an event of so many bytes may still be written; if so they are spent.
  [[nodiscard]] bool allows_event(std::size_t bytes);

  /// Length of the next window where it is longer than the run's own [ns]; else 0.
  [[nodiscard]] DurationNs next_ns() const noexcept { return next_ns_; }
  /// One line when windows become longer for the first time; empty otherwise.
  [[nodiscard]] std::string take_notice();

 private:
  struct Held {
    std::string region;
    RegionTotals sum;
  };

  void hold(const WindowSummary& window);
  [[nodiscard]] const WindowSummary* merged();

  std::string what_;
  double bytes_per_day_;
  double left_, left_for_events_;  ///< [B] that may be written now; less than 0: owed
  double usual_bytes_per_ns_;
  std::vector<DeviceInfo> devices_;
  TimeNs seen_until_ns_ = 0;
  DurationNs usual_ns_ = 0;  ///< length of the run's own windows
  DurationNs next_ns_ = 0;
  bool said_ = false;
  std::string notice_;

  WindowSummary held_;  ///< its rows are in sums_
  std::size_t held_windows_ = 0;
  std::vector<Held> sums_;  ///< in the order in which they came
  std::map<std::pair<std::string, std::optional<std::uint32_t>>, std::size_t> index_;
  WindowSummary merged_;
};

}  // namespace mfu

// Single instances of a region, kernel by kernel, for the timelines of a report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/replay/process_replay.h"

namespace mfu {

/// One instance that ended, on one device.
struct InstanceSpan {
  std::uint32_t process = 0;  ///< index into Trace::processes
  std::uint32_t device = 0;
  std::uint64_t nth = 0;  ///< of its region on its device, in the order in which they ended; the first is 0
  Interval time;          ///< on the file's own zero
};

/// Collects every instance that has device activity while a trace is replayed. Regions that saw more than kMost are
/// kept up to there.
class InstanceCollector final : public ReplayObserver {
 public:
  static constexpr std::size_t kMost = 1 << 20;

  void on_finished(const Instance& instance, std::uint32_t device, double share_of_work) override;

  /// By region, in the order in which they ended.
  [[nodiscard]] const std::map<std::string, std::vector<InstanceSpan>>& regions() const noexcept { return regions_; }

 private:
  std::map<std::string, std::vector<InstanceSpan>> regions_;
};

/// The kind of a bar of a timeline. The first four are classes of the waterfall.
enum class BarKind : std::uint8_t { kMatmul, kOther, kComm, kMemcpy, kRange, kLaunch };
template <>
inline constexpr auto kWords<BarKind> = std::to_array<std::string_view>({"matmul", "other", "comm", "memcpy", "range",
                                                                         "launch"});

struct TimelineBar {
  DurationNs begin_ns = 0;  ///< after the instance began; negative: before
  DurationNs length_ns = 0;
  std::uint32_t name = 0;   ///< index into InstanceTimeline::names
  std::uint32_t count = 1;  ///< how many neighbours of one kind became this bar
  BarKind kind = BarKind::kOther;
};

/// One line of bars: a depth of a host thread's ranges, its calls, or a stream.
struct TimelineRow {
  std::string label;
  std::vector<TimelineBar> bars;  ///< by begin
};

/// One instance: its process's activities from its begin to its end.
struct InstanceTimeline {
  InstanceSpan span;
  std::vector<TimelineRow> rows;   ///< host threads, then streams
  std::vector<std::string> names;  ///< of ranges, calls, kernels (demangled), copies
  std::uint64_t rows_left_out = 0;
};

/// Host ranges, launches and device activities that overlap `span`, those of its device only. Where a row would have
/// more than `most_bars`, short neighbours of one kind become one bar, the shortest first.
[[nodiscard]] InstanceTimeline draw_instance(const Trace& trace, const InstanceSpan& span,
                                             std::size_t most_bars = 3000);

/// The config under which a recording (MFU_TRACE) of a run is replayed: the region rules that the run had, nothing
/// else. \param resolved_config `config` of the run's start line.
[[nodiscard]] Config recording_config(const std::string& resolved_config);

}  // namespace mfu

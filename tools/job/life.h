// The life of a job: which of its processes followed each other, and what the time of its GPUs went into.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/count.h"
#include "core/rows/duration_histogram.h"
#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"

namespace mfu {

/// Each moment of a rank is one of these.
enum class LifePart : std::uint8_t {
  kProductive,  ///< a step, or a pass of a server, whose result lasted
  kRestart,     ///< no process: the one before ended, and the next has not begun
  kStartUp,     ///< a process that has not begun its first step
  kWarmUp,      ///< of the first steps, the time beyond the median
  kCheckpoint,
  kEvaluation,  ///< evaluation, and generation between steps
  kRepeated,    ///< steps after the last checkpoint of a process that another one followed
  kOutside,     ///< a process between its steps, in none of these
  kAway,        ///< no process, and none was to be there: the job had fewer ranks, or waited in a queue
};
inline constexpr std::array<std::string_view, 9> kLifePartNames{
    "productive", "restart", "start_up", "warm_up", "checkpoint", "evaluation", "repeated", "outside", "away"};
inline constexpr std::size_t kLifeParts = kLifePartNames.size();

/// Whether the name of a region or of a function is one of saving a checkpoint: `checkpoint`, `save_model`,
/// `torch.save`.
[[nodiscard]] bool saves_checkpoint(std::string_view name) noexcept;

/// One process, by its start line and its windows in their order.
struct ProcessLife {
  /// Time in a region, up to a moment.
  struct Stretch {
    TimeNs end_ns = 0;
    DurationNs elapsed_ns = 0;  ///< mean of the devices
    double flop = 0;            ///< of all devices [FLOP]
  };
  struct Region {
    TimeNs first_ns = 0;         ///< begin of its first instance, to a window
    Stretch all;                 ///< end_ns: of the last window that has it
    DurationNs covered_ns = 0;   ///< of its time, in windows whose FLOP are known
    std::vector<Stretch> parts;  ///< of `all`, in their order; the older ones become one where there are too many
    std::vector<std::pair<DurationNs, std::uint64_t>> first_windows;  ///< elapsed time, and instances that ended
    DurationHistogram means;                                          ///< of an instance, a window each

    void add(const Interval& window, const Stretch& now, bool flop_known, std::uint64_t instances);
    /// Of its first windows, the time beyond what their instances take by the median.
    [[nodiscard]] DurationNs warm_up_ns() const;
  };

  RunInfo run;
  Interval span;
  bool ended = false;  ///< by its end line
  DurationNs longest_window_ns = 0;
  /// By name; all passes of a server are `pass`, every kind of saving `checkpoint`, of evaluation `eval`.
  std::map<std::string, Region, std::less<>> regions;

  void start(const RunInfo& run);
  void window(const WindowSummary& window);
  void end(TimeNs at_ns);
};

/// The processes that began together.
struct Attempt {
  Interval span;
  std::int64_t world_size = 0;
  std::size_t processes = 0;
  bool ended = true;  ///< each of them by its end line
};

/// The parts of the GPU time. They add up to GPUs x wall, exactly.
struct JobLife {
  std::vector<Attempt> attempts;
  std::uint64_t gpus = 0;                 ///< of all ranks that were there at some time
  DurationNs wall_ns = 0;                 ///< from the first process's start to the end of the last one
  std::array<Count, kLifeParts> parts{};  ///< [GPU-ns]
  bool repeated_known = true;             ///< false: it was started again, and no checkpoint was seen
  std::optional<double> mfu;              ///< FLOP that lasted / (peak x productive time), 0..1

  [[nodiscard]] double gpu_s(LifePart part) const { return parts[static_cast<std::size_t>(part)].to_double() * 1e-9; }
  [[nodiscard]] double gpu_s() const;  ///< without kAway
  /// Time of living processes in all time; productive time in that of living processes; 0..1.
  [[nodiscard]] std::optional<double> alive() const, productive() const;
  /// mfu x productive x alive = FLOP that lasted / (peak x all time), 0..1. From above where !repeated_known.
  [[nodiscard]] std::optional<double> job_mfu() const;
  /// `job MFU 17.5 % = 28.8 % in steps x 93 % productive x 65 % alive; 412 GPU-hours lost: restarts 210, ...`; empty:
  /// no step was seen.
  [[nodiscard]] std::string text() const;
};

/// \param ahead_of by how much the clock of a host is ahead; absent: not at all.
[[nodiscard]] JobLife job_life(const std::vector<const ProcessLife*>& processes,
                               const std::map<std::string, DurationNs>& ahead_of = {});

}  // namespace mfu

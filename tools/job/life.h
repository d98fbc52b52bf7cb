// The life of a job: which of its processes followed each other, and what the time of its GPUs went into.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/count.h"
#include "core/rows/region_summary.h"
#include "tools/job/clocks.h"
#include "tools/job/process_life.h"

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
  kStalled,     ///< work that had begun did not end
  kOutside,     ///< a process between its steps, in none of these
  kAway,        ///< no process, and none was to be there: the job had fewer ranks, or waited in a queue
};
inline constexpr std::array<std::string_view, 10> kLifePartNames{"productive", "restart",    "start_up", "warm_up",
                                                                 "checkpoint", "evaluation", "repeated", "stalled",
                                                                 "outside",    "away"};
inline constexpr std::size_t kLifeParts = kLifePartNames.size();

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
  std::uint64_t checkpoints = 0;  ///< those that ranks save at the same time, or in windows side by side, are one
  std::optional<double> checkpoint_period_s;  ///< median from the begin of one to the next [s]; none below two
  std::optional<double> mfu;                  ///< FLOP that lasted / (peak x productive time), 0..1

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

[[nodiscard]] JobLife job_life(const std::vector<const ProcessLife*>& processes, const Clocks& clocks = {});

}  // namespace mfu

// Which rank a job that has stalled waits for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"
#include "tools/job/live_job.h"

namespace mfu {

/// A process of a job, as little of it as the question needs.
struct HangProcess {
  std::int64_t rank = 0, world_size = 1;
  std::string host;
  std::size_t gpus = 1;
  std::optional<Stall> stall;  ///< that lasts
  TimeNs begin_ns = 0;         ///< of its start line, UTC
  TimeNs last_ns = 0;          ///< of its last line, UTC
  DurationNs window_ns = 0;    ///< length of its newest window
  bool quiet = false;          ///< it should have written since
  bool ended = false;          ///< by its end line
  std::string idles;           ///< where its GPU has no work: `is in torch.save, ckpt.py:40`; else empty
  bool saves = false;          ///< that is a checkpoint

  /// \param total of its newest window; nullptr: there is none yet.
  HangProcess(const RunInfo& run, std::optional<Stall> stall, const RegionSummary* total);
  /// Its times by the clock of the job. \param ahead of it, that of its host.
  void set_clock(DurationNs ahead) noexcept {
    begin_ns -= ahead;
    last_ns -= ahead;
    if (stall) stall->since_ns -= ahead;
  }
};

/// Some ranks wait for work that does not end.
struct Hang {
  std::optional<std::int64_t> rank;  ///< the cause; none: no rank differs from the others
  std::string host;
  std::string why;          ///< words about that rank, or about all
  bool saves = false;       ///< it writes a checkpoint: the others have to wait
  std::size_t waiting = 0;  ///< ranks
  double since_s = 0;       ///< how long the first of them has waited [s]
  double gpu_s = 0;         ///< GPU time of the wait so far, of all of them [s]

  /// `stalled for 95 s: rank 3 (node01) is in DataLoader.__next__, data.py:88; 7 ranks wait, 0.18 GPU-hours so far`
  [[nodiscard]] std::string text() const;
};

/// The cause is, in this order: a rank whose own kernel, no collective, does not end; one that has written nothing
/// since; one that has ended; one without work on its GPU, by what it does; ranks that have no file at all; of ranks
/// that are all in collectives, the one that has launched fewer. None where no rank is in a stall.
/// \param now_ns of the newest line of the job, UTC.
[[nodiscard]] std::optional<Hang> find_hang(const std::vector<HangProcess>& processes, TimeNs now_ns);
[[nodiscard]] std::optional<Hang> find_hang(const LiveJob& job);

}  // namespace mfu

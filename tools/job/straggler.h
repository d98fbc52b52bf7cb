// Which rank arrives last at collectives, and what that costs the job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/job/live_job.h"

namespace mfu {

/// A rank that the others wait for.
struct Straggler {
  const Rank* rank = nullptr;
  std::optional<std::uint32_t> device;
  std::string region;
  double lead_s = 0;               ///< less time per collective than the median of the others [s]
  double noise_s = 0;              ///< standard deviation of that among ranks and windows that do not straggle [s]
  double lost_share = 0;           ///< of the region's elapsed time that the others spend waiting for it, 0..1
  std::optional<double> cost_mfu;  ///< the job's MFU without the wait, less what it is: 0.031 is 3.1 points
  std::size_t windows = 0;         ///< that were compared
};

/// A collective ends on all its ranks together, so the rank that is in its communication kernels for the LEAST time is
/// the one that came last; ranks that are in them longest only wait.
///
/// Compared are live ranks, region by region, over their last windows (6 at most, those that at least half of them
/// have; windows are matched by time, less the skew of a host's clock), within a group: ranks whose count of
/// communication kernels per second of region is alike (within 5 %), and, where the config says pp > 1, of the same
/// pipeline stage (rank x pp / world: the pipeline is the outermost dimension, as Megatron-LM and torchtitan number
/// ranks).
///
///   w(r)   = sum of communication kernel time / count of communication kernels, over the windows  [s per collective]
///   lead   = median of w over the others of the group - w(r)
///   saved  = min(lead x count per window, median of the others' exposed communication per window)
///   share  = saved / (elapsed time of the region per window)
///   cost   = mfu x share / (1 - share): the job's FLOP in the time that is left, less mfu
///
/// A rank is named only where lead > 5 sigma, share >= 0.5 %, and lead > 0 in at least four of five windows. sigma is
/// 1.4826 x the median absolute deviation of w among the others, or of the lead from window to window divided by the
/// root of their number, whichever is more; fewer than six ranks need three windows, for there the others say little of
/// noise.
/// No rank is named where more than a third of a group (of more than two) differs: that is no rank's doing.
/// \param job_mfu of job_totals. \return by cost, most first; a rank once, for the region where it costs most.
[[nodiscard]] std::vector<Straggler> find_stragglers(const std::vector<const Rank*>& ranks, const Clocks& clocks,
                                                     std::optional<double> job_mfu);

/// `straggler: rank 13 (node01 gpu 0) costs 1.9 points of MFU: last in step by 900 µs`.
[[nodiscard]] std::string straggler_text(const Straggler& straggler);

}  // namespace mfu

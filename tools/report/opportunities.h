// Improvements of a run, and the most that each could gain.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/rows/region_summary.h"
#include "tools/job/job_report.h"

namespace mfu {

/// Time of one class that a region might be without.
struct Opportunity {
  std::string region;
  TimeClass time_class = TimeClass::kIdle;
  double share = 0;            ///< of the region's elapsed time, 0..1
  std::optional<double> gain;  ///< 1 / (1 - share): times the rate, if that time went away; none where all of it would
  std::string what;    ///< with what it rests on: `idle 30.5 %: 73.0 % of it in gaps below 20 µs; 371 launches ...`
  std::string advice;  ///< one or two sentences
};

/// Shares of 2 % and more of every region but `total`, most device time first. Matmul time below the peak is one where
/// MFU is known and memory is not the limit.
[[nodiscard]] std::vector<Opportunity> opportunities(const Job& job);

/// One thing to do next, and the evidence for it. `kind`: `measure` (no figure without it), `config` and `work` (found
/// in the run), `time`, `rank`.
struct Advice {
  std::string_view kind;
  std::string region;  ///< empty: the whole job
  std::string evidence, action;
  std::optional<double> gain = {};  ///< at most: times the rate
};

/// First the advice without which figures are unknown or wrong, then the findings of the work, opportunities, ranks.
[[nodiscard]] std::vector<Advice> advice(const Job& job);

/// `step: idle 30.5 %: ..., up to 1.44x`.
[[nodiscard]] std::string opportunity_text(const Opportunity& opportunity);

/// A kernel's name without template arguments and parameters, at most `most` bytes.
[[nodiscard]] std::string short_kernel_name(std::string_view name, std::size_t most = 40);

}  // namespace mfu

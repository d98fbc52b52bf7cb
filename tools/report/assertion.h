// `--assert 'step.mfu>=0.40'`: a bound on a figure, for CI.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "tools/job/job_report.h"

namespace mfu {

/// REGION.FIGURE OP NUMBER, with >=, <=, >, <, == or !=, and blanks where they help. The number may end in `%`, or in
/// s, ms, us or ns where the figure is a time. The region is all that precedes the figure, dots included.
struct Assertion {
  std::string text;  ///< as given
  std::string region;
  std::string figure;  ///< key of region_figures()
  std::string op;
  double bound = 0;
  bool percent = false;  ///< the number was said in %
};

/// The Error names the expected form, and the known figures where the name is none.
[[nodiscard]] Result<Assertion> parse_assertion(std::string_view text);

/// Whether an assertion holds, and the line for a person.
struct Verdict {
  bool holds = false;
  std::string message;  ///< `step.mfu>=0.40 does not hold: step.mfu is 0.312`, or `ok step.mfu 0.412 >= 0.4`
};

/// A figure that is unknown does not hold, and the message says why. Error: no such region; names those there are.
[[nodiscard]] Result<Verdict> check(const Assertion& assertion, const Job& job);
/// The same of a change: `-3%` is relative to the figure before, a plain number is a difference in the figure's unit.
[[nodiscard]] Result<Verdict> check_change(const Assertion& assertion, const Job& before, const Job& after);

}  // namespace mfu

// Whether a regular expression can distinguish names that differ in their digits only.
#pragma once

#include <string_view>

namespace mfu {

/// False only where it is certain that no value and no number of digits in a name decides whether `expression` matches:
/// `\d+` or `[0-9]+`, each but the last followed by a letter or a mark, among plain characters, classes without ranges,
/// groups that are not repeated, and `.*`. All else is taken to depend on digits, which costs a miss of the RuleCache
/// per name: with false for every rule, `ProfilerStep#17` and `ProfilerStep#18` share one entry.
[[nodiscard]] bool depends_on_digits(std::string_view expression) noexcept;

}  // namespace mfu

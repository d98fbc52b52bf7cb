// Whether a regular expression can tell names apart that differ in their digits only.
#pragma once

#include <string_view>

namespace mfu {

/// Whether which names an expression matches can depend on the value or the number of their digits. False only for
/// expressions simple enough to be sure: letters and punctuation, groups, alternatives, classes of neither digits nor
/// ranges, `.*`, and `\d+` or `[0-9]+` that no other `\d+` can touch. Everything else is taken to depend on them, which
/// costs a miss of the RuleCache per name and no more: with false for every rule, `ProfilerStep#17` and
/// `ProfilerStep#18` share one entry.
[[nodiscard]] bool depends_on_digits(std::string_view expression) noexcept;

}  // namespace mfu

// How far a word is from the right one, for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace mfu {

/// Insertions, deletions, changes and adjacent swaps between `a` and `b`. O(|a| |b|): for a few dozen characters.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace mfu

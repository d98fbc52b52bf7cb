// The comparisons that assertions and filters are written with.
#pragma once

#include <string_view>

namespace mfu {

/// The comparison that `text` begins with: one of <>=! and perhaps a =.
[[nodiscard]] constexpr std::string_view comparison_at(std::string_view text) noexcept {
  return text.substr(0, text.size() > 1 && text[1] == '=' ? 2 : 1);
}

/// \param op >=, <=, >, <, ==, = or !=.
[[nodiscard]] constexpr bool holds(double value, std::string_view op, double bound) noexcept {
  if (op == "!=") return value != bound;
  return (op.back() == '=' && value == bound) || (op[0] == '<' && value < bound) || (op[0] == '>' && value > bound);
}

}  // namespace mfu

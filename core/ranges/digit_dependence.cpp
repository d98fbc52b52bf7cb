#include "core/ranges/digit_dependence.h"

namespace mfu {
namespace {

constexpr bool is_any_of(char c, std::string_view marks) noexcept { return marks.find(c) != std::string_view::npos; }
constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_word(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
constexpr char at(std::string_view text, std::size_t i) noexcept { return i < text.size() ? text[i] : '\0'; }

/// Digits that end before `rest` cannot touch those of a later `\d+`: there is none, or a plain character comes first.
bool are_apart(std::string_view rest) noexcept {
  if (rest.find("\\d") == rest.npos && rest.find("[0-9]") == rest.npos) return true;
  while (at(rest, 0) == ')') rest.remove_prefix(1);
  if (at(rest, 0) == '\\')
    rest.remove_prefix(1);
  else if (is_any_of(at(rest, 0), std::string_view("([.?*+|{^$\0", 11)))
    return false;
  return !is_any_of(at(rest, 1), "?*") && !is_digit(at(rest, 0)) && at(rest, 0) != 'd';
}

}  // namespace

bool depends_on_digits(std::string_view expression) noexcept {
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const std::string_view here = expression.substr(i);
    const char c = here[0], next = at(here, 1);
    const std::size_t digits = here.starts_with("\\d+") ? 3 : here.starts_with("[0-9]+") ? 6 : 0;
    if (!in_class && digits > 0) {
      if (!are_apart(here.substr(digits))) return true;
      i += digits - 1;
    } else if (c == '\\') {
      if (next == '\0' || is_word(next)) return true;  // \w, \b, \1 ...
      ++i;
    } else if (is_digit(c) || (in_class && is_any_of(c, "-^["))) {
      return true;
    } else if (in_class || c == '[') {
      if (c == '[' && next == ']') return true;
      in_class = c != ']';
    } else if ((c == '.' && next != '*') || (c == ')' && is_any_of(next, "*+")) || is_any_of(c, "^${")) {
      return true;
    } else if (c == '(' && is_any_of(next, "?*") && !here.starts_with("(?:") && !here.starts_with("(?P<")) {
      return true;  // looks ahead or behind, or sets an option
    }
  }
  return false;
}

}  // namespace mfu

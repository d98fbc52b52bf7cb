#include "core/ranges/digit_dependence.h"

#include <array>

namespace mfu {
namespace {

constexpr bool is_word_char(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

bool depends_on_digits(std::string_view expression) noexcept {
  constexpr std::string_view kRepeats = "*+?{";
  std::size_t i = 0;
  const auto next_is = [&](std::string_view text) { return expression.substr(i, text.size()) == text; };
  bool after_digits = false;  // a `\d+` may be what stands right before
  struct Group {
    bool at_open, at_ends;  ///< after_digits where it opened, and after any of its alternatives
  };
  std::array<Group, 32> groups{};  // [0]: the expression itself
  std::size_t depth = 0;
  while (i < expression.size()) {
    const char c = expression[i];
    if (c == '(') {
      if (next_is("(?P<") || next_is("(?<")) {  // a named group; `(?<=` and `(?<!` look behind
        const std::size_t end = expression.find('>', i);
        if (next_is("(?<=") || next_is("(?<!") || end == std::string_view::npos) return true;
        i = end;
      } else if (next_is("(?:")) {
        i += 2;
      } else if (next_is("(?") || next_is("(*")) {
        return true;
      }
      ++i;
      if (++depth == groups.size()) return true;
      groups[depth] = {after_digits, false};
      continue;
    }
    Group& group = groups[depth];
    if (c == '|') {
      ++i;
      group.at_ends = group.at_ends || after_digits;
      after_digits = group.at_open;
      continue;
    }
    if (c == ')') {
      ++i;
      if (depth-- == 0) return true;
      after_digits = after_digits || group.at_ends;
      if (i < expression.size() && (expression[i] == '*' || expression[i] == '+' || expression[i] == '{')) return true;
      if (i < expression.size() && expression[i] == '?') {
        ++i;
        after_digits = after_digits || group.at_open;
        if (i < expression.size() && kRepeats.find(expression[i]) != std::string_view::npos) return true;
      }
      continue;
    }
    std::size_t width = 1;
    bool digits = false;
    if (c == '\\' && next_is("\\d")) {
      digits = true;
      width = 2;
    } else if (c == '[' && next_is("[0-9]")) {
      digits = true;
      width = 5;
    } else if (c == '.' && next_is(".*")) {
      i += 2;
      if (i < expression.size() && kRepeats.find(expression[i]) != std::string_view::npos) return true;
      continue;
    } else if (c == '\\') {
      if (i + 1 >= expression.size() || is_word_char(expression[i + 1])) return true;  // \w, \b, \1 ...
      width = 2;
    } else if (c == '[') {
      std::size_t end = i + 1;
      for (; end < expression.size() && (expression[end] != ']' || end == i + 1); ++end) {
        const char m = expression[end];
        if ((m >= '0' && m <= '9') || m == '-' || m == '[' || m == '^') return true;
        if (m == '\\' && (++end >= expression.size() || is_word_char(expression[end]))) return true;
      }
      if (end >= expression.size()) return true;
      width = end + 1 - i;
    } else if (c == '.' || c == '^' || c == '$' || c == '{' || (c >= '0' && c <= '9')) {
      return true;
    }
    i += width;
    const char repeat = i < expression.size() ? expression[i] : '\0';
    if (repeat == '{') return true;
    const bool repeated = repeat == '*' || repeat == '+' || repeat == '?';
    if (repeated) ++i;
    if (repeated && i < expression.size() && kRepeats.find(expression[i]) != std::string_view::npos) return true;
    if (digits) {
      if (repeat != '+' || after_digits) return true;
      after_digits = true;
    } else if (repeat != '*' && repeat != '?') {
      after_digits = false;  // something that is no digit stands in between for certain
    }
  }
  return false;
}

}  // namespace mfu

// Text from outside, made fit for a terminal, a table or a label.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mfu {

/// At most `max_bytes` of `text` as valid UTF-8 without anything that a terminal obeys or that turns the text beside
/// it: control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls and bytes that are no
/// UTF-8 become `?`, one for each byte. Never cut inside a character.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes = std::string_view::npos);

/// The same for several lines: `\n` stays.
[[nodiscard]] std::string printable_lines(std::string_view text);

/// Without the blanks and line ends around it.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text) noexcept {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// The pieces between blanks and line ends.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text);

/// With small letters for the capitals of ASCII; other bytes as they are.
[[nodiscard]] std::string lower_case(std::string_view text);

/// Columns that `text` takes (valid UTF-8; every character counts as one).
[[nodiscard]] std::size_t columns(std::string_view text) noexcept;

/// `sentence` in lines of at most `width` columns, broken at spaces; a longer word has its own line. Empty: none.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view sentence, std::size_t width);

}  // namespace mfu

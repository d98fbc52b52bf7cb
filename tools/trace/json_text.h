// Tokens of JSON as the text has them, read without building a document.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/activity_record.h"
#include "core/base/printable.h"

namespace mfu {

[[nodiscard]] inline bool is_json_space(char c) noexcept { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The text between the quotes of a string token, escapes as written; any other token as it is.
[[nodiscard]] std::string_view unquoted(std::string_view token) noexcept;
/// A JSON string from the text between its quotes. An invalid string stays as written.
[[nodiscard]] std::string unescape(std::string_view raw);

/// Damage that writers have been seen to do to a text.
struct SpoiltText {
  std::uint64_t bytes_not_utf8 = 0;
  std::uint64_t control_characters = 0;
};
/// Makes `text` valid JSON again: bytes that are no UTF-8 become `?`, control characters blanks. Lengths stay, so that
/// offsets do. `text` has simdjson's padding behind it.
SpoiltText mend_json(std::span<char> text) noexcept;

/// The integer that the whole token is, with or without quotes.
template <typename Integer>
[[nodiscard]] std::optional<Integer> parse_integer(std::string_view token) noexcept {
  token = unquoted(token);
  Integer value{};
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc{} || end != token.data() + token.size()) return std::nullopt;
  return value;
}

/// A word in quotes as the figures name threads: `'19392'`.
[[nodiscard]] std::string quoted_word(std::string_view word);

/// `[x,y,z]`; all zero where that is not what it is.
[[nodiscard]] Grid parse_grid(std::string_view token) noexcept;
/// A correlation id: 64 bits, signed or not. False: no integer.
[[nodiscard]] bool parse_id(std::string_view token, std::uint64_t& id) noexcept;

}  // namespace mfu

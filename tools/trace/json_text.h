// Tokens of JSON as they stand in the text: what is in them without building a document.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/activity_record.h"

namespace mfu {

[[nodiscard]] inline bool is_json_space(char c) noexcept { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Without the white space behind it.
[[nodiscard]] std::string_view trimmed(std::string_view token) noexcept;
/// What stands between the quotes of a string token, escapes as written; any other token as it is.
[[nodiscard]] std::string_view unquoted(std::string_view token) noexcept;
/// Text of a JSON string from what stands between its quotes. What is no valid string stays as written.
[[nodiscard]] std::string unescape(std::string_view raw);

/// The integer that the whole token is, with or without quotes.
template <typename Integer>
[[nodiscard]] std::optional<Integer> parse_integer(std::string_view token) noexcept {
  token = unquoted(token);
  Integer value{};
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc{} || end != token.data() + token.size()) return std::nullopt;
  return value;
}

/// `[x,y,z]`; all zero where that is not what it is.
[[nodiscard]] Grid parse_grid(std::string_view token) noexcept;
/// A correlation id: 64 bits, signed or not. False: no integer.
[[nodiscard]] bool parse_id(std::string_view token, std::uint64_t& id) noexcept;

}  // namespace mfu

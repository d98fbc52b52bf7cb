#include "tools/trace/json_text.h"

#include <simdjson.h>

#include <array>

namespace mfu {

std::string_view unquoted(std::string_view token) noexcept {
  return token.size() >= 2 && token.front() == '"' ? token.substr(1, token.size() - 2) : token;
}

std::string unescape(std::string_view raw) {
  if (raw.find('\\') == std::string_view::npos) return std::string(raw);
  const std::string quoted = "\"" + std::string(raw) + "\"";
  thread_local simdjson::dom::parser parser;  // its memory is worth keeping
  std::string_view text;
  if (parser.parse(simdjson::padded_string(quoted)).get(text) != simdjson::SUCCESS) return std::string(raw);
  return std::string(text);
}

SpoiltText mend_json(std::span<char> text) noexcept {
  SpoiltText spoilt;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) {
      if (c < 0x20 && !is_json_space(text[i])) ++spoilt.control_characters;
      if (c < 0x20) text[i] = ' ';
      ++i;
      continue;
    }
    const std::size_t size = c >= 0xF0 ? 4 : (c >= 0xE0 ? 3 : 2);
    if (i + size <= text.size() && simdjson::validate_utf8(text.data() + i, size)) {
      i += size;
    } else {
      text[i] = '?';
      ++spoilt.bytes_not_utf8;
      ++i;
    }
  }
  return spoilt;
}

std::string quoted_word(std::string_view word) {
  const char quote = word.find('\'') != word.npos && word.find('"') == word.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : word) {
    if (c == quote || c == '\\') out += '\\';
    out += c;
  }
  return out + quote;
}

Grid parse_grid(std::string_view token) noexcept {
  std::array<std::uint32_t, 3> sides{};
  if (token.empty() || token.front() != '[') return {};
  const char* at = token.data() + 1;
  const char* const end = token.data() + token.size();
  for (std::size_t i = 0; i < sides.size(); ++i) {
    while (at != end && is_json_space(*at)) ++at;
    const auto [rest, error] = std::from_chars(at, end, sides[i]);
    if (error != std::errc{}) return {};
    at = rest;
    while (at != end && is_json_space(*at)) ++at;
    if (at == end || *at++ != (i + 1 == sides.size() ? ']' : ',')) return {};
  }
  return {sides[0], sides[1], sides[2]};
}

bool parse_id(std::string_view token, std::uint64_t& id) noexcept {
  if (const auto small = parse_integer<std::int64_t>(token)) {
    id = static_cast<std::uint64_t>(*small);
    return true;
  }
  const auto large = parse_integer<std::uint64_t>(token);
  id = large.value_or(0);
  return large.has_value();
}

}  // namespace mfu

#include "tools/report/escape.h"

#include <charconv>

#include "core/base/printable.h"

namespace mfu {

std::string markdown_text(std::string_view text) {
  const auto letter = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string plain(text);
  for (char& c : plain)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  plain = printable(plain);
  std::string out;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const char c = plain[i];
    // A word's own underscores are text, and `#` is a heading at the beginning only.
    const bool inside = i != 0 && i + 1 < plain.size() && letter(plain[i - 1]) && letter(plain[i + 1]);
    if (std::string_view("\\`*{}[]<>|~&").find(c) != std::string_view::npos || (c == '_' && !inside) ||
        (c == '#' && i == 0))
      out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

std::string file_name(std::string_view path) { return std::string(path.substr(path.find_last_of('/') + 1)); }

namespace {

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string csv_text(std::string_view raw) {
  std::string text = printable(raw);
  constexpr std::string_view kFormulas = "=+-@";
  if (!text.empty() && kFormulas.find(text.front()) != std::string_view::npos && !is_number(text)) text.insert(0, "'");
  if (text.find_first_of("\",") == std::string_view::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  return out + "\"";
}

}  // namespace mfu

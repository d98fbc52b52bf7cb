#include "tools/report/escape.h"

namespace mfu {

std::string terminal_text(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) c = '?';
  return out;
}

std::string markdown_text(std::string_view text) {
  const auto letter = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // A word's own underscores are text, and `#` is a heading at the beginning only.
    const bool inside = i != 0 && i + 1 < text.size() && letter(text[i - 1]) && letter(text[i + 1]);
    if (std::string_view("\\`*{}[]<>|~").find(c) != std::string_view::npos || (c == '_' && !inside) ||
        (c == '#' && i == 0))
      out.push_back('\\');
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c);
  }
  return out;
}

std::string file_name(std::string_view path) { return std::string(path.substr(path.find_last_of('/') + 1)); }

std::string csv_text(std::string_view text) {
  if (text.find_first_of("\",\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  return out + "\"";
}

}  // namespace mfu

#include "core/base/say.h"

namespace mfu {

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@%=";
  const std::string path = (text.starts_with('-') ? "./" : "") + std::string(text);
  if (!path.empty() && path.find_first_not_of(kPlain) == std::string::npos) return path;
  const bool escapes = printable(path) != path;
  std::string word = escapes ? "$'" : "'";
  for (const char c : path) {
    const bool safe = kPlain.find(c) != std::string_view::npos || c == ' ';
    if (escapes)
      word += safe ? std::string(1, c) : fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    else
      word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

}  // namespace mfu

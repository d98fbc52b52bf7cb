// How the command prints: a terminal obeys what it is sent, and names, arguments and files may be a stranger's.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/printable.h"

namespace mfu {

/// A value of several lines, whose line ends stay.
struct Lines {
  std::string text;
};

template <class T>
auto plain_value(const T& value) {
  if constexpr (std::is_same_v<T, Lines>)
    return printable_lines(value.text);
  else if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return printable(value);
  else
    return value;
}
template <class... Values>
using PlainFormat = fmt::format_string<decltype(plain_value(std::declval<const Values&>()))...>;

/// Prints `format`, which is our text, on `to`. Texts among `values` are made printable first, their line ends too:
/// none of them begins a line.
template <class... Values>
void say(std::FILE* to, PlainFormat<Values...> format, const Values&... values) {
  const std::string text = fmt::format(format, plain_value(values)...);
  (void)std::fwrite(text.data(), 1, text.size(), to);
}
/// The same on stdout.
template <class... Values>
void say(PlainFormat<Values...> format, const Values&... values) {
  say<Values...>(stdout, format, values...);
}

/// `mfu COMMAND: MESSAGE` on stderr, one line. \return `code`
inline int say_error(std::string_view command, std::string_view message, int code = 1) {
  say(stderr, "mfu {}: {}\n", command, message);
  return code;
}

/// `text` as a shell reads it back as one word, all of it printable: as it is, in quotes, or with escapes in `$'...'`,
/// which bash, zsh and ksh know. One that begins with `-` gets a `./` before it: it is meant as a path.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace mfu

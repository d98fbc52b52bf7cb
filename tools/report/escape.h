// Names from files, made safe for the format that they go into.
#pragma once

#include <string>
#include <string_view>

namespace mfu {

/// Text that came from a file, for a cell of a Markdown table: no pipe, no newline, no markup.
[[nodiscard]] std::string markdown_text(std::string_view text);
/// The part behind the last `/`.
[[nodiscard]] std::string file_name(std::string_view path);
/// For a field of CSV: printable, in quotes where RFC 4180 asks for them. A text that a spreadsheet would take for a
/// formula (it begins with `=`, `+`, `-` or `@` and is no number) gets a `'` before it.
[[nodiscard]] std::string csv_text(std::string_view text);

}  // namespace mfu

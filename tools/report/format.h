// Figures as people read them, and names as a format may carry them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/units.h"

namespace mfu {

/// `40.2 %`, or `-` where unknown.
[[nodiscard]] std::string percent_text(const std::optional<double>& ratio);
/// `+1.3` percentage points of a difference of ratios, or `-`.
[[nodiscard]] std::string points_text(const std::optional<double>& difference);
/// `33.3 ms`, three significant digits, or `-`.
[[nodiscard]] std::string duration_text(const std::optional<double>& s);
/// `989 TFLOP/s`: three significant digits and a decimal prefix before `unit`, or `-`.
[[nodiscard]] std::string scaled_text(const std::optional<double>& value, std::string_view unit);
/// `2026-11-21 19:45:32 UTC`.
[[nodiscard]] std::string utc_text(TimeNs t_ns);

/// Lines for a terminal: names in them came from files, so control characters other than newlines become `?`.
[[nodiscard]] std::string terminal_text(std::string_view text);
/// Text that came from a file, for a cell of a Markdown table: no pipe, no newline, no markup.
[[nodiscard]] std::string markdown_text(std::string_view text);
/// What comes behind the last `/`.
[[nodiscard]] std::string file_name(std::string_view path);
/// For a field of CSV: in quotes where RFC 4180 asks for them.
[[nodiscard]] std::string csv_text(std::string_view text);

}  // namespace mfu

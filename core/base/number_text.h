// Numbers as people read them: three significant digits, a space before the unit, `-` where unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/units.h"

namespace mfu {

/// Rounding of the inputs (nanoseconds, published peaks to four digits) takes no ratio beyond this.
inline constexpr double kMostRatio = 1.001;
/// Whether a ratio can be true: 0..1, up to rounding.
[[nodiscard]] constexpr bool is_possible(double ratio) noexcept { return ratio >= -1e-9 && ratio <= kMostRatio; }
/// The ratio; none where it cannot be true.
[[nodiscard]] inline std::optional<double> possible(const std::optional<double>& ratio) noexcept {
  return ratio && is_possible(*ratio) ? ratio : std::nullopt;
}
/// `40.2 %` of a ratio 0..1; `suspect` in place of one that cannot be true.
[[nodiscard]] std::string percent_text(const std::optional<double>& ratio, std::string_view unit = " %");
/// The same, or the bound from below where the ratio is unknown, never rounded up: `>= 37.1 %`, and below 0.1 % with
/// two decimals, `>= 0.09 %`.
[[nodiscard]] std::string percent_text(const std::optional<double>& ratio, const std::optional<double>& lower,
                                       std::string_view unit = " %");
/// `+1.3` percentage points of a difference of ratios.
[[nodiscard]] std::string points_text(const std::optional<double>& difference);
/// `502 µs`, `33.3 ms`, `12 s`, `2.01 min`, `57 days`.
[[nodiscard]] std::string duration_text(const std::optional<double>& s);
/// `989 TFLOP/s`: a decimal prefix before `unit`.
[[nodiscard]] std::string scaled_text(const std::optional<double>& value, std::string_view unit);
/// `8.19 B` parameters or `1.74 T` tokens: thousands, millions, billions, trillions.
[[nodiscard]] std::string count_text(const std::optional<double>& value);
/// `1.73M`: the form of the log's `key=value` words, without a space.
[[nodiscard]] std::string compact_text(double value);
/// `1,516`.
[[nodiscard]] std::string grouped(std::uint64_t number);
/// The number that `7e9`, `7B`, `1.4T`, `500k` or `8.19 B` mean; nothing else is one.
[[nodiscard]] std::optional<double> parse_count(std::string_view text);
/// All of `text` as a decimal number that is finite, in any locale of the process; nothing else is one.
[[nodiscard]] std::optional<double> parse_number(std::string_view text);
/// All of `text` as decimal digits, at most 2^40: a count that a person or a launcher gives; nothing else is one.
[[nodiscard]] std::optional<std::int64_t> parse_whole_number(std::string_view text);
/// Names in the order of the numbers in them: `node2` before `node10`.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);
/// `2026-11-21 19:45:32 UTC`.
[[nodiscard]] std::string utc_text(TimeNs t_ns);

}  // namespace mfu

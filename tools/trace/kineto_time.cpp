// Times as a Kineto trace writes them.
#include <charconv>
#include <limits>

#include "tools/trace/kineto.h"

namespace mfu {

std::optional<TimeNs> parse_us_as_ns(std::string_view number) noexcept {
  std::size_t at = 0;
  const bool negative = !number.empty() && number[0] == '-';
  if (negative) ++at;
  std::uint64_t digits = 0;
  int shown = 0;     // digits seen, leading zeros too
  int exponent = 3;  // of ten, for `digits`: microseconds to ns
  bool fraction = false;
  bool round_up = false;
  bool dropped = false;
  for (; at < number.size(); ++at) {
    const char c = number[at];
    if (c == '.' && !fraction) {
      fraction = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    ++shown;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (dropped || digits > (std::numeric_limits<std::uint64_t>::max() - 9) / 10) {
      if (!dropped) round_up = digit >= 5;
      dropped = true;
      if (!fraction) ++exponent;
      continue;
    }
    digits = digits * 10 + digit;
    if (fraction) --exponent;
  }
  if (shown == 0) return std::nullopt;
  if (at < number.size()) {
    if (number[at] != 'e' && number[at] != 'E') return std::nullopt;
    ++at;
    if (at < number.size() && number[at] == '+') ++at;
    int given = 0;
    const auto [end, error] = std::from_chars(number.data() + at, number.data() + number.size(), given);
    if (error != std::errc{} || end != number.data() + number.size() || given > 1000 || given < -1000)
      return std::nullopt;
    exponent += given;
  }
  if (digits == 0) return 0;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(digits, std::uint64_t{10}, &digits)) return std::nullopt;
  for (; exponent < 0 && digits != 0; ++exponent) {
    round_up = digits % 10 >= 5;
    digits /= 10;
  }
  if (exponent < 0) round_up = false;
  if (round_up) ++digits;
  if (digits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  const auto value = static_cast<std::int64_t>(digits);
  return negative ? -value : value;
}

}  // namespace mfu

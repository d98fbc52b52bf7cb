#include "core/base/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <utility>

namespace mfu {
namespace {

/// Three significant digits, none beyond them; a number too large to be read has an exponent.
std::string three_digits(double value) {
  const double size = std::fabs(value);
  if (size < 0.005) value = size;  // no negative zero
  if (!(size < 999'999.5)) return fmt::format("{:.3g}", value);
  // 2 ms that were worked out are 1.99999: a whole number all the same.
  const bool whole = std::fabs(value - std::round(value)) <= 1e-4 * size;
  return fmt::format("{:.{}f}", value, size >= 99.95 || whole ? 0 : size >= 9.995 ? 1 : 2);
}

struct Scaled {
  double value;
  std::string_view prefix;
};

template <std::size_t count>
Scaled scaled(double value, const std::array<std::string_view, count>& prefixes) {
  std::size_t i = 0;
  while (std::fabs(value) >= 999.5 && i + 1 < count) {
    value /= 1000;
    ++i;
  }
  return {value, prefixes[i]};
}

constexpr std::array<std::string_view, 9> kDecimal{"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
constexpr std::array<std::string_view, 5> kCounting{"", "K", "M", "B", "T"};

}  // namespace

std::string percent_text(const std::optional<double>& ratio, std::string_view unit) {
  if (!ratio) return "-";
  return is_possible(*ratio) ? fmt::format("{:.1f}{}", 100 * std::clamp(*ratio, 0.0, 1.0) + 0.0, unit) : "suspect";
}

std::string percent_text(const std::optional<double>& ratio, const std::optional<double>& lower,
                         std::string_view unit) {
  if (ratio || !lower || !is_possible(*lower)) return percent_text(ratio ? ratio : lower, unit);
  const double bound = std::min(*lower, 1.0), tenths = std::floor(bound * 1000);
  const bool small = tenths <= 0 && bound > 0;
  return fmt::format(">={}{:.{}f}{}", unit.starts_with(' ') ? " " : "",
                     small ? std::floor(bound * 10'000) / 100 : std::max(0.0, tenths) / 10, small ? 2 : 1, unit);
}

std::string points_text(const std::optional<double>& difference) {
  if (!difference) return "-";
  const double points = std::round(*difference * 1000) / 10;
  return points == 0 ? "0.0" : fmt::format("{:+.1f}", points);
}

std::string duration_text(const std::optional<double>& s) {
  if (!s) return "-";
  if (std::fabs(*s) < 5e-12) return "0 s";
  if (*s >= 48 * 3600) return three_digits(*s / 86400) + " days";
  if (*s >= 7200) return three_digits(*s / 3600) + " h";
  if (*s >= 120) return three_digits(*s / 60) + " min";
  if (*s >= 0.9995) return three_digits(*s) + " s";
  if (*s >= 0.9995e-3) return three_digits(*s * 1e3) + " ms";
  if (*s >= 0.9995e-6) return three_digits(*s * 1e6) + " µs";
  return three_digits(*s * 1e9) + " ns";
}

std::string scaled_text(const std::optional<double>& value, std::string_view unit) {
  if (!value) return "-";
  const Scaled s = scaled(*value, kDecimal);
  return fmt::format("{} {}{}", three_digits(s.value), s.prefix, unit);
}

std::string count_text(const std::optional<double>& value) {
  if (!value) return "-";
  const Scaled s = scaled(*value, kCounting);
  return three_digits(s.value) + (s.prefix.empty() ? "" : " ") + std::string(s.prefix);
}

std::string compact_text(double value) {
  const Scaled s = scaled(value, kDecimal);
  return three_digits(s.value) + std::string(s.prefix);
}

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::optional<double> parse_count(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) return value;
  if (unit == "K" || unit == "k") return value * 1e3;
  if (unit == "M") return value * 1e6;
  if (unit == "B" || unit == "G") return value * 1e9;
  if (unit == "T") return value * 1e12;
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > std::int64_t{1} << 40)
    return std::nullopt;
  return value;
}

bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const auto number = [&digit](std::string_view text, std::size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const std::size_t begin = at;
        while (at < text.size() && digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view x = number(a, i), y = number(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  return std::pair(a.size() - i, a) < std::pair(b.size() - j, b);
}

std::string utc_text(TimeNs t_ns) {
  const std::time_t s = static_cast<std::time_t>(t_ns / kNsPerSecond);
  std::tm parts{};
  if (::gmtime_r(&s, &parts) == nullptr) return "-";
  char text[40];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts) != 0 ? text : "-";
}

}  // namespace mfu

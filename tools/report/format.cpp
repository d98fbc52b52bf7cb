#include "tools/report/format.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <iterator>

namespace mfu {

namespace {

/// Three significant digits, none beyond them.
std::string three_digits(double value) {
  const double size = std::fabs(value);
  return fmt::format("{:.{}f}", value, size >= 99.95 || value == std::floor(value) ? 0 : size >= 9.995 ? 1 : 2);
}

}  // namespace

std::string percent_text(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.1f} %", *ratio * 100) : "-";
}

std::string points_text(const std::optional<double>& difference) {
  if (!difference) return "-";
  const double points = std::round(*difference * 1000) / 10;
  return points == 0 ? "0.0" : fmt::format("{:+.1f}", points);
}

std::string duration_text(const std::optional<double>& s) {
  if (!s) return "-";
  if (*s == 0) return "0 s";
  if (*s >= 7200) return fmt::format("{} h", three_digits(*s / 3600));
  if (*s >= 120) return fmt::format("{} min", three_digits(*s / 60));
  if (*s >= 0.9995) return fmt::format("{} s", three_digits(*s));
  if (*s >= 0.9995e-3) return fmt::format("{} ms", three_digits(*s * 1e3));
  return fmt::format("{} us", three_digits(*s * 1e6));
}

std::string scaled_text(const std::optional<double>& value, std::string_view unit) {
  if (!value) return "-";
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  double scaled = *value;
  std::size_t i = 0;
  while (std::fabs(scaled) >= 999.5 && i + 1 < std::size(kPrefixes)) {
    scaled /= 1000;
    ++i;
  }
  return fmt::format("{} {}{}", three_digits(scaled), kPrefixes[i], unit);
}

std::string utc_text(TimeNs t_ns) {
  const std::time_t s = static_cast<std::time_t>(t_ns / kNsPerSecond);
  std::tm parts{};
  if (::gmtime_r(&s, &parts) == nullptr) return "-";
  char text[40];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts) != 0 ? text : "-";
}

std::string terminal_text(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) c = '?';
  return out;
}

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_{}[]<>()#|~!").find(c) != std::string_view::npos) out.push_back('\\');
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

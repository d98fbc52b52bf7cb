#include "tools/report/assertion.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/rows/metrics.h"
#include "tools/job/comparison.h"
#include "tools/job/region_figures.h"

namespace mfu {
namespace {

/// `0.40`, `40%`, `1.5 ms`; none: not that.
std::optional<double> bound_of(std::string_view text, bool time, bool& percent) {
  double scale = 1;
  percent = text.ends_with('%');
  const auto ends = [&text](std::string_view suffix) {
    if (!text.ends_with(suffix)) return false;
    text = trimmed(text.substr(0, text.size() - suffix.size()));
    return true;
  };
  if (ends("%"))
    scale = 0.01;
  else if (time && (ends("ms")))
    scale = 1e-3;
  else if (time && (ends("us")))
    scale = 1e-6;
  else if (time && (ends("ns")))
    scale = 1e-9;
  else if (time)
    ends("s");
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || text.empty() || !std::isfinite(value))
    return std::nullopt;
  return value * scale;
}

/// The region of that name, or an Error that lists those there are.
Result<const JobRegion*> region_of(const Assertion& a, const Job& job) {
  if (const JobRegion* region = job.find(a.region)) return region;
  std::string names;
  for (const JobRegion& r : job.regions) names += (names.empty() ? "" : ", ") + r.name;
  return Error{fmt::format("--assert '{}': no region '{}'; there are {}", a.text, a.region, names)};
}

/// Whether the figure is a ratio of 0..1 and the value is not.
bool cannot_be(const Assertion& a, const std::optional<double>& value) {
  return value && find_figure(a.figure)->unit == Unit::kRatio && a.figure != "clock_ratio" && !is_possible(*value);
}

std::string known_figures() {
  std::string text;
  for (const RegionFigure& figure : region_figures()) text += fmt::format("{}{}", text.empty() ? "" : ", ", figure.key);
  return text;
}

}  // namespace

Result<Assertion> parse_assertion(std::string_view text) {
  Assertion a;
  a.text = std::string(text);
  const auto wrong = [&](std::string_view what) {
    return Error{fmt::format("--assert '{}': {}; expected REGION.FIGURE>=NUMBER, as in 'step.mfu>=0.40'", text, what)};
  };
  const std::size_t at = text.find_first_of("<>=!");
  if (at == std::string_view::npos) return wrong("no >=, <=, >, <, == or != in it");
  a.op = comparison_at(text.substr(at));
  if (a.op == "=" || a.op == "!") return wrong(fmt::format("'{}' is no comparison", a.op));
  const std::string_view left = trimmed(text.substr(0, at));
  const std::string_view right = trimmed(text.substr(at + a.op.size()));
  if (left.find('.') == std::string_view::npos) return wrong(fmt::format("'{}' is no REGION.FIGURE", left));
  // Regions may have dots, and so have figures: the longest figure that fits is meant.
  for (std::size_t dot = left.find('.'); dot != std::string_view::npos && a.figure.empty();
       dot = left.find('.', dot + 1)) {
    const RegionFigure* figure = find_figure(left.substr(dot + 1));
    if (figure == nullptr || dot == 0) continue;
    a.region = std::string(left.substr(0, dot));
    a.figure = figure->key;
  }
  if (a.figure.empty())
    return Error{fmt::format("--assert '{}': '{}' ends in no figure; there are {}", text, left, known_figures())};
  const auto bound = bound_of(right, find_figure(a.figure)->unit == Unit::kSeconds, a.percent);
  if (!bound) return wrong(fmt::format("'{}' is no number", right));
  a.bound = *bound;
  return a;
}

Result<Verdict> check(const Assertion& a, const Job& job) {
  const auto found = region_of(a, job);
  if (!found) return found.error();
  const JobRegion* region = *found;
  const std::optional<double> value = find_figure(a.figure)->of(*region);
  const std::string name = a.region + "." + a.figure;
  if (cannot_be(a, value))
    return Verdict{false, fmt::format("{} does not hold: {} is suspect: {}", a.text, name, region->sum().suspect)};
  // In the form in which the bound is given.
  const auto shown = [&a](double v) { return a.percent ? fmt::format("{:.6g} %", 100 * v) : fmt::format("{:.6g}", v); };
  if (value && holds(*value, a.op, a.bound))
    return Verdict{true, fmt::format("ok {} {} {} {}", name, shown(*value), a.op, shown(a.bound))};
  if (value) return Verdict{false, fmt::format("{} does not hold: {} is {}", a.text, name, shown(*value))};
  std::string why = region->why_no_mfu;
  if (!region->sum().classes_known && (why.empty() || a.figure.starts_with("lost.") || a.figure.starts_with("time_s.")))
    why = why_no_times(region->sum());
  else if (a.figure.starts_with("latency.") || a.figure == "each_s")
    why = "no instance of it ended";
  else if (a.figure.starts_with("inter_token_s.") || a.figure == "after_prefill")
    why = "nothing in it decodes";
  else if (a.figure.starts_with("prefill_to_decode_s."))
    why = "no prefill ended before an instance of it that decodes";
  else if (a.figure == "mbu" || a.figure == "bytes" || a.figure == "roofline_s")
    why = "the bytes that it must move are not known (training has no agreed ones), or the bandwidth is not";
  else if (a.figure == "tokens_per_s")
    why = "it has no tokens";
  else if (a.figure == "clock_ratio")
    why = "the clock was not read";
  return Verdict{false, fmt::format("{} does not hold: {} is unknown{}", a.text, name, why.empty() ? "" : ": " + why)};
}

Result<Verdict> check_change(const Assertion& a, const Job& before, const Job& after) {
  std::array<std::optional<double>, 2> values;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto region = region_of(a, i == 0 ? before : after);
    if (!region) return region.error();
    values[i] = find_figure(a.figure)->of(**region);
  }
  const std::string name = a.region + "." + a.figure;
  for (std::size_t i = 0; i < 2; ++i)
    if (!values[i])
      return Verdict{false, fmt::format("{} does not hold: {} is unknown in {}", a.text, name, i == 0 ? "A" : "B")};
  for (std::size_t i = 0; i < 2; ++i)
    if (cannot_be(a, values[i]))
      return Verdict{false, fmt::format("{} does not hold: {} is suspect in {}", a.text, name, i == 0 ? "A" : "B")};
  if (a.percent && *values[0] == 0)
    return Verdict{false,
                   fmt::format("{} does not hold: {} is 0 in A, so that no change in % can be said", a.text, name)};
  const double change = a.percent ? *values[1] / *values[0] - 1 : *values[1] - *values[0];
  const std::string shown = a.percent ? fmt::format("{:+.2f} %", 100 * change) : fmt::format("{:+.6g}", change);
  const std::string bound = a.percent ? fmt::format("{:+.6g} %", 100 * a.bound) : fmt::format("{:+.6g}", a.bound);
  if (holds(change, a.op, a.bound))
    return Verdict{true,
                   fmt::format("ok {} {} {} {}: {:.6g} to {:.6g}", name, shown, a.op, bound, *values[0], *values[1])};
  return Verdict{false, fmt::format("{} does not hold: {} went from {:.6g} to {:.6g}, {}", a.text, name, *values[0],
                                    *values[1], shown)};
}

}  // namespace mfu

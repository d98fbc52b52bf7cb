#include "core/rows/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/number_text.h"
#include "core/rows/metrics.h"

namespace mfu {
namespace {

struct Layer {
  std::uint32_t number = 0;
  double each_s = 0;
};

/// The layers of one pass on one device.
struct Strip {
  std::string of;
  std::vector<Layer> layers;
  DurationNs elapsed_ns = 0, ideal_ns = 0;
  bool executed = true;  ///< known of all of them
};

std::string line_of(Strip& strip) {
  std::sort(strip.layers.begin(), strip.layers.end(), [](auto& a, auto& b) { return a.each_s < b.each_s; });
  const Layer& slowest = strip.layers.back();
  const double median = strip.layers[strip.layers.size() / 2].each_s;
  std::string text = fmt::format("layers of {}: {}, each {}", strip.of, strip.layers.size(), duration_text(median));
  if (strip.executed && strip.elapsed_ns > 0)
    text += " HFU " + percent_text(static_cast<double>(strip.ideal_ns) / static_cast<double>(strip.elapsed_ns), "%");
  return text + fmt::format("; slowest layer {}: {} ({:.2f} of the median)", slowest.number,
                            duration_text(slowest.each_s), median > 0 ? slowest.each_s / median : 1);
}

}  // namespace

std::optional<LayerName> layer_name(std::string_view region) noexcept {
  constexpr std::string_view kLayer = "layer ", kOutside = "outside of layers";
  LayerName name;
  if (region.starts_with(kOutside)) {
    region.remove_prefix(kOutside.size());
  } else if (region.starts_with(kLayer)) {
    std::uint32_t number = 0;
    const char* const end = region.data() + region.size();
    const auto [rest, error] = std::from_chars(region.data() + kLayer.size(), end, number);
    if (error != std::errc()) return std::nullopt;
    name.layer = number;
    region.remove_prefix(static_cast<std::size_t>(rest - region.data()));
  } else {
    return std::nullopt;
  }
  if (!region.empty() && region.front() != ' ') return std::nullopt;
  name.pass = region.empty() ? "forward" : region.substr(1);
  return name;
}

std::vector<std::string> layer_lines(const std::vector<RegionSummary>& rows) {
  std::vector<Strip> strips;
  for (const RegionSummary& row : rows) {
    const std::optional<LayerName> name = layer_name(row.region);
    if (!name || !name->layer || row.instances == 0) continue;
    const std::string of = row.device ? fmt::format("{}@gpu{}", name->pass, *row.device) : std::string(name->pass);
    auto found = std::ranges::find(strips, of, &Strip::of);
    Strip& strip = found != strips.end() ? *found : strips.emplace_back();
    if (strip.of.empty()) strip.of = of;
    const double mean = seconds(row.elapsed_ns) / static_cast<double>(row.instances);
    strip.layers.push_back({*name->layer, row.latency.count != 0 ? seconds(row.latency.p50_ns) : mean});
    strip.elapsed_ns += row.elapsed_ns;
    strip.executed = strip.executed && row.executed && row.executed->enough();
    if (row.executed) strip.ideal_ns += row.executed->ideal_ns;
  }
  std::vector<std::string> lines;
  for (Strip& strip : strips) lines.push_back(line_of(strip));
  return lines;
}

}  // namespace mfu

#include "core/sinks/component_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/number_text.h"
#include "core/rows/region_fields.h"

namespace mfu {
namespace {

/// Whole percents, rounded down: 100 only where all is seen.
int whole_percent(double ratio) { return static_cast<int>(std::floor(ratio * 100 + 1e-9)); }

}  // namespace

std::string executed_text(const RegionSummary& r) {
  if (!r.executed) return "";
  // A figure of the smaller part would be read as one of the whole; the run directory and the components have it.
  if (!r.executed->enough() || !r.hfu || !is_possible(*r.hfu)) return "";
  return fmt::format("HFU {} (of {}% seen)", percent_text(r.hfu, "%"), whole_percent(r.executed->coverage()));
}

std::string flop_text(const RegionSummary& r) {
  if (!r.executed || r.executed->coverage() < ExecutedWork::kEnough) return "";  // likewise
  const ExecutedWork& e = *r.executed;
  std::string text = r.flop && *r.flop > 0 ? scaled_text(r.flop, "FLOP") + " by the model, " : "";
  text +=
      fmt::format("{} asked for in {}% of the matmul time", scaled_text(e.flop, "FLOP"), whole_percent(e.coverage()));
  if (e.tile_flop > 0)
    text += fmt::format(", {} in the tiles of {}%", scaled_text(e.tile_flop, "FLOP"),
                        whole_percent(seconds(e.tiled_ns) / seconds(e.matmul_ns)));
  return text;
}

std::string energy_text(const RegionSummary& r, bool more) {
  if (!r.energy || (!r.joules_per_token && !more)) return "";
  const Energy& e = *r.energy;
  std::string text =
      r.joules_per_token ? fmt::format("{:.3g} J/tok", *r.joules_per_token) : fmt::format("{:.4g} J", e.joules);
  if (!more) return text;
  text += fmt::format(" +-{:.2g} %{}", 100 * e.error / e.joules, e.method == EnergyMethod::kFit ? " by a fit" : "");
  if (r.joules_per_output_token && e.output_tokens != e.tokens)
    text += fmt::format(", {:.3g} J per output token", *r.joules_per_output_token);
  if (e.idle_w) text += fmt::format(", idle {:.0f} W", *e.idle_w);
  return text;
}

std::string component_lines(const RegionSummary& r) {
  std::string text;
  const double elapsed_s = seconds(r.elapsed_ns);
  if (!(elapsed_s > 0)) return text;
  std::size_t widest = 0;
  for (const Component& c : r.components)
    widest = std::max(widest, c.name.size() + (c.pass.empty() ? 0 : c.pass.size() + 1));
  for (const Component& c : r.components) {
    const double share = seconds(c.time_ns) / elapsed_s;  // kernels side by side take more time than there is
    text += fmt::format("  {:<{}} {:>6} of time", c.pass.empty() ? c.name : c.name + " " + c.pass,
                        std::min<std::size_t>(widest, 40), share > 1 ? ">100%" : percent_text(share, "%"));
    if (c.flop_per_s) text += fmt::format(" {:>13}", scaled_text(c.flop_per_s, "FLOP/s"));
    if (c.of_peak) text += fmt::format(" {:>6} of peak", percent_text(c.of_peak, "%"));
    if (c.bound != Bound::kUnknown) text += fmt::format(" {}", word(c.bound));
    if (c.calls != 0) text += fmt::format(" calls={}", c.calls);
    if (c.shapes > 1) text += fmt::format(" sizes={}", c.shapes);
    if (const double lost = share * (1 - c.of_peak.value_or(1)); lost > 0 && lost <= 1)
      text += " loses " + percent_text(lost, "%");
    text += "\n";
  }
  return text;
}

std::string gemm_loss_parts(const RegionSummary& r, std::size_t most) {
  if (!r.gemm_loss) return "";
  std::vector<std::pair<double, std::string_view>> parts;
  for_each_field<GemmLoss>([&](const auto& field) {
    if (field.key != "not_split") parts.emplace_back(field.of(*r.gemm_loss), field.key);
  });
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  parts.resize(std::min(most, parts.size()));
  parts.emplace_back(r.gemm_loss->not_split, "not split");
  std::string text;
  for (const auto& [share, what] : parts)
    if (share >= 0.0005) text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", what, share * 100);
  return text;
}

std::string finding_lines(const RegionSummary& r) {
  std::string text;
  for (const Finding& finding : r.findings) text += "  " + finding.text + "\n";
  return text;
}

}  // namespace mfu

// Percentages in a text for people that cannot be figures.
#pragma once

#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "core/rows/region_summary.h"

namespace mfu::testing_impossible {

/// Percentages of `text` that are above 100, or negative. A change has a sign (`+150.0 %`) and is none, nor is a clock.
/// \param waterfall the parts of one are in it, without `%`.
inline std::vector<std::string> in_text(const std::string& text, bool waterfall = true) {
  static const std::regex kNumber(
      R"(([-+]?)(\d+(?:\.\d+)?) ?%|(?:gemm-loss|kernel-loss|matmul|kernels|other|comm|copy|idle) (-?\d+\.\d))");
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), kNumber), end; at != end; ++at) {
    const bool percent = (*at)[2].matched, change = (*at)[1] == "+" || (!waterfall && (*at)[1] == "-");
    const auto begin = static_cast<std::size_t>(at->position());
    const bool clock = begin >= 6 && text.compare(begin - 6, 6, "clock ") == 0;
    if (percent ? change || clock : !waterfall) continue;
    const double number = std::stod(percent ? (*at)[2] : (*at)[3]);
    if (number > 100 || number < 0 || (*at)[1] == "-") found.push_back(at->str());
  }
  return found;
}

/// Gives a row ratios of every kind, also such as no run can have; some parts are missing, some rows in doubt.
inline void make_random(RegionSummary& r, std::mt19937& random) {
  const auto ratio = [&]() -> std::optional<double> {
    constexpr double kValues[] = {0, 0.3, 0.999, 1.0005, 1.2, 2.223, 47, -0.0, -0.02, -2.022};
    return random() % 4 == 0 ? std::nullopt : std::optional(kValues[random() % std::size(kValues)]);
  };
  r.mfu = ratio(), r.hfu = ratio(), r.mbu = ratio(), r.mfu_busy = ratio();
  r.mfu_lower = ratio(), r.mbu_lower = ratio();
  if (r.flop && r.mfu) *r.flop *= *r.mfu;
  if (random() % 3 == 0) r.lost.reset();
  if (r.lost)
    for (double& part : *r.lost) part = ratio().value_or(0);
  if (random() % 3 == 0) r.untimed = 7, r.classes_known = false;
  if (random() % 2 == 0) r.executed = ExecutedWork{1e15, 950'000'000, 1'000'000'000, 4'000'000'000};
  if (random() % 2 == 0)
    r.suspect =
        "flops_exceed_matmul_time: 36 ms of matmul at peak, matmul kernels ran 28 ms; likely matmuls in a faster dtype "
        "than the peak's, or 2:4 sparse; or batch or layers counted twice";
  for (BatchLatency& b : r.by_batch) b.mfu = ratio(), b.mbu = ratio();
  r.components = {{"qkv", "fwd", 3, 1, 9'000'000'000, 1e12, 1e12, ratio(), Bound::kCompute, {}}};
}

}  // namespace mfu::testing_impossible

#include "tools/job/outliers.h"

#include <algorithm>
#include <cmath>

namespace mfu {

std::optional<double> median_of_known(std::span<const std::optional<double>> values) {
  std::vector<double> known;
  for (const auto& value : values)
    if (value) known.push_back(*value);
  if (known.empty()) return std::nullopt;
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
  std::nth_element(known.begin(), middle, known.end());
  return *middle;
}

std::vector<std::size_t> outliers(std::span<const std::optional<double>> values) {
  constexpr double kMadToSigma = 1.4826;
  constexpr double kSigmas = 5, kLeastShare = 0.02;
  constexpr std::ptrdiff_t kLeastValues = 3;
  const auto known = std::count_if(values.begin(), values.end(), [](const auto& value) { return value.has_value(); });
  if (known < kLeastValues) return {};
  const double median = *median_of_known(values);
  std::vector<std::optional<double>> off;
  for (const auto& value : values) off.push_back(value ? std::optional(std::abs(*value - median)) : std::nullopt);
  const double limit = std::max(kSigmas * kMadToSigma * *median_of_known(off), kLeastShare * std::abs(median));
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (off[i] && *off[i] > limit) found.push_back(i);
  std::stable_sort(found.begin(), found.end(), [&](std::size_t a, std::size_t b) { return *off[a] > *off[b]; });
  return found;
}

}  // namespace mfu

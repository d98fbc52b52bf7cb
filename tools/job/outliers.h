// Which of many values are not like the rest.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace mfu {

/// Values that are further from the median than five deviations (1.4826 x the median absolute deviation, which is the
/// standard deviation of a normal distribution) and than 2 % of the median. \return indices into `values`, furthest
/// first. Unknown values are left out; fewer than three known ones have no outliers.
[[nodiscard]] std::vector<std::size_t> outliers(std::span<const std::optional<double>> values);

/// The upper median of the known values; none where none is known.
[[nodiscard]] std::optional<double> median_of_known(std::span<const std::optional<double>> values);

}  // namespace mfu

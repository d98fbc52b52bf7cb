// The figures of a region by name, for assertions and for comparisons of two runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/rows/region_fields.h"
#include "tools/job/job_report.h"

namespace mfu {

/// A figure of a region as the JSON output names it (`mfu`, `lost.idle`, `latency.p99_s`); `p50_s` to `max_s` may be
/// said without `latency.`.
struct RegionFigure {
  std::string key;
  Unit unit = Unit::kNone;
  bool compared = false;                                             ///< shown when two runs are laid side by side
  std::function<std::optional<double>(const JobRegion& region)> of;  ///< none: unknown
};

/// Every number of region_fields.h, then those that follow from them.
[[nodiscard]] const std::vector<RegionFigure>& region_figures();
/// nullptr: no such figure.
[[nodiscard]] const RegionFigure* find_figure(std::string_view key);

/// [token/s] per device while the region ran; none without tokens.
[[nodiscard]] std::optional<double> tokens_per_s(const RegionSummary& row);
/// Elapsed time of one instance [s]; none where none ended, and for `total`.
[[nodiscard]] std::optional<double> each_s(const RegionSummary& row);

}  // namespace mfu

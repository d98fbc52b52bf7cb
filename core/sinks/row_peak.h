// The rates by which the elapsed time of a row is multiplied.
#pragma once

#include <vector>

#include "core/rows/region_totals.h"
#include "core/sinks/sink.h"

namespace mfu {

/// The peak of the row's device, or the mean of all `devices` where the row is that of the process. None where that of
/// any of them is not known.
[[nodiscard]] RowPeak row_peak(const std::vector<DeviceInfo>& devices, const RegionSummary& row) noexcept;

}  // namespace mfu

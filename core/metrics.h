// The quotients: MFU, HFU, MBU, the roofline, what was lost, and whether to believe it.
#pragma once

#include "core/peak.h"
#include "core/shape.h"
#include "core/window.h"

namespace mfu {

/// Fills every ratio of `summary` (mfu, mfu_busy, hfu, mbu, roofline_s, bound, lost, suspect) from its counts, times
/// and `peak`. `peak` is that of one device; `elapsed_ns` is in device-seconds where several are added up, so the same
/// formula holds. Absent where the FLOP, the bytes or the peak is unknown.
void complete_metrics(RegionSummary& summary, Phase phase, const Peak& peak) noexcept;

}  // namespace mfu

// The matmuls of a row for people: a line per component, and what was found.
#pragma once

#include <string>

#include "core/rows/region_summary.h"

namespace mfu {

/// `HFU 41.0% (of 93% seen)`; empty where less than 90 % of the matmul time is seen.
[[nodiscard]] std::string executed_text(const RegionSummary& row);
/// `1.2 TFLOP by the model, 1.3 TFLOP asked for in 98% of the matmul time, 1.4 TFLOP in the tiles of 60%`, or empty.
[[nodiscard]] std::string flop_text(const RegionSummary& row);
/// `0.91 J/tok`; `more`: `7.4 J/tok +-2 % by a fit, 8.1 J per output token, idle 95 W`. Empty where it is unknown.
[[nodiscard]] std::string energy_text(const RegionSummary& row, bool more);
/// Lines of a row's components, two blanks in front, each with its end of line: share of the row's time, FLOP/s, % of
/// peak, bound, calls, sizes, and the share of the row's time that its matmuls lose against their peak.
[[nodiscard]] std::string component_lines(const RegionSummary& row);
/// The parts of `gemm_loss`, largest first, in percent of the elapsed time: `shape 9.4, waves 5.1, rest 2.0`; without
/// those below 0.05 %. Empty where it is not split. \param most parts, besides the last: kernels that say no tile.
[[nodiscard]] std::string gemm_loss_parts(const RegionSummary& row, std::size_t most);
/// Lines of a row's findings, likewise.
[[nodiscard]] std::string finding_lines(const RegionSummary& row);

}  // namespace mfu

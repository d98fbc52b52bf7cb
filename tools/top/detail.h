// One rank in detail, and the help page.
#pragma once

#include <optional>
#include <vector>

#include "tools/top/glyphs.h"
#include "tools/top/snapshot.h"

namespace mfu {

/// `37.1`, `>=37.1` where MFU or MBU is known from below alone, `-`; a figure above 100 % is none.
[[nodiscard]] std::string result_or_bound(const std::optional<double>& ratio, const std::optional<double>& lower);
/// What a rank's files say: process, devices, history, regions, components, kernels, counters, events.
[[nodiscard]] std::vector<ScreenLine> detail_lines(const TopRow& row, const std::vector<std::optional<double>>& history,
                                                   double history_top, std::size_t width, std::size_t history_height,
                                                   Glyphs glyphs);
[[nodiscard]] std::vector<ScreenLine> help_lines(std::size_t width);

}  // namespace mfu

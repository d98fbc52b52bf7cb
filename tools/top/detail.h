// One rank in detail, and the help page.
#pragma once

#include <optional>
#include <vector>

#include "tools/top/glyphs.h"
#include "tools/top/snapshot.h"

namespace mfu {

/// The content of a rank's files: process, devices, history, regions, components, kernels, counters, events.
[[nodiscard]] std::vector<ScreenLine> detail_lines(const TopRow& row, const std::vector<std::optional<double>>& history,
                                                   double history_top, std::size_t width, std::size_t history_height,
                                                   Glyphs glyphs);
[[nodiscard]] std::vector<ScreenLine> help_lines(std::size_t width);

}  // namespace mfu

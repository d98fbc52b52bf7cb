// The layers of a model in the rows of a run (MFU_PARTS=layers): a region each, which people see in one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/rows/region_summary.h"

namespace mfu {

struct LayerName {
  std::string_view pass;               ///< `forward`, `backward`, `decode`, ...
  std::optional<std::uint32_t> layer;  ///< none: the rest of the pass
};

/// Of `layer 3`, `layer 3 backward`, `outside of layers decode`; none: another region.
[[nodiscard]] std::optional<LayerName> layer_name(std::string_view region) noexcept;

/// One line for each pass and device: how many layers there are, how long each takes and which is the slowest. A
/// layer's time is the median of its instances, where single ones are known, else the mean.
[[nodiscard]] std::vector<std::string> layer_lines(const std::vector<RegionSummary>& rows);

}  // namespace mfu

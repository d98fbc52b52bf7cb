// The objects of the run directory's lines, for code that writes one or puts it into a larger document.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/rows/region_summary.h"
#include "core/sinks/sink.h"

namespace mfu {

/// A row of a window, or an entry of `end.regions`, with the keys of region_fields.h.
[[nodiscard]] nlohmann::ordered_json to_json(const RegionSummary& row);
/// A `start` line without `v`, `type`, `t_ns` and `seq`.
[[nodiscard]] nlohmann::ordered_json to_json(const RunInfo& run);
/// An `end` line without those.
[[nodiscard]] nlohmann::ordered_json to_json(const WindowSummary& whole);
[[nodiscard]] nlohmann::ordered_json to_json(const SelfCost& self);
[[nodiscard]] nlohmann::ordered_json to_json(const Stall& stall);
/// By name: `holds` (null: too few cases) and `against`.
[[nodiscard]] nlohmann::ordered_json to_json(const std::vector<TrustState>& trust);

/// As one line that a terminal may see; bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string text_of(const nlohmann::ordered_json& json);
[[nodiscard]] nlohmann::ordered_json number_or_null(const std::optional<double>& value);

}  // namespace mfu

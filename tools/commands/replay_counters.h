// `mfu replay x.csv ...`: hardware counters instead of traces.
#pragma once

#include <string>
#include <vector>

#include "core/peak/peak.h"

namespace mfu {

/// Whether all of `paths` are CSV files, by their names.
[[nodiscard]] bool are_counters(const std::vector<std::string>& paths);

/// Prints FLOP and shares of the peak. \return an exit code.
int replay_counters(const std::vector<std::string>& paths, const std::string& gpu, const PeakOptions& peak, bool json);

}  // namespace mfu

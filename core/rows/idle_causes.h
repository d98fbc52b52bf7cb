// Idle time by what the host did meanwhile, as lists that add up.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/rows/region_summary.h"

namespace mfu {

inline constexpr std::size_t kMostIdleCauses = 12;           ///< of a row
inline constexpr std::string_view kLaunching = "launching";  ///< the cause of gaps too short to look into

/// The same cause at the same place counts on. Of very many, the last ones count as `other`.
void add_cause(std::vector<IdleCause>& causes, const IdleCause& more);
/// The longest first; those beyond `most` of them are `other`.
void keep_longest(std::vector<IdleCause>& causes, std::size_t most);
/// Whether a cause that the program can do something about is known.
[[nodiscard]] bool is_named(const IdleCause& cause);
/// `DataLoader.__next__ data.py:88`.
[[nodiscard]] std::string cause_text(const IdleCause& cause);
/// `torch.save ckpt.py:40 6.1, launching 2.0`: shares of the row's elapsed time in percent, the longest first, as many
/// as `room` characters hold; empty: no cause is named, or the first does not fit.
[[nodiscard]] std::string idle_text(const RegionSummary& row, std::size_t room);

}  // namespace mfu

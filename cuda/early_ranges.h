// Ranges that were opened before CUDA started, when there were no rules yet: kept by name, and given to the attribution
// at the start with the times at which they were opened. See also adopt_early_ranges in host_thread.h.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

#include "cuda/host_thread.h"
#include "cuda/nvtx_names.h"

namespace mfu {

/// [owner thread] A push/pop range. Returns its level, 0 for the outermost.
int push_early(HostThread& thread, const NvtxDomain& domain, const RangeEvent& event) noexcept;
/// [owner thread] Closes the innermost one of that domain. Returns how many are left.
int pop_early(HostThread& thread, const NvtxDomain& domain) noexcept;

/// Of a start/end range that maps to no region: ending it needs no table.
inline constexpr nvtxRangeId_t kUnfollowedRange = 1ull << 63;

/// [any thread] A start/end range, which belongs to no thread. kUnfollowedRange when all places are taken.
[[nodiscard]] nvtxRangeId_t start_early(const NvtxDomain& domain, const RangeEvent& event) noexcept;
[[nodiscard]] constexpr bool is_early(nvtxRangeId_t id) noexcept { return (id & 1ull << 62) != 0; }
/// [any thread] Ends what start_early gave. The attribution's handle if it was adopted meanwhile; 0: nothing to end.
[[nodiscard]] std::uint64_t end_early(nvtxRangeId_t id) noexcept;
/// [starting thread] Gives the open start/end ranges to the attribution.
void adopt_early_process_ranges(const HostLinks& live) noexcept;

}  // namespace mfu

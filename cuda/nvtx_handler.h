// NVTX of our own: the tables that every NVTX module of the process fills in with our functions.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include "core/base/counters.h"

namespace mfu {

/// [any thread] Attaches the NVTX v3 module (or the v2 library) behind `get_export_table`. Fills tables and returns:
/// no lock, no allocation, no CUDA, no NVTX, since other threads of the module spin until it is done.
void attach_nvtx(NvtxGetExportTableFunc_t get_export_table) noexcept;

/// [any thread] Attaches an NVTX extension module (nvtxExtModuleInfo_t*): payload ranges and nvtxDomainIsEnabled.
void attach_nvtx_extension(void* module_info) noexcept;

/// NVTX ranges seen so far, by pushes and starts; approximate.
[[nodiscard]] bool nvtx_ranges_seen() noexcept;

/// Counts of what went wrong with ranges, from the first NVTX call on.
[[nodiscard]] Counters& host_counters() noexcept;

}  // namespace mfu

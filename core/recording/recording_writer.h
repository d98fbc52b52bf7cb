// Writes a TraceSnapshot as a trace that Perfetto, chrome://tracing and `mfu replay` read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/attribution/product_table.h"
#include "core/base/result.h"
#include "core/kernels/kernel_names.h"
#include "core/peak/peak.h"
#include "core/ranges/region_rules.h"
#include "core/recording/recording_ring.h"

namespace mfu {

/// Who was recorded.
struct TraceHeader {
  std::string host, version;
  std::int64_t pid = 0, rank = 0, world_size = 1;
  std::string config_json = "{}";
  std::vector<std::pair<DeviceFacts, Peak>> devices;  ///< by index in this process; an empty name: never seen
  const ProductTable* products = nullptr;  ///< of the numbers in the records; nullptr: calls were not looked at
};

/// Chrome trace JSON with the words of PyTorch's profiler: `kernel`, `gpu_memcpy`, `gpu_memset` on their streams,
/// `cuda_runtime` launches joined to them by `correlation`, regions as `user_annotation` slices on their threads, and a
/// counter track of MFU, MBU and TFLOP/s for each region. A kernel of a matrix product says its sizes in `product`:
/// `[m, n, k, batch, transpose_a, transpose_b, "bf16", "bf16", first_of_product]`, m = 0 where they are not known.
/// Times are exact to the ns, on `baseTimeNanoseconds` (UTC).
///
/// The library does not note when each call was made, only which region was open then: a launch is placed at the last
/// moment before its work at which its region was the innermost one of the thread that opened it.
///
/// May take as long as `budget_ns`: then the oldest activities are left out, which the file says. The file appears at
/// `path` whole or not at all. Error: names the path and what went wrong.
[[nodiscard]] Result<void> write_trace(const std::string& path, const TraceSnapshot& snapshot,
                                       const TraceHeader& header, const RegionRules& rules, const KernelNames& names,
                                       DurationNs budget_ns);

}  // namespace mfu

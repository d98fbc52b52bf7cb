// The launches of a stored trace as the step detector takes them: one per host call, in correlation order.
#pragma once

#include <cstdint>
#include <vector>

#include "core/detect/launch.h"
#include "tools/trace/trace.h"

namespace mfu {

/// Every launch of one process on one device.
struct DeviceLaunches {
  std::uint32_t process = 0;  ///< index into Trace::processes
  std::uint32_t device = 0;   ///< index into Trace::devices
  std::vector<Launch> launches;
};

/// The launches of every process and device with any. All records of one correlation id are one launch; a graph's is
/// distinguished from another's by the operations in it. Records without a correlation id are where they began.
[[nodiscard]] std::vector<DeviceLaunches> trace_launches(const Trace& trace);

}  // namespace mfu

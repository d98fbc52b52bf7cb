// Work of known length on the GPU, to hold a measurement against.
#pragma once

#include <string>

namespace mfu {

/// Runs on device 0 of this process: single kernels between events, two streams at once, a graph, launches that a
/// capture records, `loop_s` seconds of launches without any synchronisation, and one kernel that still runs at the
/// end. Writes to `path` as JSON what was launched, or an `error`. \return the exit code
[[nodiscard]] int run_known_work(double loop_s, const std::string& path);

}  // namespace mfu

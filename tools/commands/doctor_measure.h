// Known work on the GPU, measured by the library, and what the two say of each other.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"

namespace mfu {

/// Something that was measured and is known.
struct Held {
  bool holds = false;
  std::string what;  ///< one word
  std::string text;  ///< what was found, and what was expected where it does not hold
};

/// Runs the known work (known_work.h) in a process of its own with `library` in it, and holds its run directory against
/// what was launched and what CUDA events say. \param loop_s of the loop that never waits [s].
/// The Error: the process could not be started, failed, or left no run directory.
[[nodiscard]] Result<std::vector<Held>> measure_known_work(const std::string& library, double loop_s);

/// [the process that measure_known_work starts] Runs the work and writes what was launched to `path`.
/// \return its exit code.
[[nodiscard]] int run_measured_work(double loop_s, const std::string& path);

}  // namespace mfu

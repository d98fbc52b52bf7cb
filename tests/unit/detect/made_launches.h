// Launches made up by hand, and what a detector says of a stream of them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/detect/step_detector.h"

namespace mfu {

using Launches = std::vector<Launch>;

inline Launch kernel(std::uint32_t name, KernelRole role = KernelRole::kOther) {
  Launch launch;
  launch.name = Launch::kFirstKernel + name;
  launch.traits = traits_of(role);
  return launch;
}
inline Launch copy(KernelRole direction) {
  Launch launch;
  launch.name = static_cast<std::uint32_t>(direction);
  launch.traits = traits_of(direction);
  return launch;
}
inline void append(Launches& to, const Launches& what) { to.insert(to.end(), what.begin(), what.end()); }

/// Boundaries that stand.
class Tally final : public StepListener {
 public:
  void on_boundary(const StepBoundary& boundary) override {
    boundaries.push_back(boundary.launch);
    kinds.push_back(boundary.kind);
  }
  std::vector<std::uint64_t> boundaries;
  std::vector<StepKind> kinds;  ///< of what ended there
};

struct Outcome {
  StepFindings findings;
  std::vector<std::uint64_t> boundaries;
  std::vector<StepKind> kinds;  ///< of what ended there
};
inline Outcome detect(const Launches& stream, std::uint64_t first = 0) {
  Tally tally;
  StepDetector detector(tally, first);
  for (const Launch& launch : stream) detector.add(launch);
  detector.finish();
  return {detector.findings(), tally.boundaries, tally.kinds};
}

/// MFU_TEST_SEED, or a new one, which is printed.
inline std::uint64_t test_seed() {
  const char* given = std::getenv("MFU_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace mfu

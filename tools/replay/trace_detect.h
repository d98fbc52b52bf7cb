// Training steps and serving iterations of a stored trace, found in its launches alone: `mfu replay --detect`.
#pragma once

#include <string>
#include <vector>

#include "core/detect/step_detector.h"
#include "tools/trace/trace.h"

namespace mfu {

/// The detector's findings on one device of one process.
struct DetectedSteps {
  std::string trace;    ///< path as given
  std::string process;  ///< as the figures name it
  std::uint32_t device = 0;
  std::uint64_t launches = 0;
  StepFindings findings;
  std::vector<StepBoundary> boundaries;  ///< times on the file's own zero
  struct Considered {
    std::uint64_t launch = 0;  ///< how many had come
    std::string text;
  };
  std::vector<Considered> explained;  ///< the periods considered, and why each was taken or refused; if that was asked
};

/// One entry for every process and device that has launches. `explain`: with what the detector considered.
[[nodiscard]] std::vector<DetectedSteps> detect_steps(const Trace& trace, bool explain = false);

/// `detected` of `mfu replay --detect --json`: `[{trace, process, device, kind, period, confidence, rule, micro_steps,
/// micro_step_launches, launches, boundaries: [{launch, t_ns}]}]`; `period` is null where nothing was
/// found, and `rule` says how the place of the boundary was chosen. Where it was asked for, `explain: [{launch,
/// text}]`.
[[nodiscard]] std::string detected_json(const std::vector<DetectedSteps>& detected);

/// The same for people: one paragraph per entry.
[[nodiscard]] std::string detected_text(const std::vector<DetectedSteps>& detected);

}  // namespace mfu

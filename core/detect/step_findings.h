// Reports of the step detector: boundaries, as they are found, and its knowledge at the moment.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/units.h"

namespace mfu {

enum class StepKind : std::uint8_t { kNone, kStep, kDecode, kPrefillOrMixed, kIteration };

struct StepBoundary {
  std::uint64_t launch = 0;         ///< index of the first launch after the cut, from 0; at the end their number
  TimeNs at_ns = 0;                 ///< when that launch's first activity began; at the end that of the last one
  StepKind kind = StepKind::kNone;  ///< of what ended there; kNone: no step ended, one begins there
  bool last = false;                ///< nothing that came later shows it: the stream was over
};

/// Receives the boundaries, in the order of launches; none is taken back.
class StepListener {
 public:
  virtual void on_boundary(const StepBoundary& boundary) = 0;

 protected:
  ~StepListener() = default;
};

/// kNotSure: nothing found; no rate of steps may be printed. kLow: times only, no percentiles.
enum class StepConfidence : std::uint8_t { kNotSure, kLow, kMedium, kHigh };
/// How the place of the boundary in the cycle was chosen; kAnywhere: the period is right, the place is arbitrary.
enum class BoundaryRule : std::uint8_t { kAnywhere, kOptimizer, kSampling, kCopies, kGraph };

struct StepFindings {
  StepKind kind = StepKind::kNone;
  StepConfidence confidence = StepConfidence::kNotSure;
  BoundaryRule rule = BoundaryRule::kAnywhere;
  std::uint32_t period_launches = 0;  ///< 0 while kNotSure
  std::uint32_t micro_steps = 0;      ///< forward and backward passes per optimizer step; 0: not known
  std::uint32_t micro_step_launches = 0;
};

[[nodiscard]] constexpr std::string_view name(StepKind kind) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"none", "step", "decode", "prefill_or_mixed", "iteration"};
  return kNames[static_cast<std::size_t>(kind)];
}
[[nodiscard]] constexpr std::string_view name(StepConfidence confidence) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"not_sure", "low", "medium", "high"};
  return kNames[static_cast<std::size_t>(confidence)];
}
[[nodiscard]] constexpr std::string_view name(BoundaryRule rule) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"anywhere", "optimizer", "sampling", "h2d", "graph"};
  return kNames[static_cast<std::size_t>(rule)];
}
[[nodiscard]] inline std::string cut_by(BoundaryRule rule) {
  return rule == BoundaryRule::kAnywhere ? "cut at an arbitrary place" : "cut by " + std::string(name(rule));
}

}  // namespace mfu

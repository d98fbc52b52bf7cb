#include "core/detect/step_findings.h"

#include <array>

namespace mfu {

std::string_view name(StepKind kind) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"none", "step", "decode", "prefill_or_mixed", "iteration"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name(StepConfidence confidence) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"not_sure", "low", "medium", "high"};
  return kNames[static_cast<std::size_t>(confidence)];
}

std::string_view name(BoundaryRule rule) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"anywhere", "optimizer", "sampling", "h2d", "graph"};
  return kNames[static_cast<std::size_t>(rule)];
}

std::string cut_by(BoundaryRule rule) {
  return rule == BoundaryRule::kAnywhere ? "cut at an arbitrary place" : "cut by " + std::string(name(rule));
}

}  // namespace mfu

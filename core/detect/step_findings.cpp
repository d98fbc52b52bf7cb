#include "core/detect/step_findings.h"

namespace mfu {

std::string_view name(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::kStep:
      return "step";
    case StepKind::kDecode:
      return "decode";
    case StepKind::kPrefillOrMixed:
      return "prefill_or_mixed";
    case StepKind::kIteration:
      return "iteration";
    case StepKind::kNone:
      break;
  }
  return "none";
}

std::string_view name(StepConfidence confidence) noexcept {
  switch (confidence) {
    case StepConfidence::kHigh:
      return "high";
    case StepConfidence::kMedium:
      return "medium";
    case StepConfidence::kLow:
      return "low";
    case StepConfidence::kNotSure:
      break;
  }
  return "not_sure";
}

std::string_view name(BoundaryRule rule) noexcept {
  switch (rule) {
    case BoundaryRule::kOptimizer:
      return "optimizer";
    case BoundaryRule::kSampling:
      return "sampling";
    case BoundaryRule::kCopies:
      return "h2d";
    case BoundaryRule::kGraph:
      return "graph";
    case BoundaryRule::kAnywhere:
      break;
  }
  return "anywhere";
}

std::string cut_by(BoundaryRule rule) {
  return rule == BoundaryRule::kAnywhere ? "cut at an arbitrary place" : "cut by " + std::string(name(rule));
}

}  // namespace mfu

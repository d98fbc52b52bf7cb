#include "core/detect/step_verdict.h"

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;

/// Where steps begin is not marked: the named part of the update is not all of it, and no copies of a batch come before
/// the next forward pass, or matrix products before them. A stray launch is then enough to put the begin of a step
/// elsewhere.
bool begins_anywhere(const TrainingSteps& training) noexcept {
  constexpr std::size_t kLooked = 8;
  std::size_t looked = 0, followed = 0;
  for (std::size_t i = 1; i + 1 < training.known() && i < kLooked; ++i) {
    const TrainingSteps::Step& step = training.back(i);
    ++looked;
    followed += step.followed ? 1 : 0;
    if (step.followed && step.gap > kT.burst && training.back(i - 1).copies == 0) return true;
    // What ran after it may be the rest of its update.
    if (!step.followed && step.may_be_update && step.next - step.end > kT.burst) return true;
    // Copies ahead of time may lie in the middle of a forward pass.
    if (step.products_follow) return true;
  }
  // What runs after most steps may be the rest of their updates.
  return followed * 2 < looked;
}

/// A named update ends every step, and what every step holds whatever its shapes is the same.
bool is_proved(const TrainingSteps& training) noexcept {
  if (!training.named() || training.steps_per_turn() != 1 || begins_anywhere(training)) return false;
  if (training.may_begin_with_update()) return false;
  return training.exact() >= kT.high_whatever_shapes && training.exact_whatever_shapes() >= kT.high_operations &&
         training.same_length_whatever_shapes() >= kT.high_same_length;
}

}  // namespace

StepKind step_kind(ServingKind kind) noexcept {
  switch (kind) {
    case ServingKind::kDecode:
      return StepKind::kDecode;
    case ServingKind::kPrefillOrMixed:
      return StepKind::kPrefillOrMixed;
    case ServingKind::kUnknown:
      break;
  }
  return StepKind::kIteration;
}

StepFindings findings_of(const ServingIterations& serving) noexcept {
  StepFindings findings;
  findings.kind = step_kind(serving.usual_kind());
  findings.rule = serving.samples() ? BoundaryRule::kSampling : BoundaryRule::kCopies;
  findings.period_launches = static_cast<std::uint32_t>(serving.mean_launches() + 0.5);
  const bool known = serving.recurring() >= kT.serving_high && serving.ended() >= kT.serving_high_ended;
  if (serving.samples())
    findings.confidence = known ? StepConfidence::kHigh : StepConfidence::kMedium;
  else
    findings.confidence = serving.uniform() >= kT.host_turns_uniform ? StepConfidence::kMedium : StepConfidence::kLow;
  return findings;
}

StepFindings findings_of(const TrainingSteps& training, const PassesOfStep& passes) noexcept {
  StepFindings findings;
  findings.kind = StepKind::kStep;
  findings.rule = training.named()                ? BoundaryRule::kOptimizer
                  : training.last().batch_follows ? BoundaryRule::kCopies
                                                  : BoundaryRule::kAnywhere;
  findings.period_launches = training.usual_launches() * training.steps_per_turn();
  findings.micro_steps = training.steps_per_turn() == 1 ? training.passes() : 1;
  if (training.steps_per_turn() == 1 && findings.micro_steps == 1 && passes.count > 1) {
    findings.micro_steps = passes.count;
    findings.micro_step_launches = passes.launches;
  } else if (findings.micro_steps > 1)
    findings.micro_step_launches = (findings.period_launches - training.last().updates) / findings.micro_steps;
  if (is_proved(training))
    findings.confidence = StepConfidence::kHigh;
  else if (training.exact() >= kT.medium_exact && training.same_length() >= kT.medium_same_length)
    findings.confidence = StepConfidence::kMedium;
  else
    findings.confidence = StepConfidence::kLow;
  return findings;
}

StepFindings findings_of(const StepFollower& follower, const StepReporter& reporter) noexcept {
  const StepCycle& cycle = follower.cycle();
  const FollowedSteps& seen = follower.seen();
  StepFindings findings;
  findings.kind = follower.kind();
  findings.rule = cycle.rule;
  findings.period_launches = cycle.period;
  findings.micro_steps = seen.micro_steps;
  findings.micro_step_launches = seen.micro_step_launches;
  const bool named = cycle.optimizer || cycle.rule == BoundaryRule::kSampling;
  // Where more than half of the launches are of something else, the cycle may be but a part of what runs.
  const bool mostly = follower.mostly(reporter);
  if (named && seen.one_update && cycle.coverage >= kT.coverage_all && seen.exact >= kT.high_exact &&
      seen.same_length >= kT.high_same_length && seen.steps >= 2)
    findings.confidence = StepConfidence::kHigh;
  else if (seen.exact >= kT.medium_exact && cycle.coverage >= kT.medium_coverage &&
           seen.same_length >= kT.medium_same_length && (named || mostly))
    findings.confidence = StepConfidence::kMedium;
  else
    findings.confidence = StepConfidence::kLow;
  return findings;
}

}  // namespace mfu

// How sure the detector may be of what it follows.
#pragma once

#include "core/detect/launch_history.h"
#include "core/detect/serving_iterations.h"
#include "core/detect/step_findings.h"
#include "core/detect/step_follower.h"
#include "core/detect/step_reporter.h"
#include "core/detect/training_steps.h"

namespace mfu {

[[nodiscard]] StepKind step_kind(ServingKind kind) noexcept;

/// Of a server's iterations.
[[nodiscard]] StepFindings findings_of(const ServingIterations& serving) noexcept;
/// Of training steps that end with an update. `passes`: of one step, for where no losses tell them.
[[nodiscard]] StepFindings findings_of(const TrainingSteps& training, const PassesOfStep& passes) noexcept;
/// Of a cycle that is followed, of which at least one step was seen.
[[nodiscard]] StepFindings findings_of(const StepFollower& follower, const StepReporter& reporter) noexcept;

}  // namespace mfu

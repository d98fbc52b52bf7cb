#include "core/detect/step_detector.h"

#include <algorithm>
#include <string>

#include "core/detect/thresholds.h"

namespace mfu {

using namespace thresholds;

StepDetector::StepDetector(StepListener& listener, std::uint64_t first, DetectionLog* log)
    : listener_(listener), history_(first), explain_(log, history_), training_(history_), serving_(first) {}

std::size_t StepDetector::held_bytes() const noexcept {
  return sizeof(*this) + history_.held_bytes() + training_.held_bytes();
}

/// Copies to the device count where a thread makes them that launches kernels, too. A loader that runs ahead on a
/// separate thread says nothing about where a step begins.
inline bool StepDetector::is_of_loader(const Launch& launch) noexcept {
  if ((launch.traits.flags & kFlagToDevice) == 0) {
    if (launch.thread != kernel_threads_[0] && launch.name >= Launch::kFirstKernel)
      kernel_threads_ = {launch.thread, kernel_threads_[0]};
    return false;
  }
  return launch.thread != 0 && kernel_threads_[0] != 0 && launch.thread != kernel_threads_[0] &&
         launch.thread != kernel_threads_[1];
}

void StepDetector::add(const Launch& launch) {
  const LaunchPosition at = history_.end();
  if (is_of_loader(launch)) {
    constexpr std::uint32_t kLoader = 1;  // no name of a copy or a kernel
    Launch silent = launch;
    silent.name = kLoader;
    silent.traits = {};
    history_.add(silent);
    serving_.note_load();
    return;
  }
  history_.add(launch);
  if (training_.add(launch, at, kernel_threads_[1] != 0)) unit_ended();
  // In training, what looked like samples were losses that went to the host.
  if ((launch.traits.flags & (kFlagBackward | kFlagOptimizer)) != 0 && training_.trains()) {
    if (serving_.ended() != 0) serving_ = ServingUnits(at);
    serving_.training_runs(at);
    serving_found_ = false;
  }
  if (serving_.add(launch.traits, launch.grid, launch.name, at)) iteration_ended();
}

void StepDetector::finish() {
  over_ = true;
  if (!training_.trains()) serving_.no_training_will_come();
  if (serving_.finish() || (!serving_found_ && serving_.ended() != 0 && serving_.found())) iteration_ended();
  if (serving_found_) return;
  if (training_.finish()) unit_ended();
}

/// Before the launch at `p`; no effect unless it lies after all others and within the stream.
void StepDetector::report(LaunchPosition p, StepKind kind) {
  if (p <= last_reported_ || p > history_.end() || p < history_.oldest()) return;
  const bool at_end = p == history_.end();
  if (at_end && !over_) return;
  last_reported_ = p;
  listener_.on_boundary({p, history_.begin_ns(at_end ? p - 1 : p), kind, over_});
}

// ---------------------------------------------------------------------------------------------- serving

/// Tokens that a training program generates between its steps: a run of samples that no batch was copied in for, where
/// its training takes batches that are seen, or whose attention decodes.
bool StepDetector::generates_in_training() const noexcept {
  return serving_.unfed() >= kGenerated && serving_.found() && (serving_.decodes() || training_.by_copies());
}

StepKind StepDetector::kind_of(const ServingUnits::End& end) const noexcept {
  return end.clean ? serving_.kind_of(end) : StepKind::kNone;
}

void StepDetector::iteration_ended() {
  if (serving_found_) {
    report_iterations(serving_.ended() - iterations_);
  } else if (!serving_.found() || (training_.trains() && !generates_in_training())) {
    if (!training_.trains()) explain_.refuse("iterations of a server", serving_.why_not());
    return;
  } else {
    if (training_.end_last()) report_steps();
    explain_.say(serving_.samples()
                     ? "taken: iterations of a server, by samples that go to the host"
                     : "taken: iterations of a server, by turns of the host: copies in, the model, copies out");
    serving_found_ = true;
    // Of the first one the begin is known where its batch alone was copied in.
    std::uint64_t first = std::min<std::uint64_t>(serving_.ended(), ServingUnits::kKept) - 1;
    if (training_.trains()) first = std::min(first, serving_.unfed());
    const ServingUnits::End& begin = serving_.back(first);
    report(begin.begin > history_.oldest() ? begin.begin : begin.launch, StepKind::kNone);
    report_iterations(first + 1);
  }
  set_findings(findings_of_serving());
}

/// The newest so many, as far as they are remembered.
void StepDetector::report_iterations(std::uint64_t count) {
  iterations_ = serving_.ended();
  for (std::size_t i = std::min<std::uint64_t>(count, ServingUnits::kKept); i-- > 0;)
    report(serving_.back(i).launch, kind_of(serving_.back(i)));
}

StepFindings StepDetector::findings_of_serving() const noexcept {
  StepFindings f;
  f.kind = serving_.usual_kind();
  f.rule = serving_.samples() ? BoundaryRule::kSampling : BoundaryRule::kCopies;
  f.period_launches = static_cast<std::uint32_t>(std::max(serving_.mean_launches() + 0.5, 1.0));
  const bool known = serving_.recurring() >= kAlike;
  f.confidence = serving_.samples() && serving_.generates() && known && serving_.ended() >= kGenerated
                     ? StepConfidence::kHigh
                 : known ? StepConfidence::kMedium
                         : StepConfidence::kLow;
  return f;
}

// ---------------------------------------------------------------------------------------------- training

void StepDetector::unit_ended() {
  if (!training_.found()) {
    explain_.refuse("training steps", training_.why_not());
    return;
  }
  if (steps_ == 0)
    explain_.say(training_.by_name()
                     ? "taken: training steps, by the updates of a named optimizer"
                     : "taken: training steps, by what runs between a backward pass and the next batch");
  report_steps();
  if (steps_ != 0) set_findings(findings_of_training());
}

void StepDetector::report_steps() {
  for (std::size_t i = 0; i < training_.known(); ++i) {
    const auto step = training_.step(i);
    if (!step || step->begin < last_reported_) continue;
    report(step->begin, StepKind::kNone);
    report(over_ ? std::min(step->end, history_.end()) : step->end, StepKind::kStep);
    steps_ += last_reported_ > step->begin ? 1 : 0;
  }
}

StepFindings StepDetector::findings_of_training() const noexcept {
  StepFindings f;
  f.kind = StepKind::kStep;
  f.rule = training_.by_name()     ? BoundaryRule::kOptimizer
           : training_.by_copies() ? BoundaryRule::kCopies
                                   : BoundaryRule::kAnywhere;
  f.period_launches = training_.usual_launches();
  f.micro_steps = training_.passes();
  f.micro_step_launches = f.micro_steps > 1 ? training_.pass_launches() : 0;
  const bool alike = training_.alike() >= kAlike && training_.fixed() && training_.steps_of_turn() == 1;
  f.confidence = training_.named() && alike && training_.certain() && training_.alike() >= kSame ? StepConfidence::kHigh
                 : alike ? StepConfidence::kMedium
                         : StepConfidence::kLow;
  return f;
}

void StepDetector::set_findings(const StepFindings& f) {
  const bool same = f.kind == findings_.kind && f.confidence == findings_.confidence && f.rule == findings_.rule &&
                    f.micro_steps == findings_.micro_steps;
  findings_ = f;
  if (same || !explain_.wanted()) return;
  explain_.say("now: " + std::string(name(f.kind)) + " of " + std::to_string(f.period_launches) + " launches, " +
               cut_by(f.rule) + ", confidence " + std::string(name(f.confidence)));
}

}  // namespace mfu

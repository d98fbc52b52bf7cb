#include "core/detect/step_detector.h"

#include <algorithm>

#include "core/detect/step_verdict.h"
#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;

}  // namespace

StepDetector::StepDetector(StepListener& listener, std::uint64_t first)
    : history_(first),
      schedule_(history_),
      search_(history_),
      reporter_(listener, history_),
      follower_(history_, schedule_, reporter_),
      serving_(first),
      next_work_(first + kT.search_every) {}

std::size_t StepDetector::held_bytes() const noexcept {
  return sizeof(*this) + history_.held_bytes() + search_.held_bytes() + follower_.held_bytes();
}

void StepDetector::add(const Launch& launch) {
  const Position at = history_.add(launch);
  // In training, what looked like samples were losses that went to the host.
  if ((launch.traits.flags & (kFlagBackward | kFlagOptimizer | kFlagForeach)) != 0 && history_.training() &&
      serving_.ended() != 0)
    serving_ = ServingIterations(at);
  if (serving_.add(launch.traits, at)) iteration_ended();
  if (history_.end() >= next_work_) run_pending(false);
}

void StepDetector::finish() {
  run_pending(true);
  update_findings();
}

// ---------------------------------------------------------------------------------------------- serving

/// Iterations of a server have taken training's place: reinforcement learning alternates, and a script may do one thing
/// after the other.
bool StepDetector::training_is_over() const noexcept {
  constexpr std::uint32_t kLeast = 64;
  return serving_.found() &&
         history_.end() - history_.last_trained() > 3 * std::max<Position>(history_.training_gap(), kLeast);
}

void StepDetector::iteration_ended() {
  ends_[serving_.ended() % ends_.size()] = serving_.last();
  if (history_.training()) {
    if (!training_is_over()) return;
    history_.forget_training();
    reporter_.confirm();
    follower_.unlock();
  }
  if (serving_found_)
    reporter_.report(serving_.last().launch, step_kind(serving_.last().kind));
  else if (serving_.found())
    start_serving();
  update_findings();
}

/// Sampling kernels mark iterations directly; they are preferred over a period.
void StepDetector::start_serving() {
  serving_found_ = true;
  reporter_.withdraw();
  follower_.unlock();
  const std::uint64_t known = std::min<std::uint64_t>(serving_.ended(), ends_.size());
  for (std::uint64_t i = serving_.ended() + 1 - known; i <= serving_.ended(); ++i) {
    const ServingIterations::End& end = ends_[i % ends_.size()];
    // Where the first of them began nobody knows.
    const bool first = i + known == serving_.ended() + 1;
    if (end.launch >= history_.oldest()) reporter_.report(end.launch, first ? StepKind::kNone : step_kind(end.kind));
  }
}

/// Training after all, or sampling ended long ago: then the search goes on.
void StepDetector::check_serving() {
  const Position quiet = history_.end() - reporter_.last();
  if (history_.training() ||
      quiet > std::max<Position>(kRing / 2, static_cast<Position>(64 * serving_.mean_launches()))) {
    serving_found_ = false;
    serving_ = ServingIterations(history_.end());
  }
  next_work_ = history_.end() + kT.search_every;
}

// ---------------------------------------------------------------------------------------------- training

void StepDetector::run_pending(bool final) {
  if (serving_found_) {
    check_serving();
  } else {
    follower_.advance(final);
    search(final);
    next_work_ = follower_.next_work();
  }
  update_findings();
}

/// Searches where nothing is followed, and where what is followed is lost, or may be a part of something larger.
void StepDetector::search(bool final) {
  const bool lost = follower_.lost();
  // What is not known by a name may turn out to be a part of something larger.
  const StepCycle& cycle = follower_.cycle();
  const bool unnamed =
      follower_.locked() && !cycle.optimizer && (history_.training() || (cycle.trait_flags & kFlagSampling) == 0);
  if (unnamed) follower_.check_coverage();
  if (follower_.locked() && !lost && !unnamed) return;
  const std::uint32_t window = schedule_.window(follower_.locked() && !lost, final);
  if (window == 0) return;
  if (const auto found = search_.find(window)) {
    const bool gives_way =
        !follower_.locked() || (!equal_periods(found->period, cycle.period) &&
                                !(follower_.in_step() && found->period < kT.longer_while_followed * cycle.period));
    if (gives_way) follower_.lock(*found);
  }
  follower_.advance(final);
}

void StepDetector::update_findings() {
  const bool followed = follower_.locked() && follower_.seen().steps != 0;
  if (!serving_found_ && !followed && reporter_.last() != 0 && history_.end() - reporter_.last() < kRing) {
    // What was reported stays, but nothing has followed since.
    findings_ = followed_;
    findings_.confidence = StepConfidence::kLow;
    return;
  }
  findings_ = serving_found_ ? findings_of(serving_) : followed ? findings_of(follower_, reporter_) : StepFindings{};
  findings_.shortest_repeat = search_.shortest_repeat();
  if (followed) followed_ = findings_;
}

}  // namespace mfu

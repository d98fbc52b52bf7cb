// Follows a cycle through the stream: finds each next step, steps over foreign work (evaluation, logging), reports
// boundaries, and says how equal the steps are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/detect/cycle_search.h"
#include "core/detect/launch_history.h"
#include "core/detect/search_schedule.h"
#include "core/detect/step_boundary.h"
#include "core/detect/step_reporter.h"

namespace mfu {

/// How the steps seen so far compare with the reference.
struct FollowedSteps {
  std::uint64_t steps = 0;  ///< seen whole
  double exact = 0;         ///< share of launches of equal names, a moving average
  double same_length = 0;   ///< share of steps as long as the period, a moving average
  std::uint32_t micro_steps = 0, micro_step_launches = 0;
  bool one_update = false;  ///< the cycle's updates are not spread over it, as those of several steps are
};

struct PassesOfStep {
  std::uint32_t count = 1;
  std::uint32_t launches = 0;  ///< of one; 0: there is one
};
/// Passes inside the step of `period` launches from `begin`: where its beginning comes again, and all in between with
/// it.
[[nodiscard]] PassesOfStep passes_of_step(const LaunchHistory& history, LaunchPosition begin, std::uint32_t period);

/// [one thread]
class StepFollower {
 public:
  StepFollower(const LaunchHistory& history, SearchSchedule& schedule, StepReporter& reporter, Explainer& explain);

  /// Follows `candidate` from now on. The cycle followed so far, if it is a part of it, is taken back.
  void lock(const CycleCandidate& candidate);
  void unlock();
  /// Reports what can be reported of the launches so far. `final`: no more will come.
  void advance(bool final);
  /// A cycle without an optimizer that covers too little of what came since it was found is given up.
  void check_coverage();

  [[nodiscard]] bool locked() const noexcept { return locked_; }
  /// The last boundary reported begins a step that the one before led to.
  [[nodiscard]] bool in_step() const noexcept { return in_step_; }
  /// Nothing that looks like the cycle came for several periods: another loop may have begun.
  [[nodiscard]] bool lost() const noexcept;
  /// Half of the launches since the first boundary that can still be taken back are of steps that were seen.
  [[nodiscard]] bool mostly(const StepReporter& reporter) const noexcept {
    const Position covered = reporter.last() - std::min(reporter.first(), reporter.last());
    return seen_.steps >= 2 && seen_.steps * cycle_.period * 2 >= covered;
  }
  [[nodiscard]] const StepCycle& cycle() const noexcept { return cycle_; }
  [[nodiscard]] const FollowedSteps& seen() const noexcept { return seen_; }
  [[nodiscard]] StepKind kind() const noexcept;
  /// When advance() has something to do again.
  [[nodiscard]] LaunchPosition next_work() const noexcept;

  [[nodiscard]] std::size_t held_bytes() const noexcept { return finder_.held_bytes() + counts_.held_bytes(); }

 private:
  using Position = LaunchPosition;

  bool follow(bool final);
  bool ends_with_stream();
  bool scan(bool final);
  void step_seen(Position begin, Position end, bool another_follows);
  bool gives_way_to_optimizer(Position begin, Position end);
  void set_reference(Position begin, Position end);
  void find_micro_steps();
  [[nodiscard]] std::uint32_t longest_without_update() const noexcept;
  [[nodiscard]] bool is_part_of(std::uint32_t period);
  [[nodiscard]] double similarity(Position begin, Position end);

  const LaunchHistory& history_;
  SearchSchedule& schedule_;
  StepReporter& reporter_;
  Explainer& explain_;
  StepCycle cycle_;
  BoundaryFinder finder_;
  KeyCounts counts_;
  bool locked_ = false;
  bool in_step_ = false;
  Position step_begin_ = 0;  ///< where the step begins that is being followed, while in_step_
  Position scan_ = 0;        ///< where the next step is looked for, while not
  Position coverage_checked_ = 0;
  std::uint32_t last_length_ = 0;
  FollowedSteps seen_;
};

}  // namespace mfu

#include "core/detect/step_detector.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "core/detect/step_verdict.h"
#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;

}  // namespace

StepDetector::StepDetector(StepListener& listener, std::uint64_t first, DetectionLog* log)
    : history_(first),
      explain_(log, history_),
      schedule_(history_),
      search_(history_, explain_),
      reporter_(listener, history_),
      follower_(history_, schedule_, reporter_, explain_),
      training_(history_),
      serving_(first),
      next_work_(first + kT.search_every) {}

std::size_t StepDetector::held_bytes() const noexcept {
  return sizeof(*this) + history_.held_bytes() + search_.held_bytes() + follower_.held_bytes() + training_.held_bytes();
}

/// Copies to the device count where a thread makes them that launches kernels, too. A loader that runs ahead on a
/// thread of its own says nothing about where a step begins.
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
  if (is_of_loader(launch)) {
    Launch silent = launch;
    silent.traits.flags = 0;
    silent.traits.family = LaunchHistory::kLoaderFamily;
    history_.add(silent);
    if (history_.end() >= next_work_) run_pending(false);
    return;
  }
  const Position at = history_.add(launch);
  // In training, what looked like samples were losses that went to the host.
  if ((launch.traits.flags & (kFlagBackward | kFlagOptimizer | kFlagForeach)) != 0 && history_.training() &&
      serving_.ended() != 0) {
    serving_ = ServingIterations(at);
    serving_.in_training();
  }
  if (training_.add(launch, at)) step_ended();
  if (serving_.add(launch.traits, launch.grid, launch.name, at)) iteration_ended();
  if (history_.end() >= next_work_) run_pending(false);
}

void StepDetector::finish() {
  reporter_.stream_is_over(true);
  if (serving_found_ && serving_.finish()) iteration_ended();
  reporter_.stream_is_over(false);
  run_pending(true);
  update_findings();
}

// ---------------------------------------------------------------------------------------------- serving

/// Iterations of a server have taken training's place: reinforcement learning alternates, and a script may do one thing
/// after the other.
bool StepDetector::training_is_over() const noexcept {
  constexpr std::uint32_t kLeast = 64;
  // An evaluation takes an argmax of its batches, too; but it decodes nothing.
  const bool generates = serving_.usual_kind() == ServingKind::kDecode;
  const Position step = std::max<Position>(training_.longest_launches(), history_.training_gap());
  const Position several_steps = generates ? 0 : kT.steps_of_break * step;
  const Position quiet = history_.end() - history_.last_trained();
  // An evaluation, perhaps the last one, is a few dozen batches. Updates by name are training, found or not.
  const bool trains = training_found_ || (training_.count() != 0 && training_.named());
  if (trains && !may_generate() && serving_.ended() < kT.iterations_after_training) return false;
  return serving_.found() && quiet > 3 * std::max<Position>(history_.training_gap(), kLeast) && quiet > several_steps;
}

/// An evaluation takes batches in; a token follows from those before it. Where training takes none that are seen, as
/// those of a loader's thread are not, nothing tells the two apart.
bool StepDetector::may_generate() const noexcept {
  return serving_.usual_kind() == ServingKind::kDecode || (serving_.last().begin == 0 && training_.takes_batches());
}

void StepDetector::iteration_ended() {
  ends_[serving_.ended() % ends_.size()] = serving_.last();
  if (history_.training()) {
    serving_.in_training();
    if (!training_is_over()) return;
    explain_.say("training is over: iterations of a server have taken its place");
    if (training_found_ && training_.end_last()) report_step(0);
    history_.forget_training();
    was_training_ = training_found_;
    reporter_.confirm();
    follower_.unlock();
    training_found_ = false;
  }
  if (serving_found_)
    reporter_.report(serving_.last().launch, kind_of(serving_.last()));
  else if (serving_.found())
    start_serving();
  if (serving_found_) generates_ = was_training_ && may_generate();
  update_findings();
}

StepKind StepDetector::kind_of(const ServingIterations::End& end) const noexcept {
  return end.clean ? step_kind(serving_.kind_of(end)) : StepKind::kNone;
}

/// Sampling kernels mark iterations directly; they are preferred over a period.
void StepDetector::start_serving() {
  serving_found_ = true;
  explain_.say(serving_.samples()
                   ? "taken: iterations of a server, by samples that go to the host"
                   : "taken: iterations of a server, by turns of the host: copies in, the model, copies out");
  reporter_.withdraw();
  follower_.unlock();
  const std::uint64_t known = std::min<std::uint64_t>(serving_.ended(), ends_.size());
  std::uint64_t begin = serving_.ended() + 1 - known;
  // An evaluation may have run between the training and the tokens: a batch came in for each of its passes.
  if (was_training_ && serving_.last().begin == 0) {
    const auto is_fed = [&](std::uint64_t i) { return ends_[i % ends_.size()].begin != 0; };
    for (std::uint64_t i = begin; i < serving_.ended(); ++i)
      if (is_fed(i) && is_fed(i + 1)) begin = i + 1;
  }
  for (std::uint64_t i = begin; i <= serving_.ended(); ++i) {
    const ServingIterations::End& end = ends_[i % ends_.size()];
    // Where the first of them began is known where its batch alone was copied in.
    const bool first = i == begin;
    const bool is_known = first && end.begin > history_.oldest();
    if (is_known) reporter_.report(end.begin, StepKind::kNone);
    if (end.launch >= history_.oldest())
      reporter_.report(end.launch, first && !is_known ? StepKind::kNone : kind_of(end));
  }
}

/// Training after all, or sampling ended long ago: then the search goes on.
void StepDetector::check_serving() {
  const Position quiet = history_.end() - reporter_.last();
  if (history_.training() ||
      quiet > std::max<Position>(kRing / 2, static_cast<Position>(64 * serving_.mean_launches()))) {
    explain_.say(history_.training() ? "given up: iterations of a server, since the program trains"
                                     : "given up: iterations of a server, since none ended for long");
    serving_found_ = false;
    serving_ = ServingIterations(history_.end());
  }
  next_work_ = history_.end() + kT.search_every;
}

// ---------------------------------------------------------------------------------------------- training

/// Updates mark steps directly; they are preferred over a period.
void StepDetector::step_ended() {
  if (training_found_ && (training_.known() < 2 || training_.doubtful())) {  // passes of steps, as has turned out
    training_found_ = false;
    explain_.say("withdrawn: what counted as steps may be passes of steps, or other work runs between them");
    reporter_.withdraw();
  }
  if (!training_found_) {
    if (!training_.found()) {
      explain_training();
      return;
    }
    // A cycle that is followed knows better than passes without a named update, unless both say the same: then passes
    // do, which other work in between does not disturb.
    const bool equal = follower_.locked() && follower_.seen().steps != 0 &&
                       equal_periods(follower_.cycle().period, training_.usual_launches());
    // Passes win as well where most launches belong to no turn of the cycle, or where one step of theirs holds several
    // turns and an update.
    const bool better = equal || !follower_.locked() || follower_.lost() || !follower_.mostly(reporter_) ||
                        (training_.passes() > 1 && follower_.cycle().period * 5 < training_.usual_launches() * 4);
    if (!training_.named() && !better) return;
    explain_.say(training_.named() ? "taken: training steps, by the updates of a named optimizer"
                                   : "taken: training steps, by what runs between a backward pass and the next batch");
    training_found_ = true;
    // Where a program generates and trains by turns, what it generated stays.
    if (std::exchange(serving_found_, false) && generates_) reporter_.confirm();
    generates_ = false;
    const std::size_t kept = training_.known() - 1;
    if (equal)
      place_again(kept);
    else
      reporter_.withdraw_from(training_.back(kept).begin);
    follower_.unlock();
    for (std::size_t i = kept; i > 0; --i)
      if (training_.back(i).begin >= history_.oldest()) report_step(i);
  } else if (const std::size_t revised = training_.revised(); revised != 0) {
    reporter_.withdraw_from(training_.back(revised).update_end);
    for (std::size_t i = revised; i > 0; --i) report_step(i);
  }
  report_step(0);
  // Seldom: it looks at every launch of a step several times.
  const TrainingSteps::Step& last = training_.last();
  constexpr std::uint64_t kSeldom = 64;
  if (training_.named() && training_.passes() == 1 && training_.count() % kSeldom == 3 &&
      last.begin >= history_.oldest())
    passes_ = passes_of_step(history_, last.begin, static_cast<std::uint32_t>(last.update_end - last.begin));
  update_findings();
}

/// What was told of the cycle that was followed are these training steps, but its place in the cycle was chosen before
/// so much was known: it is told again where training steps begin or end.
/// \param kept the oldest training step that is known is the one so many before the last
void StepDetector::place_again(std::size_t kept) {
  const auto told = static_cast<std::int64_t>(reporter_.last());
  std::int64_t late = std::numeric_limits<std::int64_t>::max();
  Position first = history_.end();
  for (std::size_t i = 0; i <= kept; ++i) {
    const TrainingSteps::Step& step = training_.back(i);
    if (!step.certain) continue;
    first = step.begin;
    for (const Position at : {step.begin, step.end})
      if (const std::int64_t off = told - static_cast<std::int64_t>(at); std::abs(off) < std::abs(late)) late = off;
  }
  if (late == 0 || first == history_.end()) return;
  // A place that was chosen for nothing in particular tells nothing about where earlier steps begin; nor does one that
  // is not as far from the first of these steps as from the last.
  const bool everywhere = reporter_.reported_at(static_cast<Position>(static_cast<std::int64_t>(first) + late));
  if (!everywhere || (follower_.cycle().rule == BoundaryRule::kAnywhere && std::abs(late) > kT.burst)) {
    reporter_.withdraw_from(training_.back(kept).begin);
    return;
  }
  explain_.say("told again: what was told so far, " + std::to_string(std::abs(late)) + " launches " +
               (late > 0 ? "earlier" : "later"));
  reporter_.move_earlier(late, first);
}

/// \param back the step so many before the last
void StepDetector::report_step(std::size_t back) {
  const TrainingSteps::Step& step = training_.back(back);
  if (training_.steps_per_turn() > 1) {
    // A turn begins with the step that takes a batch; of an unknown one, with every second.
    const std::size_t before = back + 1;
    if (before + 1 >= training_.known() || !step.certain || !training_.back(before).certain) return;
    const bool here = step.copies > 0, there = training_.back(before).copies > 0;
    const bool ends_turn = here == there ? (training_.count() - back) % 2 == 0 : there;
    if (!ends_turn) return;
    reporter_.report(training_.back(before).begin, StepKind::kNone);
    reporter_.report(step.end, StepKind::kStep);
    return;
  }
  if (step.certain && (back + 1 >= training_.known() || training_.ends_step(training_.back(back + 1))))
    reporter_.report(step.begin, StepKind::kNone);
  if (!training_.ends_step(step)) return;
  reporter_.report(step.end, step.certain ? StepKind::kStep : StepKind::kNone);
}

/// No step for long: something else runs, and is searched for. The next step is known at once.
void StepDetector::check_training() {
  const Position quiet = history_.end() - training_.last().next;
  if (quiet > std::max<Position>(kRing, Position{4} * training_.usual_launches())) {
    explain_.say("no update for long: the search goes on");
    training_found_ = false;
    reporter_.confirm();  // whatever is found next, these were steps
    schedule_.restart();
  }
  next_work_ = history_.end() + kT.search_every;
}

void StepDetector::run_pending(bool final) {
  if (serving_found_) {
    check_serving();
  } else if (training_found_) {
    check_training();
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
  if (window == 0 || history_.flooded()) return;
  if (const auto found = search_.find(window)) {
    // At the end of the stream a longer candidate may be several turns and the work that came last: no further turn
    // will tell.
    const bool several = final && !lost && follower_.seen().steps * cycle.period >= Position{2} * found->period;
    // A lost cycle may be found again, by a step that other work did not leave its marks on.
    const bool gives_way = !follower_.locked() || lost ||
                           (!equal_periods(found->period, cycle.period) && !several &&
                            !(follower_.in_step() && found->period < kT.longer_while_followed * cycle.period));
    if (gives_way)
      follower_.lock(*found);
    else if (!equal_periods(found->period, cycle.period))
      explain_.say_of(found->period, "shorter",
                      "a cycle of " + std::to_string(found->period) + " launches is refused: that of " +
                          std::to_string(cycle.period) + " is followed");
  }
  follower_.advance(final);
}

void StepDetector::update_findings() {
  const bool followed = follower_.locked() && follower_.seen().steps != 0;
  const bool marked = serving_found_ || training_found_;
  if (!marked && !followed && reporter_.last() != 0 && history_.end() - reporter_.last() < kRing) {
    // What was reported stays, but nothing has followed since.
    findings_ = followed_;
    findings_.confidence = StepConfidence::kLow;
    return;
  }
  if (serving_found_)
    findings_ = findings_of(serving_);
  else if (training_found_)
    findings_ = findings_of(training_, passes_);
  else
    findings_ = followed ? findings_of(follower_, reporter_) : StepFindings{};
  findings_.shortest_repeat = search_.shortest_repeat();
  if (followed || training_found_) followed_ = findings_;
  if (explain_.wanted()) explain_findings();
}

/// Why no step was taken from passes and updates, once for each reason.
void StepDetector::explain_training() {
  if (!explain_.wanted()) return;
  const char* why = training_.why_not_found();
  explain_.say_of(0, why,
                  std::string("training steps are not taken yet: ") + why + " (" + std::to_string(training_.count()) +
                      " passes or updates seen)");
}

/// Says what is known, where that has changed, and what the confidence comes from.
void StepDetector::explain_findings() {
  const StepFindings& f = findings_;
  const bool same = f.kind == explained_.kind && f.confidence == explained_.confidence && f.rule == explained_.rule &&
                    f.micro_steps == explained_.micro_steps &&
                    equal_periods(f.period_launches, explained_.period_launches);
  if (same) return;
  explained_ = f;
  const auto percent = [](double share) { return std::to_string(static_cast<int>(100 * share + 0.5)) + " %"; };
  std::string text = "now: " + std::string(name(f.kind)) + " of " + std::to_string(f.period_launches) + " launches, " +
                     cut_by(f.rule) + ", confidence " + std::string(name(f.confidence));
  if (training_found_)
    text += " (names equal to " + percent(training_.exact()) + ", " + percent(training_.same_length()) +
            " of equal length" + (training_.named() ? ")" : ", no named optimizer)");
  else if (serving_found_)
    text +=
        " (" + percent(serving_.recurring()) + " of a known make-up, " + std::to_string(serving_.ended()) + " seen)";
  else if (follower_.locked())
    text += " (names equal to " + percent(follower_.seen().exact) + ", " + percent(follower_.seen().same_length) +
            " of equal length, holds " + percent(follower_.cycle().coverage) + " of the names)";
  explain_.say(text);
}

}  // namespace mfu

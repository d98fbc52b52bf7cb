#include "core/detect/step_follower.h"

#include <algorithm>
#include <string>

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;

}  // namespace

StepFollower::StepFollower(const LaunchHistory& history, SearchSchedule& schedule, StepReporter& reporter,
                           Explainer& explain)
    : history_(history), schedule_(schedule), reporter_(reporter), explain_(explain), finder_(history, cycle_) {}

// ---------------------------------------------------------------------------------------------- lock

void StepFollower::lock(const CycleCandidate& c) {
  const std::uint32_t p = c.period;
  const Position n = history_.end();
  if (locked_ && !cycle_.optimizer && p > cycle_.period + cycle_.period / 2 && is_part_of(p)) {
    explain_.say("withdrawn: the cycle of " + std::to_string(cycle_.period) + " launches is a part of a longer one");
    reporter_.withdraw();
  }
  // Fewer in a row than some programs accumulate may be passes of one step: that is still to turn out.
  const bool may_be_passes =
      locked_ && !cycle_.optimizer && history_.training() && seen_.steps <= kT.passes_without_update;
  locked_ = true;
  schedule_.restart();
  cycle_ = {};
  cycle_.period = p;
  cycle_.trait_flags = c.trait_flags;
  cycle_.optimizer = c.optimizer;
  cycle_.coverage = c.coverage;
  cycle_.by_family = c.by_family;
  const Position room = std::min<Position>(finder_.surroundings(), n - 2 * p);
  const Position boundary = place_boundary(history_, n - p - room, cycle_);
  set_reference(boundary - p, boundary);
  in_step_ = false;
  scan_ = std::max(reporter_.last(), history_.oldest());
  if (!may_be_passes) reporter_.confirm();
  last_length_ = 0;
  seen_ = {};
  finder_.measure_agreement();
  find_micro_steps();
  explain_.say("taken: a cycle of " + std::to_string(p) + " launches, " + cut_by(cycle_.rule) + ", first at launch " +
               std::to_string(boundary));
  seen_.one_update = !cycle_.optimizer || longest_without_update() * 20 > p * kT.optimizer_free;
}

void StepFollower::unlock() {
  locked_ = false;
  in_step_ = false;
  schedule_.restart();
}

/// In the reference step, taken for a circle [launch].
std::uint32_t StepFollower::longest_without_update() const noexcept {
  Position first = 0, previous = 0, longest = 0;
  bool any = false;
  for (Position i = cycle_.begin; i < cycle_.end; ++i) {
    if (!history_.is_optimizer(i)) continue;
    if (any)
      longest = std::max(longest, i - previous);
    else
      first = i;
    any = true;
    previous = i;
  }
  const Position length = cycle_.end - cycle_.begin;
  return static_cast<std::uint32_t>(any ? std::max(longest, first + length - previous) : length);
}

/// The cycle that was followed is in the last `period` launches, by its names.
bool StepFollower::is_part_of(std::uint32_t period) {
  const auto& family = history_.families();
  const Position n = history_.end();
  for (Position i = n - period; i < n; ++i) counts_[family[i]] = 1;
  std::uint32_t inside = 0;
  const Position begin = std::max(cycle_.begin, history_.oldest());
  for (Position i = begin; i < cycle_.end; ++i) inside += static_cast<std::uint32_t>(counts_[family[i]]);
  for (Position i = n - period; i < n; ++i) counts_[family[i]] = 0;
  return begin < cycle_.end && inside * 10 >= (cycle_.end - begin) * 9;
}

void StepFollower::check_coverage() {
  if (history_.newest_name() < coverage_checked_) return;
  coverage_checked_ = history_.end();
  if (cycle_.begin < history_.oldest()) return;
  const LaunchHistory::Keys& keys = cycle_.by_family ? history_.families() : history_.names();
  for (Position i = cycle_.begin; i < cycle_.end; ++i) counts_[keys[i]] = 2;
  std::uint32_t inside = 0, remembered = 0;
  history_.for_each_name([&](Position last) { counts_[keys[last]] |= 1; });
  history_.for_each_name([&](Position last) {
    std::int32_t& count = counts_[keys[last]];
    remembered += count & 1;
    inside += count == 3 ? 1 : 0;
    count &= 2;
  });
  for (Position i = cycle_.begin; i < cycle_.end; ++i) counts_[keys[i]] = 0;
  if (seen_.steps >= repeats_of_stack(static_cast<double>(inside) / remembered)) return;
  explain_.say("withdrawn: new names appeared that the cycle of " + std::to_string(cycle_.period) +
               " launches does not hold");
  reporter_.withdraw();
  unlock();
}

void StepFollower::set_reference(Position begin, Position end) {
  cycle_.begin = begin;
  cycle_.end = end;
  finder_.weigh_surroundings();
}

// ---------------------------------------------------------------------------------------------- following

bool StepFollower::lost() const noexcept {
  return locked_ && !in_step_ &&
         history_.end() - reporter_.last() > static_cast<Position>(kT.lost_periods) * cycle_.period;
}

StepKind StepFollower::kind() const noexcept {
  return history_.training() || cycle_.optimizer ? StepKind::kStep : StepKind::kIteration;
}

LaunchPosition StepFollower::next_work() const noexcept {
  const Position n = history_.end();
  if (!locked_) return n + kT.search_every;
  if (in_step_) return std::max(n + 1, step_begin_ + cycle_.period + finder_.slack() + finder_.surroundings());
  return n + std::clamp<std::uint32_t>(cycle_.period / 8, 16, kT.search_every);
}

void StepFollower::advance(bool final) {
  for (bool progress = true; progress && locked_;) progress = in_step_ ? follow(final) : scan(final);
}

double StepFollower::similarity(Position begin, Position end) {
  return end > begin ? multiset_similarity(history_.families(), cycle_.begin, cycle_.end, begin, end, counts_) : 0;
}

/// The step that begins at step_begin_. \return true: there may be more to do
bool StepFollower::follow(bool final) {
  const Position expected = step_begin_ + cycle_.period, n = history_.end();
  const std::uint32_t slack = finder_.slack(), around = finder_.surroundings();
  if (n < expected + slack + around && !final) return false;
  if (n < expected + std::min(around, 8u)) return final && ends_with_stream();
  BoundaryFinder::Found found = finder_.find(expected, slack, BoundaryFinder::kBoth);
  if (finder_.agrees(found) && finder_.ends_with_update(found.at) && similarity(step_begin_, found.at) >= kT.similar) {
    const Position begin = step_begin_;
    step_begin_ = found.at;
    reporter_.report(found.at, kind());
    step_seen(begin, found.at, true);
    return true;
  }
  // Something else begins where the next step should: the step itself may have been whole.
  found = finder_.find(expected, slack, BoundaryFinder::kBefore);
  in_step_ = false;
  scan_ = step_begin_ + 1;
  if (explain_.wanted())
    explain_.say_of(cycle_.period, "interrupted",
                    "the step that began at launch " + std::to_string(step_begin_) +
                        " is not followed by another: other work runs, or it changed");
  if (found.score >= kT.agreement_most && finder_.ends_with_update(found.at) &&
      similarity(step_begin_, found.at) >= kT.whole_step) {
    scan_ = found.at + 1;
    reporter_.report(found.at, kind());
    step_seen(step_begin_, found.at, false);
  }
  return true;
}

/// Nothing follows what was asked of a model last, but it may have been whole. Of a training step that ends where
/// records do, nobody knows whether its update had come to its end. \return false: there is nothing more to do
bool StepFollower::ends_with_stream() {
  if (kind() != StepKind::kIteration || cycle_.rule == BoundaryRule::kAnywhere) return false;
  const Position end = history_.end();
  const std::uint32_t slack = finder_.slack();
  if (end + slack < step_begin_ + cycle_.period || similarity(step_begin_, end) < kT.whole_step) return false;
  const BoundaryFinder::Found found = finder_.find(end, 0, BoundaryFinder::kBefore);
  if (found.score < kT.agreement_most) return false;
  reporter_.stream_is_over(true);
  reporter_.report(end, kind());
  reporter_.stream_is_over(false);
  step_seen(step_begin_, end, false);
  return false;
}

/// Looks for the next place from which a whole step runs. \return true: there may be more to do
bool StepFollower::scan(bool final) {
  const std::uint32_t p = cycle_.period, slack = finder_.slack(), around = finder_.surroundings();
  const std::uint32_t room = final ? std::min(around, 8u) : slack + around;
  scan_ = std::max(scan_, history_.oldest());
  for (; scan_ + p + room <= history_.end(); ++scan_) {
    if (!finder_.starts_like_step(scan_)) continue;
    BoundaryFinder::Found start = finder_.find(scan_, std::min(8u, p / 4), BoundaryFinder::kAfter);
    if (!finder_.agrees(start)) continue;
    const BoundaryFinder::Found next = finder_.find(start.at + p, slack, BoundaryFinder::kBoth);
    if (!finder_.agrees(next) || next.at <= start.at || !finder_.ends_with_update(next.at)) continue;
    if (similarity(start.at, next.at) < kT.similar) continue;
    // An evaluation's passes begin like a step as well: what begins one cycle before the end is nearer to the truth,
    // unless a step ended there.
    if (next.at > start.at + p && start.at != reporter_.last()) {
      const BoundaryFinder::Found later = finder_.find(next.at - p, slack, BoundaryFinder::kAfter);
      if (later.score >= start.score && later.at > start.at && later.at < next.at) start = later;
    }
    const Position before = reporter_.last();
    // Of the very first one nobody saw what came before it; before a later one ran a step all the same, or other work.
    const bool whole = before != 0 && start.at > before && start.at - before <= p + slack &&
                       start.at - before + slack >= p && similarity(before, start.at) >= kT.similar;
    if (before != 0) reporter_.report(start.at, whole ? kind() : StepKind::kNone);
    in_step_ = true;
    step_begin_ = next.at;
    reporter_.report(next.at, kind());
    if (seen_.steps > 0 && before != 0 && start.at > before && gives_way_to_optimizer(before, start.at)) return true;
    step_seen(start.at, next.at, true);
    return true;
  }
  return false;
}

void StepFollower::step_seen(Position begin, Position end, bool another_follows) {
  const auto length = static_cast<std::uint32_t>(end - begin);
  ++seen_.steps;
  if (gives_way_to_optimizer(begin, end)) return;
  const double exact = multiset_similarity(history_.names(), cycle_.begin, cycle_.end, begin, end, counts_);
  const double weight = std::max(1.0 / static_cast<double>(seen_.steps), 1.0 / 16);
  seen_.exact += weight * (exact - seen_.exact);
  seen_.same_length += weight * ((length == cycle_.period ? 1.0 : 0.0) - seen_.same_length);
  const bool usual = length == cycle_.period || length == last_length_;
  if (length == last_length_ && length != cycle_.period) cycle_.period = length;
  last_length_ = length;
  // The reference moves along, so that slow changes do not add up.
  const Position oldest = history_.oldest();
  const Position soon_forgotten = oldest + (oldest > 0 ? LaunchHistory::kRing / 8 : 0);
  if (another_follows && end + finder_.surroundings() <= history_.end() && (usual || cycle_.begin < soon_forgotten))
    set_reference(begin, end);
}

/// An optimizer in a step, or between two, of a cycle that has none: the cycles were parts of a step.
/// \return true: the lock is gone
bool StepFollower::gives_way_to_optimizer(Position begin, Position end) {
  if (cycle_.optimizer) return false;
  for (Position i = std::max(begin, history_.oldest()); i < end; ++i) {
    if (!history_.is_optimizer(i)) continue;
    explain_.say("withdrawn: an optimizer ran, which the cycle of " + std::to_string(cycle_.period) +
                 " launches does not hold");
    reporter_.withdraw();
    unlock();
    return true;
  }
  return false;
}

void StepFollower::find_micro_steps() {
  seen_.micro_steps = cycle_.optimizer ? 1 : 0;
  if (!cycle_.optimizer) return;
  const PassesOfStep passes = passes_of_step(history_, cycle_.begin, cycle_.period);
  seen_.micro_steps = passes.count;
  seen_.micro_step_launches = passes.launches;
}

PassesOfStep passes_of_step(const LaunchHistory& history, LaunchPosition begin, std::uint32_t p) {
  const auto& family = history.families();
  const std::uint32_t w = std::min(32u, p / 2);
  for (std::uint32_t m = std::max(w, p / 64); m <= p / 2 + 1 && m < p; ++m) {
    std::uint32_t equal = 0;
    for (std::uint32_t i = 0; i < w; ++i) {
      equal += family[begin + i] == family[begin + m + i] ? 1 : 0;
      if (i == 7 && equal < 4) break;
    }
    if (equal * 10 < w * 8) continue;
    const std::uint32_t passes = p / m;
    std::uint32_t same = 0;
    const std::uint32_t compared = (passes - 1) * m;
    for (std::uint32_t i = 0; i < compared; ++i) same += family[begin + i] == family[begin + m + i] ? 1 : 0;
    if (same * 10u >= compared * 9u) return {passes, m};
  }
  return {};
}

}  // namespace mfu

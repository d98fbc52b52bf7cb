#include "core/detect/training_steps.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;

constexpr LaunchKey kLoader = LaunchHistory::key_of_family(LaunchHistory::kLoaderFamily);
constexpr std::uint32_t kReach = 4;  ///< launches that one stray, or a loader's copies, may be

bool within_an_eighth(std::uint64_t a, std::uint64_t b) noexcept {
  const std::uint64_t more = std::max(a, b), less = std::min(a, b);
  return (more - less) * 8 <= more + 8;
}

bool within_a_64th(std::uint64_t a, std::uint64_t b) noexcept { return (a > b ? a - b : b - a) * 64 <= b; }

bool within_a_sixteenth(std::uint64_t a, std::uint64_t b) noexcept { return (a > b ? a - b : b - a) * 16 <= b; }

/// Of one make-up: as many launches of optimizers and of backward passes.
bool alike(const TrainingSteps::Step& a, const TrainingSteps::Step& b) noexcept {
  return within_an_eighth(a.updates, b.updates) && within_an_eighth(a.backwards, b.backwards);
}

struct FixedShare {
  double similarity = 0;
  std::uint64_t a = 0, b = 0;  ///< launches compared
};
/// multiset_similarity() of the launches of no family: what depends neither on shapes nor on a loader's thread.
FixedShare fixed_similarity(const LaunchHistory::Keys& families, LaunchPosition a, LaunchPosition a_end,
                            LaunchPosition b, LaunchPosition b_end, KeyCounts& counts) {
  const auto is_fixed = [&](LaunchPosition i) { return families[i] < LaunchHistory::kVocabulary; };
  FixedShare share;
  for (LaunchPosition i = a; i < a_end; ++i) {
    if (!is_fixed(i)) continue;
    ++share.a;
    ++counts[families[i]];
  }
  for (LaunchPosition i = b; i < b_end; ++i) {
    if (!is_fixed(i)) continue;
    ++share.b;
    --counts[families[i]];
  }
  std::uint64_t unlike = 0;
  const auto take = [&](LaunchPosition i) {
    if (is_fixed(i)) unlike += static_cast<std::uint64_t>(std::abs(std::exchange(counts[families[i]], 0)));
  };
  for (LaunchPosition i = a; i < a_end; ++i) take(i);
  for (LaunchPosition i = b; i < b_end; ++i) take(i);
  const std::uint64_t longer = std::max(share.a, share.b);
  if (longer != 0) share.similarity = static_cast<double>(share.a + share.b - unlike) / 2 / static_cast<double>(longer);
  return share;
}

/// Launches after a pass, without a loader's copies, which come anywhere.
std::uint32_t own_gap(const TrainingSteps::Step& s) noexcept { return s.gap - s.loaded; }

/// Without what may follow the update, as a line of the log.
std::uint64_t length(const TrainingSteps::Step& s) noexcept { return s.update_end - s.begin; }

}  // namespace

bool TrainingSteps::mark(const Launch& launch, Position p) {
  const std::uint8_t flags = launch.traits.flags;
  if ((flags & kFlagToDevice) != 0) {
    copies_since_backward_ = true;
    // Another thread's copies, as of a loader that runs ahead, come at any place.
    if (open_ && (launch.thread == 0 || caller_ == 0 || launch.thread == caller_)) note_copy(p);
    return false;
  }
  if ((flags & (kFlagSampling | kFlagToHost)) != 0) foreign_ += (flags & kFlagSampling) != 0 ? kT.burst : 1;
  if ((flags & kFlagLoss) != 0) {
    ++losses_;
    loss_since_backward_ = loss_seen_ = true;
    caller_ = launch.thread;
  }
  bool complete = false;
  if ((flags & kFlagBackward) != 0) {
    const bool marked = loss_since_backward_ || copies_since_backward_;
    const bool bare = long_absence(p, marked);
    const bool pass = bare || marked;
    if (updated_) {
      // An optimizer that runs inside the backward pass ends no step: another forward pass must have run.
      // Where records of it were lost, the step before may be whole all the same.
      complete = pass || (count_ != 0 && alike(now_, last())) ||
                 (!loss_seen_ && !copies_seen_ && (p - update_end_) * 6 >= update_end_ - now_.begin);
    } else if (open_ && !history_.optimizer_known() && !updates_named_ && pass) {
      update_end_ = last_backward_ + 1;
      complete = true;
    }
    if (complete) {
      start_step(p);
    } else if (!open_) {
      now_.first_backward = p;
      now_.begin = p;
    }
    updated_ = false;
    if (loss_since_backward_ || bare || now_.passes == 0) ++now_.passes;
    // What was copied before the first backward pass may be weights.
    copies_seen_ = copies_seen_ || (copies_since_backward_ && last_backward_ != 0);
    loss_since_backward_ = copies_since_backward_ = false;
    open_ = true;
    if (complete) foreign_before_ = foreign_;
    run_count_ = foreign_ = losses_ = 0;
    last_backward_ = p;
    ++now_.backwards;
  }
  if (open_ && history_.is_optimizer(p)) {
    updated_ = updates_named_ = true;
    update_end_ = p + 1;
    caller_ = launch.thread;
    run_count_ = foreign_ = losses_ = 0;
    last_copy_ = 0;
    if (now_.updates++ == 0 && count_ != 0 && !named()) forget_passes();
    loss_since_backward_ = false;
    copies_since_backward_ = false;
  }
  return complete;
}

/// Neither losses nor batches mark the passes of this program, but no backward launch came for long before `p`.
bool TrainingSteps::long_absence(Position p, bool marked) noexcept {
  constexpr double kTimes = 4, kLeast = 32, kForget = 1.0 / 16;
  if (last_backward_ == 0) {
    losses_named_ = loss_seen_;
    return false;
  }
  if (losses_named_) return false;
  const auto absence = static_cast<double>(p - last_backward_);
  if (usual_absence_ == 0 || absence < kLeast || absence < kTimes * usual_absence_) {
    usual_absence_ = std::max(absence, usual_absence_ * (1 - kForget));
    return false;
  }
  ++(marked ? marked_passes_ : bare_passes_);
  return bare_passes_ > 2 * marked_passes_ + 2;
}

/// An update with a name came after all: what counted as steps may have been passes of one.
void TrainingSteps::forget_passes() noexcept {
  count_ = compared_ = odd_ = steps_seen_ = 0;
  forward_count_ = passes_ = 0;
  step_begin_ = 0;
  now_.certain = false;
}

void TrainingSteps::note_copy(Position p) {
  if (prefetches_) return;
  if (last_copy_ != 0 && p - last_copy_ <= 4 && run_count_ != 0) {
    ++runs_[(run_count_ - 1) % runs_.size()].copies;
  } else {
    runs_[run_count_ % runs_.size()] = {p, 1};
    ++run_count_;
  }
  last_copy_ = p;
}

/// A forward pass ran after the last update, and went backward at `backward`: the step before is complete.
void TrainingSteps::start_step(Position backward) {
  bool contiguous = false;
  certain_ = true;
  Position begin = begin_before(backward, contiguous);
  if (copies_ahead(backward)) {
    prefetches_ = true;
    contiguous = true;
    forget_passes();
    run_count_ = 0;
    begin = update_end_;
  }
  // An update without a name is as long as the longest that another step followed at once.
  const bool named_update = now_.updates != 0;
  now_.end = contiguous ? begin : std::min(begin, update_end_ + (named_update ? tail_ : most_gap_));
  now_.next = begin;
  if (std::exchange(ended_, false)) {
    begin_step(begin, backward, false);
    return;
  }
  now_.update_end = update_end_;
  now_.followed = contiguous;
  now_.gap = static_cast<std::uint32_t>(std::min<Position>(contiguous ? begin - update_end_ : 0, 1u << 31));
  if (!contiguous && !named_update) {
    now_.gap = usual_gap_before_other_work();
    now_.updates_unnamed = now_.gap != 0;
    if (now_.updates_unnamed) now_.end = std::min(begin, update_end_ + now_.gap);
  }
  if (!named_update) now_.loaded = loaded(update_end_, update_end_ + now_.gap);
  now_.batch_follows = run_count_ != 0;
  now_.begin_follows = now_.batch_follows || (forward_known_ && certain_);
  now_.talks = foreign_ != 0;
  now_.products_follow =
      named_update && contiguous && update_end_ >= history_.oldest() && holds_product(update_end_, begin);
  steps_[++count_ % kKept] = now_;
  // Of the very first one nobody saw the begin; where there was no room for it, the next one is taken for no step
  // either.
  const Position forward = now_.first_backward - now_.begin;
  const bool room = (back(1).first_backward - history_.oldest()) * 8 >= forward * 7;
  if (count_ == 2 && (!room || !alike(last(), back(1)))) steps_[count_ % kKept].certain = false;
  if (contiguous) learn(begin, backward);
  revised_ = 0;
  add_rest_of_updates();
  find_turns();
  compare();
  begin_step(begin, backward, run_count_ > 0 && contiguous);
}

void TrainingSteps::begin_step(Position begin, Position backward, bool copies) {
  now_ = {};
  now_.copies = copies ? 1 : 0;
  now_.begin = begin;
  now_.first_backward = backward;
  now_.certain = certain_;
}

bool TrainingSteps::end_last() {
  if (ended_ || count_ == 0 || !now_.certain) return false;
  if (now_.updates != 0) {
    if (!updated_) return false;
    now_.update_end = update_end_;
    now_.end = std::min<Position>(update_end_ + tail_, history_.end());
  } else {
    // Without a name the update is as long as after a step that the next one followed at once.
    if (updates_named_ || !open_) return false;
    now_.update_end = update_end_ = last_backward_ + 1;
    now_.gap = usual_gap_before_other_work();
    now_.updates_unnamed = now_.gap != 0;
    if (!now_.updates_unnamed && most_gap_ != 0) return false;
    now_.end = update_end_ + now_.gap;
  }
  now_.next = now_.end;
  steps_[++count_ % kKept] = now_;
  ended_ = true;
  return true;
}

/// What runs after the pass at hand, before other work, is what runs after a pass that the next one followed at once:
/// how long that is. 0: it is not.
std::uint32_t TrainingSteps::usual_gap_before_other_work() const noexcept {
  const auto& family = history_.families();
  for (std::size_t i = 0; i + 1 < known(); ++i) {
    const Step& other = back(i);
    if (!other.followed || other.gap == 0 || own_gap(other) < update_gap_ || other.update_end < history_.oldest())
      continue;
    if (update_end_ + other.gap > history_.end()) continue;
    std::uint32_t equal = 0;
    for (std::uint32_t k = 0; k < other.gap; ++k)
      equal += family[update_end_ + k] == family[other.update_end + k] ? 1 : 0;
    if (equal >= kT.similar * other.gap) return other.gap;
  }
  return 0;
}

/// Where the step begins whose backward pass begins at `backward`.
LaunchPosition TrainingSteps::begin_before(Position backward, bool& contiguous) {
  const std::uint32_t kept = std::min<std::uint32_t>(run_count_, static_cast<std::uint32_t>(runs_.size()));
  const auto run = [&](std::uint32_t i) { return runs_[(run_count_ - kept + i) % runs_.size()]; };
  Position first = update_end_;
  std::uint32_t most = 0;
  const std::uint32_t known = std::min<std::uint32_t>(forward_count_, static_cast<std::uint32_t>(forwards_.size()));
  std::array<std::uint32_t, 5> sorted = forwards_;
  std::sort(sorted.begin(), sorted.begin() + known);
  const Position usual = known > 0 ? sorted[known / 2] : 0;
  const Position tolerance = usual / 8 + std::min<Position>(16, usual / 4);
  const auto off = [&](Position at) {
    const Position distance = backward - at;
    return distance > usual ? distance - usual : usual - distance;
  };
  if (known == 0) {
    // The fullest run of copies: a batch, not a number for the log.
    for (std::uint32_t i = 0; i < kept; ++i) {
      if (run(i).copies <= 4 * most) continue;
      first = run(i).begin;
      most = run(i).copies;
    }
    contiguous = true;
    return first;
  }
  // One batch, and nothing ran before it: however long the forward pass is.
  if (run_count_ == 1 && run(0).begin <= update_end_ + tail_ + kReach && little_to_host()) {
    contiguous = true;
    return run(0).begin;
  }
  // Of the runs of copies, the one from which the forward pass is as long as usual; or the only one, if no model ran
  // before it.
  const bool only = run_count_ == 1 && update_end_ >= history_.oldest() && !holds_product(update_end_, run(0).begin);
  Position best = only ? run(0).begin : 0;
  for (std::uint32_t i = 0; !only && i < kept; ++i) {
    if (off(run(i).begin) > tolerance) continue;
    if (best == 0 || run(i).copies > most || (run(i).copies == most && off(run(i).begin) < off(best))) {
      best = run(i).begin;
      most = run(i).copies;
    }
  }
  if (best != 0) {
    // What lies between is an update without a name, or other work.
    const bool rest = rest_of_update(best);
    contiguous = (best - update_end_ <= tail_ + tolerance && little_to_host()) ||
                 (!updates_named_ && best == run(0).begin && foreign_ < kT.burst) || rest;
    return best;
  }
  if (by_likeness()) return begin_of_forward(backward, contiguous);
  const Position after_update = update_end_ + (copies_usual_ ? tail_ : 0);
  // Where less than a forward pass was seen, records were lost, the batch's copies perhaps among them.
  first = kept > 0 && (backward > after_update + usual || run(0).begin <= after_update) ? run(0).begin : after_update;
  const Position distance = backward - first;
  // A line of the log, which ends with a copy to the host, is as many launches however short a step is.
  const Position logged = foreign_ != 0 && foreign_ < kT.burst ? Position{kT.burst} : 0;
  const auto like = [&](Position other) {
    return distance + tolerance >= other && distance <= other + std::max(tolerance, logged);
  };
  contiguous = distance < usual;  // shorter than most before: nothing else can have run
  for (std::uint32_t i = 0; i < known; ++i) contiguous = contiguous || like(forwards_[i]);
  contiguous = contiguous && little_to_host();
  // What is unusual twice among three is another kind of step: two networks take turns.
  const bool turns = like(unusual_[0]) || like(unusual_[1]);
  contiguous = contiguous || (turns && foreign_ < kT.burst);
  unusual_ = {contiguous ? 0 : distance, unusual_[0]};
  if (contiguous) return first;
  const bool any_length = known > 2 && sorted[known - 1] - sorted[0] > tolerance;
  if (const Position begin = any_length ? by_landmarks(first, backward, contiguous) : 0; begin != 0) return begin;
  const Position begin = like_reference(backward - usual, static_cast<std::uint32_t>(tolerance));
  contiguous = certain_ && rest_of_update(begin);
  return begin;
}

/// Where forward passes are of any length, what an earlier one ran once tells them: all of it once since the update is
/// one pass, and more is other work, and the pass that came last.
/// \param first where the forward pass begins if nothing else ran
/// \return where it begins; 0: that is not known
LaunchPosition TrainingSteps::by_landmarks(Position first, Position backward, bool& contiguous) {
  constexpr Position kMost = 1u << 15;  // launches that are compared
  constexpr std::int32_t kOne = 1, kHere = 1 << 15;
  constexpr std::uint32_t kLeast = 2;
  const Step* of = nullptr;
  for (std::size_t i = 0; of == nullptr && i <= 4 && i < known() + 1; ++i) {
    const Step& step = i == 0 ? now_ : back(i - 1);
    const bool usable = step.certain && step.begin >= history_.oldest() && step.first_backward > step.begin;
    if (usable && step.first_backward - step.begin < kMost) of = &step;
  }
  if (of == nullptr || update_end_ < history_.oldest() || backward - update_end_ >= kMost) return 0;
  const auto& family = history_.families();
  for (Position i = of->begin; i < of->first_backward; ++i) counts_[family[i]] += kOne;
  for (Position i = update_end_; i < backward; ++i) counts_[family[i]] += kHere;
  const auto is_landmark = [&](Position i) {
    return (counts_[family[i]] & (kHere - 1)) == kOne && (history_.flags(i) & (kFlagToDevice | kFlagToHost)) == 0;
  };
  std::uint32_t landmarks = 0, once = 0, more = 0, strange = 0;
  Position head = 0;
  for (Position i = of->begin; i < of->first_backward; ++i) {
    if (!is_landmark(i)) continue;
    if (landmarks++ == 0) head = i;
    const std::int32_t here = counts_[family[i]] / kHere;
    once += here == 1 ? 1 : 0;
    more += here > 1 ? 1 : 0;
  }
  for (Position i = update_end_; i < backward; ++i) strange += (counts_[family[i]] & (kHere - 1)) == 0 ? 1 : 0;
  for (Position i = of->begin; i < of->first_backward; ++i) counts_[family[i]] = 0;
  for (Position i = update_end_; i < backward; ++i) counts_[family[i]] = 0;
  if (landmarks < kLeast) return 0;
  if (once * 4 >= landmarks * 3 && strange <= kT.log_line && little_to_host()) {
    contiguous = true;
    return first;
  }
  if ((once + more) * 2 < landmarks) return 0;
  // The last of what comes first in it, as far from its begin as there.
  const Position distance = head - of->begin;
  if (distance > kT.before_first_product) return 0;
  Position at = backward;
  while (at > update_end_ && family[at - 1] != family[head]) --at;
  if (at <= update_end_ + distance + 1) return 0;
  contiguous = false;
  return at - 1 - distance;
}

/// What runs from the named part of the update to `begin` is the rest of it, which has no name: as much ran there after
/// one of the last few steps, no matrix product is among it, and little goes to the host. A step that is left out, as
/// loss scaling does where a gradient overflows, has the named part alone.
bool TrainingSteps::rest_of_update(Position begin) noexcept {
  now_.may_be_update = updates_named_ && foreign_ < kT.burst && begin > update_end_ &&
                       update_end_ >= history_.oldest() && !holds_product(update_end_, begin);
  if (!now_.may_be_update) return false;
  const Position gap = begin - update_end_, stray = kT.stray_launches + gap / 16;
  constexpr std::size_t kFew = 4;
  for (std::size_t i = 0; i < kFew && i + 1 < known(); ++i) {
    const Step& step = back(i);
    const Position other = step.next - step.update_end;
    if ((step.followed || step.may_be_update) && gap <= other + stray && other <= gap + stray) return true;
  }
  return false;
}

/// What ran after some of the last steps was taken for other work, and is the rest of their updates: as after the last.
void TrainingSteps::add_rest_of_updates() {
  constexpr std::size_t kFew = 4;
  const Step& now = last();
  if (!now.followed || !now.may_be_update || now.update_end < history_.oldest()) return;
  for (std::size_t i = 1; i <= kFew && i + 1 < known(); ++i) {
    Step& step = steps_[(count_ - i) % kKept];
    if (step.followed || !step.may_be_update || step.update_end < history_.oldest()) continue;
    if (share_of_names(step.update_end, step.next, now.update_end, now.next) < kT.similar_by_name) continue;
    step.followed = true;
    step.end = step.next;
    step.gap = static_cast<std::uint32_t>(step.next - step.update_end);
    revised_ = i;
  }
}

/// A loader's copies.
std::uint32_t TrainingSteps::loaded(Position begin, Position end) const noexcept {
  std::uint32_t copies = 0;
  for (Position i = std::max(begin, history_.oldest()); i < end; ++i)
    copies += history_.families()[i] == kLoader ? 1 : 0;
  return copies;
}

bool TrainingSteps::holds_product(Position begin, Position end) const noexcept {
  for (Position i = begin; i < end; ++i)
    if (is_product(i)) return true;
  return false;
}

/// The copies since the update are of the batch after the next: they lie in the middle of a forward pass, since a
/// matrix product comes before them, and what runs from there to them runs after them, too. Twice in a row, since other
/// work may run before a step.
bool TrainingSteps::copies_ahead(Position backward) {
  if (run_count_ == 0 || run_count_ > runs_.size() || !updates_named_ || update_end_ < history_.oldest()) return false;
  const Position copies = runs_[0].begin;
  Position begin = update_end_;
  while (begin < copies && !is_product(begin)) ++begin;
  const auto [names, again] = names_held(copies, backward, begin, copies);
  // Or next to nothing of the pass is left.
  const bool late = (backward - copies) * 8 <= copies - begin && backward - copies <= kT.before_first_product;
  const bool ahead = names >= 2 && (again * 3 >= names * 2 || (late && again > 0));
  ahead_ = ahead ? ahead_ + 1 : 0;
  return ahead_ == 2;
}

/// A kernel that a library chooses by shape, or a graph, which may hold one.
bool TrainingSteps::is_product(Position p) const noexcept {
  const LaunchKey family = history_.families()[p];
  return (family >= LaunchHistory::kVocabulary && family != kLoader) || (history_.flags(p) & kFlagGraph) != 0;
}

/// No name tells an update, no copy a batch: what comes before every backward pass is the forward pass.
bool TrainingSteps::by_likeness() const noexcept {
  return !updates_named_ && !history_.optimizer_known() && !copies_usual_ && run_count_ == 0 && now_.certain &&
         now_.begin >= history_.oldest() && now_.begin < now_.first_backward;
}

/// Walks back from `backward` and from the backward pass that others are compared with, as long as they agree, to `low`
/// at most. \return where they ceased to agree: here, and in the reference
std::pair<LaunchPosition, LaunchPosition> TrainingSteps::alike_before(Position backward, Position low) const noexcept {
  constexpr Position kAgree = 6;  // launches that agree after a stray one
  const auto& family = history_.families();
  Position here = backward, there = like_.backward;
  const auto agrees = [&](Position a, Position b) {
    if (a > here || b > there || a < low + kAgree || b < like_.begin + kAgree) return false;
    for (Position i = 1; i <= kAgree; ++i)
      if (family[a - i] != family[b - i]) return false;
    return true;
  };
  const auto past_stray = [&]() {
    for (Position d = 1; d <= kReach; ++d) {
      for (const auto& [a, b] : {std::pair(d, Position{0}), std::pair(Position{0}, d), std::pair(d, d)}) {
        if (!agrees(here - a, there - b)) continue;
        here -= a;
        there -= b;
        return true;
      }
    }
    return false;
  };
  while (here > low && there > like_.begin) {
    const LaunchKey a = family[here - 1], b = family[there - 1];
    if (a == b) {
      --here;
      --there;
    } else if (a == kLoader || b == kLoader) {
      (a == kLoader ? here : there) -= 1;
    } else if (here < backward && (a == family[here] || b == family[there])) {
      // Where shapes differ, a library runs one kernel more or less for the same operation.
      (a == family[here] ? here : there) -= 1;
    } else if (!past_stray()) {
      break;
    }
  }
  return {here, there};
}

/// Aligns what ran before `backward` with what ran before another backward pass: always the same one while it is
/// remembered, so that errors of a launch do not add up.
LaunchPosition TrainingSteps::begin_of_forward(Position backward, bool& contiguous) {
  constexpr Position kLeast = 8;  // launches of a forward pass
  const Position age = backward - like_.backward;
  if (like_.begin < history_.oldest() || like_.begin == like_.backward || age > LaunchHistory::kRing / 2)
    like_ = {now_.begin, now_.first_backward};
  auto [here, there] = alike_before(backward, update_end_);
  const Position missing = there - like_.begin;
  const Position tolerance = kReach + (like_.backward - like_.begin) / 64;
  if (missing <= tolerance) {
    here = std::max(update_end_, here - std::min(here, missing));
    // Nothing ran before a forward pass so far: what is a little longer is not where one begins.
    if (!forward_known_ && here - update_end_ <= tolerance) here = update_end_;
  } else if (!forward_known_ && (backward - here >= kLeast || holds_graph(here, backward))) {
    like_.begin = there;
    forward_known_ = true;
    shorten_forwards(backward - here);
  } else {
    // Records were lost, or another kind of pass runs; the next one is compared with this one.
    like_ = {};
    certain_ = false;
    contiguous = false;
    return here;
  }
  const Position gap = here - update_end_;
  forward_known_ = forward_known_ || gap > 0;
  // An update runs no forward pass; what runs one is an evaluation, whether the host asks for its results or not.
  contiguous = has_gap(gap) || (foreign_ < kT.burst && losses_ <= usual_losses_ && !holds_forward(update_end_, here));
  if (contiguous) usual_losses_ = std::max(usual_losses_, losses_);
  return here;
}

/// Nearly all launches of the forward pass that others are compared with are among these.
bool TrainingSteps::holds_forward(Position begin, Position end) {
  const auto& family = history_.families();
  const Position forward = like_.backward - like_.begin;
  if (end - begin < forward || like_.begin < history_.oldest()) return false;
  for (Position i = begin; i < end; ++i) ++counts_[family[i]];
  Position found = 0;
  for (Position i = like_.begin; i < like_.backward; ++i) found += counts_[family[i]]-- > 0 ? 1 : 0;
  for (Position i = begin; i < end; ++i) counts_[family[i]] = 0;
  for (Position i = like_.begin; i < like_.backward; ++i) counts_[family[i]] = 0;
  return found * 10 >= forward * 8;
}

bool TrainingSteps::holds_graph(Position begin, Position end) const noexcept {
  for (Position i = begin; i < end; ++i)
    if ((history_.flags(i) & kFlagGraph) != 0) return true;
  return false;
}

/// Forward passes are shorter than was thought, about `length` launches: what counted as more of them before belongs to
/// the passes before.
void TrainingSteps::shorten_forwards(Position length) noexcept {
  const auto shorten = [&](Step& step) {
    const Position forward = step.first_backward - step.begin;
    Position by = forward - std::min(forward, length);
    if (step.begin >= history_.oldest()) {
      const auto [here, there] = alike_before(step.first_backward, step.begin);
      if (there - like_.begin <= kReach) by = here - step.begin;
    }
    step.begin += by;
    return static_cast<std::uint32_t>(by);
  };
  for (std::size_t i = known(); i-- > 0;) {
    Step& step = steps_[(count_ - i) % kKept];
    if (i + 1 == known()) shorten(step);
    const std::uint32_t by = shorten(i == 0 ? now_ : steps_[(count_ - i + 1) % kKept]);
    step.next += by;
    if (!step.followed) continue;
    step.end += by;
    step.gap += by;
  }
  // Steps that were seen so far were cut elsewhere.
  steps_seen_ = step_begin_ = 0;
  tail_ = ~0u;
  for (std::size_t i = 0; i < known(); ++i)
    if (back(i).followed) tail_ = std::min(tail_, back(i).gap);
  if (tail_ == ~0u) tail_ = 0;
  for (std::uint32_t& forward : forwards_) forward = std::min(forward, static_cast<std::uint32_t>(length));
}

/// As many launches lay between a backward pass and the next step before.
bool TrainingSteps::has_gap(std::uint64_t gap) const noexcept {
  if (gap <= tail_) return true;
  for (std::size_t i = 0; i + 1 < known(); ++i) {
    const std::uint64_t other = back(i).gap;
    const std::uint64_t stray = kT.stray_launches + other / 16;
    if (back(i).followed && gap <= other + stray && other <= gap + stray) return true;
  }
  return false;
}

/// Much more than usual goes to the host where a checkpoint is written: that is no part of a step.
bool TrainingSteps::little_to_host() const noexcept { return foreign_ < kT.burst || foreign_ <= 4 * foreign_before_; }

/// How many of the `compared` launches of the reference are there at `p`. Where shapes differ, a library runs one
/// kernel more or less for the same operation.
/// \param alike if not null, where all of several launches are there for the first time
std::uint32_t TrainingSteps::alike_at(Position p, std::uint32_t compared, Position* alike) const noexcept {
  constexpr std::uint32_t kSeveral = 6;
  const auto& family = history_.families();
  std::uint32_t equal = 0, there = 0, in_a_row = 0;
  Position unlike = p;  // after the last that is not there
  for (Position here = p; there < compared && here < history_.end(); ++here) {
    if (family[here] == reference_[there]) {
      ++equal;
      ++there;
      if (++in_a_row >= kSeveral && alike != nullptr) *std::exchange(alike, nullptr) = unlike;
    } else if (here > p && there > 0 && family[here] == family[here - 1] && family[here] == reference_[there - 1]) {
      // one more of the same
    } else if (there > 0 && there + 1 < compared && reference_[there] == reference_[there - 1] &&
               family[here] == reference_[there + 1]) {
      ++equal;
      ++in_a_row;
      there += 2;
    } else {
      ++there;
      in_a_row = 0;
      unlike = here + 1;
    }
  }
  return equal;
}

/// The place around `around` that looks most like the begin of a step. Where another one looks as much like it, as the
/// layers of a model do, it is not certain, unless forward passes are always equally long.
LaunchPosition TrainingSteps::like_reference(Position around, std::uint32_t reach) {
  certain_ = false;
  if (!reference_known_) return around;
  const Position low = std::max({history_.oldest(), update_end_, around - std::min<Position>(around, reach)});
  around = std::max(around, low);
  Position best = around;
  std::uint32_t most = 0, second = 0;
  // A forward pass in a graph or two is shorter than the reference, and only as much of it was seen.
  const auto compared = static_cast<std::uint32_t>(
      std::min<Position>(reference_.size(), history_.end() - std::min(around, history_.end())));
  const auto distance = [](Position a, Position b) { return a > b ? a - b : b - a; };
  for (Position p = low; p <= around + reach && p + compared <= history_.end(); ++p) {
    const std::uint32_t equal = alike_at(p, compared);
    if (equal > most || (equal == most && distance(p, around) < distance(best, around))) {
      if (distance(p, best) > kReach) second = most;
      most = equal;
      best = p;
    } else if (distance(p, best) > kReach) {
      second = std::max(second, equal);
    }
  }
  const bool usual_length = best == around && forwards_are_equal();
  const bool alone = most > second && (most == compared || most > second + 1);
  certain_ = compared >= 2 && most * 4 >= compared * 3 && (alone || usual_length);
  // A line of the log that steps begin with, since no batch marks where they do, is missing after other work.
  Position alike = best;
  if (alike_at(best, compared, &alike) == compared || alike - best > kT.burst) return best;
  const auto of_model = [&](LaunchKey key) {
    return std::find(reference_.begin() + static_cast<std::ptrdiff_t>(alike - best), reference_.end(), key) !=
           reference_.end();
  };
  Position known = 0;
  for (Position i = best; i < alike; ++i) known += of_model(history_.families()[i]) ? 1 : 0;
  return known * 2 > alike - best ? best : alike;
}

bool TrainingSteps::forwards_are_equal() const noexcept {
  const std::size_t known = std::min<std::size_t>(forward_count_, forwards_.size());
  return known >= 2 && std::all_of(forwards_.begin(), forwards_.begin() + known,
                                   [&](std::uint32_t forward) { return forward == forwards_[0]; });
}

void TrainingSteps::learn(Position begin, Position backward) {
  forwards_[forward_count_++ % forwards_.size()] = static_cast<std::uint32_t>(backward - begin);
  copies_usual_ = run_count_ > 0;
  const auto tail = static_cast<std::uint32_t>(begin - update_end_);
  tails_[(forward_count_ - 1) % tails_.size()] = tail;
  if (updates_named_) {
    // A line of the log makes one longer, and an update that is left out makes one shorter.
    const std::size_t known = std::min<std::size_t>(forward_count_, tails_.size());
    std::array<std::uint32_t, 5> sorted = tails_;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(known));
    tail_ = sorted[(known - 1) / 2];
  } else {
    tail_ = forward_count_ <= 1 ? tail : std::min(tail_, tail);
  }
  if (begin < history_.oldest()) return;
  for (std::uint32_t i = 0; i < reference_.size(); ++i) reference_[i] = history_.families()[begin + i];
  reference_known_ = true;
}

/// Two networks that take turns: what is alike is every second step, and neighbours are not.
void TrainingSteps::find_turns() {
  constexpr std::size_t kEnough = 6;
  if (turn_ > 1 || known() < kEnough + 2 || count_ > 4 * kEnough) return;
  for (std::size_t i = 0; i < kEnough; ++i)
    if (!alike(back(i), back(i + 2)) || alike(back(i), back(i + 1))) return;
  turn_ = 2;
}

TrainingSteps::Likeness TrainingSteps::likeness(const Step& a, const Step& b) {
  // Where the optimizer has a name, other shapes make no step doubtful: its operations are compared.
  const auto& names = named() ? history_.families() : history_.names();
  const std::uint64_t long_a = length(a), long_b = length(b);
  if (long_a == long_b && names.equal(a.begin, b.begin, long_a)) return {};
  Likeness likeness;
  likeness.all = multiset_similarity(names, a.begin, a.update_end, b.begin, b.update_end, counts_);
  likeness.same_length = named() ? within_a_64th(long_a, long_b) : long_a == long_b;
  const FixedShare fixed = fixed_similarity(history_.families(), a.begin, a.update_end, b.begin, b.update_end, counts_);
  likeness.fixed = fixed.similarity;
  likeness.same_fixed_length = within_a_64th(fixed.a, fixed.b);
  return likeness;
}

/// The last few begin with a batch, follow each other, and hold the same names: their lengths may differ as they like.
bool TrainingSteps::are_of_any_length() {
  constexpr std::size_t kFew = 3;
  if (!named() || known() <= kFew) return false;
  if (within_a_64th(length(last()), length(back(2)))) return false;  // two networks may take turns
  for (std::size_t i = 0; i < kFew; ++i) {
    const Step& step = back(i);
    if (!step.certain || step.copies == 0 || !step.followed || step.passes != last().passes) return false;
    if (step.begin < history_.oldest() || !within_an_eighth(step.updates, last().updates)) return false;
    const Step& now = last();
    if (share_of_names(now.begin, now.update_end, step.begin, step.update_end) < kT.similar_by_name) return false;
    if (share_of_names(step.begin, step.update_end, now.begin, now.update_end) < kT.similar_by_name) return false;
  }
  return true;
}

/// The names in [b, b_end), and how many of them [a, a_end) holds, too.
TrainingSteps::NamesHeld TrainingSteps::names_held(Position a, Position a_end, Position b, Position b_end) {
  const auto& family = history_.families();
  NamesHeld found;
  constexpr std::int32_t kHeld = 1, kCounted = 2;
  for (Position i = a; i < a_end; ++i) counts_[family[i]] = kHeld;
  for (Position i = b; i < b_end; ++i) {
    std::int32_t& name = counts_[family[i]];
    if ((name & kCounted) != 0) continue;
    ++found.names;
    found.held += name == kHeld ? 1 : 0;
    name |= kCounted;
  }
  for (Position i = a; i < a_end; ++i) counts_[family[i]] = 0;
  for (Position i = b; i < b_end; ++i) counts_[family[i]] = 0;
  return found;
}

/// Of the names in [b, b_end), the share that [a, a_end) holds, too.
double TrainingSteps::share_of_names(Position a, Position a_end, Position b, Position b_end) {
  const auto [names, held] = names_held(a, a_end, b, b_end);
  return names == 0 ? 0 : static_cast<double>(held) / names;
}

/// The step before the last one that it is compared with. Loss scaling leaves an update out now and then: such a step
/// is compared with another such, and the next one with the one before it. \return 0: it is the first of its kind, and
/// there are few such
std::size_t TrainingSteps::one_of_its_kind() const noexcept {
  constexpr std::uint64_t kSeldom = 8;
  const Step& now = last();
  const auto passes_alike = [&](const Step& step) { return within_a_64th(now.backwards, step.backwards); };
  const auto updates_alike = [&](const Step& step) {
    return now.updates == step.updates && within_an_eighth(length(now), length(step));
  };
  if (turn_ > 1 || !named() || !passes_alike(back(1)) || updates_alike(back(1))) return turn_;
  for (std::size_t i = 2; i < known(); ++i)
    if (back(i).certain && passes_alike(back(i)) && updates_alike(back(i))) return i;
  return odd_ * kSeldom > compared_ ? turn_ : 0;
}

/// The last step with the one before of its kind.
void TrainingSteps::compare() {
  const Step& now = last();
  any_length_ = any_length_ || are_of_any_length();
  least_gap_ = ~0u;
  most_gap_ = broken_ = 0;
  std::uint32_t most_silent = 0;
  for (std::size_t i = 0; i + 1 < known(); ++i) {
    if (!back(i).followed) {
      broken_ += back(i).updates_unnamed ? 0 : 1;
      continue;
    }
    least_gap_ = std::min(least_gap_, own_gap(back(i)));
    most_gap_ = std::max(most_gap_, back(i).gap);
    if (!back(i).talks) most_silent = std::max(most_silent, own_gap(back(i)));
  }
  if (least_gap_ == ~0u) least_gap_ = 0;
  // A line of the log, with a copy to the host, comes after some passes as well; an update is longer, or silent.
  const std::uint32_t stray = kT.stray_launches + least_gap_ / 16;
  update_gap_ = most_silent > least_gap_ + stray                        ? (least_gap_ + most_silent) / 2 + 1
                : most_gap_ > least_gap_ + kT.log_line + least_gap_ / 2 ? (least_gap_ + most_gap_) / 2 + 1
                                                                        : 0;
  updates_seen_ = 0;
  for (std::size_t i = 0; i + 1 < known(); ++i)
    updates_seen_ += (back(i).followed || back(i).updates_unnamed) && own_gap(back(i)) >= update_gap_ ? 1 : 0;
  if (std::exchange(grouped_, update_gap_ != 0) != grouped_) steps_seen_ = step_begin_ = 0;
  if (known() < turn_ + 1) return;
  const std::size_t kind = one_of_its_kind();
  const Step& before = back(kind);
  if (!now.certain || !before.certain || before.begin < history_.oldest()) return;
  if (kind == 0) {
    ++odd_;
  } else {
    ++compared_;
    const double weight = std::max(1.0 / static_cast<double>(compared_), 1.0 / 16);
    const Likeness seen = likeness(now, before);
    exact_ += weight * (seen.all - exact_);
    fixed_exact_ += weight * (seen.fixed - fixed_exact_);
    same_length_ += weight * ((seen.same_length ? 1.0 : 0.0) - same_length_);
    fixed_same_length_ += weight * ((seen.same_fixed_length ? 1.0 : 0.0) - fixed_same_length_);
  }
  ++passes_;
  if (ends_step(back(1))) {
    step_begin_ = now.begin;
    passes_ = 1;
  }
  if (!ends_step(now) || step_begin_ == 0) return;
  ++steps_seen_;
  passes_of_step_ = named() ? now.passes : passes_;
  // What runs between two steps belongs to none.
  const Position end = now.end;
  const double weight_of_step = std::max(1.0 / static_cast<double>(steps_seen_), 1.0 / 16);
  const auto launches = static_cast<std::uint32_t>(end - step_begin_);
  if (launches == last_length_) usual_length_ = launches;
  last_length_ = launches;
  mean_ += weight_of_step * (static_cast<double>(launches) - mean_);
}

/// Of the last few: after other work a step is cut elsewhere, and looks as if it began with its forward pass.
bool TrainingSteps::may_begin_with_update() const noexcept {
  constexpr std::size_t kLooked = 8;
  for (std::size_t i = 0; i + 1 < known() && i < kLooked; ++i)
    if (may_begin_with_update(back(i))) return true;
  return false;
}

bool TrainingSteps::may_begin_with_update(const Step& step) const noexcept {
  if (step.copies != 0 || step.begin < history_.oldest() || step.first_backward <= step.begin) return false;
  const auto& families = history_.families();
  // Many launches of one kernel, as where gradients are cleared, count as one.
  const Position most = std::max<Position>(kT.before_first_product, (step.first_backward - step.begin) / 4);
  Position before = 0;
  LaunchKey previous = LaunchHistory::kKeys;
  for (Position i = step.begin; i < step.first_backward && before <= most && !is_product(i); ++i)
    before += std::exchange(previous, families[i]) != families[i] ? 1 : 0;
  return before > most;
}

std::uint32_t TrainingSteps::usual_launches() const noexcept {
  const auto mean = static_cast<std::uint32_t>(mean_ + 0.5);
  return within_a_sixteenth(usual_length_, mean) ? usual_length_ : mean;
}

LaunchPosition TrainingSteps::longest_launches() const noexcept {
  Position longest = 0;
  for (std::size_t i = 0; i < known(); ++i) longest = std::max(longest, back(i).update_end - back(i).begin);
  return longest;
}

bool TrainingSteps::doubtful() const noexcept {
  return !named() && broken_ > (last().begin_follows ? known() / kT.seldom_foreign : 1);
}

/// An update without a name takes launches of its own: after some passes, or after all of them.
bool TrainingSteps::ends_step(const Step& pass) const noexcept {
  return pass.updates != 0 || !pass.followed || own_gap(pass) >= update_gap_;
}

const char* TrainingSteps::why_not_found() const noexcept {
  if (turn_ > 1) return nullptr;
  if (known() < 3) return "fewer than three were seen";
  // Start-up lies in the first one.
  if (!last().certain || !back(1).certain) return "where the last two began is not certain";
  if (!(alike(last(), back(1)) && within_an_eighth(length(last()), length(back(1)))) && !any_length_)
    return "the last two differ";
  if (named()) return nullptr;
  // Without copies nothing tells an update from evaluation: only what is the same after every pass is certain.
  if (doubtful()) return "no optimizer has a name, and other work runs between passes";
  if (!last().begin_follows && (broken_ != 0 || count_ < kKept))
    return "no optimizer has a name, and no batch is copied to the device by the thread that trains";
  // Few accumulate more passes than eight.
  if (known() <= kT.passes_without_update || updates_seen_ < 2)
    return "no optimizer has a name: some passes more show what runs between them";
  return nullptr;
}

}  // namespace mfu

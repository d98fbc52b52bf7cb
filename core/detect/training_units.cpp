#include "core/detect/training_units.h"

#include <algorithm>

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

using namespace thresholds;

constexpr unsigned kUpdate = kFlagOptimizer | kFlagForeach;

bool longer(std::uint64_t length, std::uint64_t forward) noexcept {
  return static_cast<double>(length) > kLonger * static_cast<double>(forward);
}

}  // namespace

std::uint64_t TrainingUnits::Usual::slack() const noexcept {
  return std::max<std::uint64_t>(by_copies ? kNear : kFew, forward / kStray);
}

// ---------------------------------------------------------------------------------------------- launches > units

bool TrainingUnits::mark(const Launch& launch, LaunchPosition p, bool of_engine, bool others) {
  const unsigned flags = launch.traits.flags;
  if (of_engine && (flags & (kUpdate | kFlagLoss)) != 0 && (flags & kFlagGraph) == 0) {
    has_engine_ = of_engine = false;
    engine_ = 0;
  }
  const bool named = (flags & kFlagBackward) != 0;
  if (named) {
    trains_ = trains_ || ++backward_seen_ == kUnnamed;
    // PyTorch runs every backward pass on a thread of its autograd engine.
    if (has_engine_ && engine_ == 0 && others && launch.thread != 0) {
      engine_ = launch.thread;
      of_engine = true;
    }
  }
  bool completes = false;
  if (of_engine || (named && engine_ == 0)) completes = backward(p);
  if ((flags & kUpdate) != 0 && !of_engine) {
    if (backward_seen_ == 0 && (flags & kFlagOptimizer) != 0) completes = backward(p) || completes;
    update(launch, p);
  }
  since_.loss = since_.loss || (flags & kFlagLoss) != 0;
  since_.copies = since_.copies || (flags & kFlagToDevice) != 0;
  return completes;
}

/// Between the two there is a forward pass: something other than the middle of a backward pass or of an update.
bool TrainingUnits::forward_ran(LaunchPosition from, LaunchPosition to) const noexcept {
  if (since_.loss || (to - from > kFew && (since_.copies || last_update_ > last_backward_))) return true;
  if (!since_.copies && engine_ == 0 && to - from <= kFew) return false;
  for (LaunchPosition p = std::max(from + 1, history_.oldest()); p < to; ++p)
    if (history_.is_product(p)) return true;
  return false;
}

bool TrainingUnits::backward(LaunchPosition p) {
  bool completes = false;
  const LaunchPosition from = std::max(last_backward_, last_update_);
  const bool whole_step = history_.has(p, kFlagGraph) && history_.has(p, kUpdate);
  if (now_.backward == 0) {
    now_.backward = p;
    now_.passes = 1;
    look_at_gap(now_);
  } else if (whole_step || forward_ran(from, p)) {
    // Where neither a thread nor a batch nor a loss shows a pass, a layer may look like one.
    const bool is_pass = engine_ != 0 || since_.loss || since_.copies;
    completes = updated_ || (!named_seen_ && is_pass && find_unnamed_update(p));
    if (completes)
      complete(p);
    else
      ++now_.passes;
  }
  updated_ = false;
  last_backward_ = p;
  since_ = {};
  return completes;
}

void TrainingUnits::update(const Launch& launch, LaunchPosition p) {
  const bool optimizer = (launch.traits.flags & kFlagOptimizer) != 0;
  if (now_.backward == 0) return;
  if (!update_seen_ || (optimizer && !optimizer_seen_)) forget();  // units ended by less than this
  update_seen_ = true;
  optimizer_seen_ = optimizer_seen_ || optimizer;
  trains_ = trains_ || optimizer;
  if (since_.foreach == 0) since_.foreach = p;
  if (!optimizer && optimizer_seen_ && !updated_) return;  // clipping, or scaling between two passes
  if (!updated_) now_.update = since_.foreach;
  updated_ = true;
  ++now_.updates;
  last_update_ = p;
  since_.loss = since_.copies = false;
}

/// A long stretch without a product after the backward pass: where the engine's thread is known, right after it.
bool TrainingUnits::find_unnamed_update(LaunchPosition next) {
  const LaunchPosition first = std::max(last_backward_ + 1, history_.oldest());
  LaunchPosition begin = first, best = 0;
  std::uint32_t kernels = 0, most = 0;
  for (LaunchPosition p = first; p < next; ++p) {
    if (!history_.is_product(p) && !history_.has(p, kFlagToDevice)) {
      kernels += history_.key(p) >= Launch::kFirstKernel ? 1 : 0;
      if (kernels > most) most = kernels, best = begin;
      continue;
    }
    if (engine_ != 0) break;
    kernels = 0;
    begin = p + 1;
  }
  if (most < kLeastUpdate) return false;
  now_.update = best;
  now_.updates = most;
  last_update_ = best - 1;
  return true;
}

/// Launches between the previous update and the first backward launch.
void TrainingUnits::look_at_gap(TrainingUnit& unit) const noexcept {
  if (unit.before == 0) return;
  LaunchPosition copy = 0;
  for (LaunchPosition p = std::max(unit.before, history_.oldest()); p < unit.backward; ++p) {
    if (unit.product == 0 && history_.is_product(p)) unit.product = p;
    if (unit.product == 0 && history_.key(p) >= Launch::kFirstKernel) ++unit.kernels;
    if (history_.has(p, kFlagToHost)) ++unit.to_host;
    if (!history_.has(p, kFlagToDevice)) continue;
    if (copy == 0 || p - copy > kNear) {
      std::rotate(unit.last_runs.begin(), unit.last_runs.end() - 1, unit.last_runs.end());
      unit.last_runs[0] = {p, 0};
      ++unit.runs;
    }
    ++unit.last_runs[0].copies;
    copy = p;
  }
}

/// The run most like a batch: the fullest before the model's first product. Others copy scalars; kRuns: none.
std::uint32_t TrainingUnits::fullest_run(const TrainingUnit& unit) noexcept {
  std::uint32_t fullest = TrainingUnit::kRuns, copies = 0;
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(unit.runs, TrainingUnit::kRuns); ++i) {
    const TrainingUnit::Run& run = unit.last_runs[i];
    if ((unit.product != 0 && run.at > unit.product) || run.copies < copies) continue;
    fullest = i;
    copies = run.copies;
  }
  return fullest;
}

/// One operation over lists of tensors may be anything; an optimizer's rule takes several.
bool TrainingUnits::names_a_rule(const TrainingUnit& unit) const noexcept {
  std::array<std::uint32_t, kOfRule> seen{};
  std::size_t count = 0;
  for (LaunchPosition p = std::max(unit.update, history_.oldest()); p < unit.end; ++p) {
    if (history_.has(p, kFlagOptimizer)) return true;
    if (!history_.has(p, kFlagForeach)) continue;
    const std::uint32_t key = history_.key(p);
    if (std::find(seen.begin(), seen.begin() + count, key) != seen.begin() + count) continue;
    seen[count] = key;
    if (++count == kOfRule) return true;
  }
  return false;
}

/// The update after the unit at hand has ended: the next one begins.
/// \param next its first backward launch; 0: not known yet
void TrainingUnits::complete(LaunchPosition next) {
  now_.end = last_update_ + 1;
  now_.by_name = updated_;
  now_.named = updated_ && names_a_rule(now_);
  updated_ = false;
  named_seen_ = named_seen_ || now_.named;
  units_[count_++ % kKept] = now_;
  now_ = {.before = now_.end, .backward = next, .passes = 1};
  if (next != 0) look_at_gap(now_);
  finished_ = next == 0 && !within(last().updates, usual_.updates, kSame);
  learn();
  agree();
}

bool TrainingUnits::finish() {
  known_ = 0;
  if (!updated_) return false;
  complete(0);
  return true;
}

bool TrainingUnits::end_last() {
  if (!found_ || !updated_ || turn_ > 1) return false;
  complete(0);
  finished_ = false;
  known_ = 1;
  return true;
}

void TrainingUnits::forget() {
  count_ = 0;
  now_.before = 0;
  found_ = false;
  agreed_ = 0;
  turn_ = 1;
  phase_ = 0;
  usual_ = {};
}

void TrainingUnits::learn() {
  std::array<const TrainingUnit*, kKept + 1> units;
  std::size_t n = 0;
  for (std::size_t i = std::min<std::uint64_t>({count_, kKept, std::uint64_t{kPart} * turn_}); i-- > 0;)
    if (back(i).before != 0 && begins_turn(i)) units[n++] = &back(i);
  if (now_.backward != 0 && now_.before != 0 && count_ % turn_ == phase_) units[n++] = &now_;
  usual_ = {};
  if (n == 0) return;
  learn_copies({units.data(), n});
  if (!usual_.by_copies) learn_head({units.data(), n});
  learn_forward({units.data(), n});
}

/// Copies that most units have in their gap, as often, and before the model's first product.
void TrainingUnits::learn_copies(std::span<const TrainingUnit* const> units) noexcept {
  std::size_t most = 0;
  for (const TrainingUnit* unit : units) {
    const auto same = static_cast<std::size_t>(std::ranges::count(units, unit->runs, &TrainingUnit::runs));
    if (same < most || (same == most && unit->runs >= usual_.runs)) continue;
    most = same;
    usual_.runs = unit->runs;
  }
  if (usual_.runs == 0 || usual_.runs > TrainingUnit::kRuns) return;
  std::array<std::size_t, TrainingUnit::kRuns + 1> votes{};
  for (const TrainingUnit* unit : units)
    if (unit->runs == usual_.runs) ++votes[fullest_run(*unit)];
  const auto chosen = std::ranges::max_element(votes);
  usual_.run = static_cast<std::uint32_t>(chosen - votes.begin());
  usual_.by_copies = usual_.run != TrainingUnit::kRuns && within(*chosen, most, kAlike);
}

/// The part before the first product is the rest of the update if it is usually long, else a part of the forward pass.
void TrainingUnits::learn_head(std::span<const TrainingUnit* const> units) noexcept {
  std::array<const TrainingUnit*, kKept + 1> sorted{};
  const auto last = std::copy(units.begin(), units.end(), sorted.begin());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(units.size() / 2);
  std::ranges::nth_element(sorted.begin(), middle, last, {}, &TrainingUnit::kernels);
  const TrainingUnit& unit = **middle;
  usual_.has_head = unit.product != 0 && unit.kernels < kLeastUpdate;
  usual_.head = usual_.has_head ? unit.product - unit.before : 0;
}

/// The place that is taken for the begin where nothing else runs.
std::optional<LaunchPosition> TrainingUnits::start_of(const TrainingUnit& unit) const noexcept {
  if (usual_.by_copies) {
    const LaunchPosition run = unit.last_runs[usual_.run].at;
    if (unit.runs != usual_.runs || (unit.product != 0 && unit.product < run)) return std::nullopt;
    return run;
  }
  const bool is_first = unit.product == 0 || (usual_.has_head && unit.product <= unit.before + usual_.head + kFew);
  return is_first ? unit.before : unit.product - usual_.head;
}

/// How long forward passes are: the shortest length that half of them have, since other work only makes one longer.
void TrainingUnits::learn_forward(std::span<const TrainingUnit* const> units) noexcept {
  struct Forward {
    std::uint64_t length = 0, tail = 0;
    const TrainingUnit* unit = nullptr;
  };
  std::array<Forward, kKept + 1> forwards;
  std::size_t n = 0;
  for (const TrainingUnit* unit : units)
    if (const auto start = start_of(*unit)) forwards[n++] = {unit->backward - *start, *start - unit->before, unit};
  if (n == 0) return;
  std::ranges::sort(std::span(forwards).first(n), {}, &Forward::length);
  std::size_t first = 0, last = n;
  for (std::size_t i = 0; i < n && !usual_.fixed; ++i) {
    usual_.forward = forwards[i].length;
    std::size_t end = i, between = 0;
    while (end < n && forwards[end].length <= usual_.forward + usual_.slack()) ++end;
    for (std::size_t k = end; k < n; ++k) between += longer(forwards[k].length, usual_.forward) ? 0 : 1;
    usual_.fixed = end - i >= std::max<std::size_t>(2, (n + 1) / 2) && within(n - between, n, kAlike);
    if (!usual_.fixed) continue;
    first = i;
    last = end;
    usual_.exact = forwards[end - 1].length - usual_.forward <= kNear;
  }
  if (!usual_.fixed) usual_.forward = forwards[n / 4].length;
  usual_.example = forwards[usual_.fixed ? first : n / 4].unit->backward;
  std::array<std::uint64_t, kKept + 1> tails{};
  usual_.updates = forwards[(first + last) / 2].unit->updates;
  usual_.to_host = forwards[first].unit->to_host;
  for (std::size_t i = first; i < last; ++i) {
    tails[i - first] = forwards[i].tail;
    usual_.to_host = std::min(usual_.to_host, forwards[i].unit->to_host);
  }
  std::ranges::sort(std::span(tails).first(last - first));
  usual_.tail = tails[(last - first) / 2];
}

/// Where the unit begins; nothing: two places are as good.
std::optional<LaunchPosition> TrainingUnits::begin_of(const TrainingUnit& unit) {
  if (unit.before == 0 || unit.backward == 0) return std::nullopt;
  const Usual& u = usual_;
  const std::optional<LaunchPosition> start = start_of(unit);
  // Other work returns something to the host; a forward pass that is longer than others does not.
  if (u.by_copies) {
    if (start) return start;
    if (unit.to_host <= u.to_host || !u.fixed) return std::nullopt;
    const std::size_t runs = std::min<std::size_t>(unit.runs, TrainingUnit::kRuns);
    std::optional<LaunchPosition> alike;
    std::uint64_t least = u.slack();
    for (std::size_t i = 0; i < runs; ++i) {
      const std::uint64_t length = unit.backward - unit.last_runs[i].at;
      const std::uint64_t off = std::max(length, u.forward) - std::min(length, u.forward);
      if (off > least) continue;
      least = off;
      alike = unit.last_runs[i].at;
    }
    return alike;
  }
  const std::uint64_t length = unit.backward - *start;
  if (!u.fixed) return !longer(length, u.forward) && unit.to_host <= u.to_host ? start : std::nullopt;
  // Shorter than forward passes are: its first launches may lie before this place.
  if (length + u.slack() < u.forward && *start > unit.before + kFew) return std::nullopt;
  if (length <= u.forward + u.slack()) return start;
  if (unit.to_host <= u.to_host || !u.exact) return std::nullopt;
  LaunchPosition begin = unit.backward - u.forward;
  if (comparison_.likeness(history_, begin, unit.backward, u.example - u.forward, u.example) < kAlike)
    return std::nullopt;
  for (LaunchPosition p = begin, few = begin + kNear; p < few; ++p)
    if (history_.has(p, kFlagToHost)) begin = p + 1;  // of the work before
  return begin;
}

/// Where the unit ends: with what always follows its update.
std::optional<LaunchPosition> TrainingUnits::end_of(const TrainingUnit& unit, const TrainingUnit* next) {
  const LaunchPosition usual_end = unit.end + usual_.tail;
  if (next == nullptr || next->backward == 0) return usual_end;
  const std::optional<LaunchPosition> begin = begin_of(*next);
  if (begin && *begin <= usual_end + kFew) return begin;
  // More than usual: other work, unless it may be a longer update.
  LaunchPosition p = std::max(unit.end, history_.oldest());
  std::uint64_t kernels = 0;
  for (; p < next->backward && !history_.is_product(p) && !history_.has(p, kFlagToDevice); ++p)
    kernels += history_.key(p) >= Launch::kFirstKernel ? 1 : 0;
  const bool usual = count_ >= kUnlike && within(unit.updates, usual_.updates, kAlike);
  if (kernels >= usual_.tail + kLeastUpdate && !usual) return std::nullopt;
  return std::min(usual_end, p);
}

// ---------------------------------------------------------------------------------------------- agreement

/// From the first backward launch on, where nothing else runs in between.
bool TrainingUnits::alike(const TrainingUnit& a, const TrainingUnit& b) {
  if (!within(a.core(), b.core(), kAlike)) return false;
  return comparison_.likeness(history_, a.backward, a.end, b.backward, b.end) >= kAlike;
}

/// Several networks that take turns: each is like the one a turn before, and neighbours are not alike. A turn begins
/// where a batch comes in, if that is one place.
bool TrainingUnits::find_turn(bool& takes_turns) {
  const std::size_t kept = std::min<std::uint64_t>(count_, kKept);
  for (std::uint32_t turn = 2; turn <= kMostOfTurn && 2 * turn < kept; ++turn) {
    bool agrees = true;
    std::uint32_t fed = 0, phase = 0;
    for (std::size_t i = 0; i < turn && agrees; ++i) {
      agrees = alike(back(i), back(i + turn)) && !alike(back(i), back(i + 1));
      if (back(i).runs == 0) continue;
      ++fed;
      phase = static_cast<std::uint32_t>((count_ - 1 - i) % turn);
    }
    if (!agrees) continue;
    takes_turns = true;
    if (fed != 1) {
      why_not_ = "networks take turns, and none of them alone takes a batch";
      return false;
    }
    turn_ = turn;
    phase_ = phase;
    learn();
    return true;
  }
  return false;
}

void TrainingUnits::agree() {
  known_ = 0;
  if (count_ < 2) return;
  TrainingUnit& unit = units_[(count_ - 1) % kKept];
  const TrainingUnit& before = back(std::min<std::size_t>(turn_, count_ - 1));
  unit.alike = within(unit.core(), before.core(), kAlike)
                   ? comparison_.likeness(history_, unit.backward, unit.end, before.backward, before.end)
                   : 0;
  const bool same_update = within(unit.updates, before.updates, kAlike);
  const bool agrees = unit.alike >= kAlike && (unit.named || same_update);
  agreed_ = agrees || (unit.named && same_update) ? agreed_ + 1 : 0;
  const bool ends_turn = count_ % turn_ == phase_;
  if (found_) {
    known_ = turn_ == 1 ? 1 : ends_turn;
    return;
  }
  const std::uint32_t needed = (unit.named ? kNamed : kUnnamed) - 1;
  if (agrees && usual_.fixed && agreed_ >= needed) {
    found_ = true;
  } else {
    why_not_ = !agrees ? "the last two steps are not alike" : "too few steps agree so far";
    bool takes_turns = false;
    found_ = unit.named && (find_turn(takes_turns) || (!takes_turns && usual_.by_copies && agreed_ + 1 >= kUnlike));
    if (!found_) return;
  }
  known_ = turn_ == 1 ? std::min<std::size_t>(count_, agreed_ + 1) : count_ / turn_;
  if (!ends_turn && turn_ > 1) known_ = 0;
}

std::optional<TrainingUnits::Step> TrainingUnits::step(std::size_t index) {
  // The last unit of a turn; of one that the stream ended nothing follows.
  const std::size_t i = (known_ - 1 - index) * turn_ + (finished_ ? 1 : 0);
  const std::size_t first = i + turn_ - 1;
  if (first >= std::min<std::uint64_t>(count_, kKept)) return std::nullopt;
  const std::optional<LaunchPosition> begin = begin_of(back(first));
  const std::optional<LaunchPosition> end = end_of(back(i), i > 0 ? &back(i - 1) : &now_);
  if (!begin || !end || *begin < history_.oldest() || *begin >= *end) return std::nullopt;
  const auto length = static_cast<std::uint32_t>(*end - *begin);
  lengths_ = {length, lengths_[0] != 0 ? lengths_[0] : length, lengths_[1] != 0 ? lengths_[1] : length};
  return Step{*begin, *end};
}

std::uint32_t TrainingUnits::pass_launches() const noexcept {
  const TrainingUnit& unit = last();
  const std::uint64_t all = unit.update - unit.backward + usual_.forward;
  return static_cast<std::uint32_t>(all / std::max(unit.passes, 1u));
}

}  // namespace mfu

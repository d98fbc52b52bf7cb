#include "core/detect/serving_units.h"

#include <bit>

#include "core/base/bit_mix.h"

namespace mfu {

using namespace thresholds;

namespace {

/// A mean over the last `memory` values or so, and over all of the first ones.
void follow(double& mean, double value, std::uint64_t count, std::uint32_t memory = kPart) noexcept {
  mean += (value - mean) / static_cast<double>(std::min<std::uint64_t>(count, memory));
}

}  // namespace

/// The model runs again: nothing more can come of what went to the host.
bool ServingUnits::model_runs(std::uint64_t n) noexcept {
  const bool ended = turn_.returned && samples_ && end_iteration();  // a turn of the host ends with its next input
  turn_.returned = turn_.sampled = false;
  turn_.runs = turn_.ran = true;
  if (turn_.copied_in) {
    // Launches between a batch's copies and the model prepare what several passes use.
    if (++turn_.inputs == 1) turn_.input = n - copy_ <= kFew ? copies_ : n;
    turn_.copied_in = false;
  }
  return ended;
}

/// A loop that replays one graph, with its sample in it, need not look at every token: the host comes by now and then.
bool ServingUnits::graph_runs(const KernelTraits& traits, std::uint32_t name, std::uint64_t n) noexcept {
  if ((traits.flags & kFlagSampling) == 0 || (turn_.graph != 0 && name != turn_.graph)) {
    turn_.other_graphs = true;
    pass_graph_ = 0;
    return false;
  }
  bool ended = false;
  if (turn_.returned && samples_) {
    ended = end_iteration();
  } else if (name == pass_graph_ && turn_.replays != 0) {
    turn_.end = n;
    turn_.roles_before_end = turn_.roles;
    ended = end_iteration();
  }
  turn_.graph = name;
  turn_.replay = n;
  if (turn_.replays++ == 0) turn_.first_replay = n;
  return ended;
}

/// The next iteration shows where one ends; the last has no next one. Tokens fetched after it are no iteration's.
bool ServingUnits::finish() noexcept {
  if (turn_.returned) {
    turn_.end = turn_.together;
    return end_iteration();
  }
  if (turn_.replays == 0 || turn_.graph != pass_graph_) return false;
  turn_.end = turn_.replay + 1;
  turn_.roles_before_end = turn_.roles;
  return end_iteration();
}

bool ServingUnits::mark(const KernelTraits& traits, std::uint64_t n) noexcept {
  bool ended = false;
  if ((traits.flags & kFlagToDevice) != 0) {
    if (turn_.returned) ended = end_iteration();
    turn_.copied_in = true;
    if (n != copy_ + 1) copies_ = n;
    copy_ = n;
    turn_.runs = false;
  }
  if ((traits.flags & kFlagSampling) != 0) {
    turn_.sampled = turn_.ran = true;  // a graph that samples is a model, too
    turn_.runs = false;
  }
  if ((traits.flags & kFlagToHost) != 0 && turn_.ran && (turn_.sampled || !samples_)) {
    samples_ = samples_ || turn_.sampled;
    if (!turn_.returned || n + 1 - turn_.together <= kFew) turn_.together = n + 1;
    turn_.returned = true;
    turn_.runs = false;
    turn_.end = n + 1;
    turn_.roles_before_end = turn_.roles;
  }
  return ended;
}

void ServingUnits::note_rows(const KernelTraits& traits, const Grid& grid) noexcept {
  if (traits.row_axis == RowAxis::kY || grid.x == 0) return;
  if (traits.role == KernelRole::kCacheWrite)
    turn_.cache_rows = std::max(turn_.cache_rows, grid.x);
  else if (traits.role == KernelRole::kRope)
    turn_.rope_rows = std::max(turn_.rope_rows, grid.x);
  else  // those of queries and keys run over more rows; that of the last row of each sequence is one of many
    turn_.norm_rows = turn_.norm_rows == 0 ? grid.x : std::min(turn_.norm_rows, grid.x);
}

/// \return whether it was one
bool ServingUnits::end_iteration() noexcept {
  const Turn turn = turn_;
  const std::uint64_t begin = begin_;
  begin_ = turn.end;
  turn_ = {};
  if (!samples_ && turn.inputs == 0) return false;  // a result that is looked at now and then
  // Drafts are graphs that sample, too; but another one runs before the host looks.
  const bool several = turn.replays > 1 && !turn.other_graphs && turn.end - turn.first_replay <= kFew * turn.replays;
  if (several) pass_graph_ = turn.graph;
  // Each launch of the graph is an iteration where they lie evenly, and what ran before them is other work.
  const std::uint64_t gaps = several ? turn.replays - 1 : 1, apart = (turn.replay - turn.first_replay) / gaps;
  const bool even = several && turn.first_replay + apart * gaps == turn.replay;
  End end;
  end.launch = even ? turn.first_replay : turn.end;
  end.begin = turn.inputs == 1 ? turn.input : 0;
  end.roles = turn.roles_before_end;
  end.rows = turn.cache_rows != 0 ? turn.cache_rows : turn.rope_rows != 0 ? turn.rope_rows : turn.norm_rows;
  end.launches = static_cast<std::uint32_t>(std::min<std::uint64_t>(end.launch - begin, 1u << 31));
  end.clean = turn.inputs <= 1 && !several;
  follow(clean_, turn.inputs <= 1 ? 1 : 0, ended_ + 1);
  if (end.launches != 0) note(end, turn.loaded);
  end = {.roles = role_bit(KernelRole::kGraph), .launches = static_cast<std::uint32_t>(apart)};
  for (std::uint64_t i = 1; even && i <= turn.replays; ++i) {
    end.launch = i <= gaps ? turn.first_replay + i * apart : turn.end;
    note(end, false);
  }
  return true;
}

void ServingUnits::note(const End& end, bool loaded) noexcept {
  const std::uint64_t make_up = mix(end.roles ^ (static_cast<std::uint64_t>(std::bit_width(end.launches)) << 56));
  const bool known = std::find(known_.begin(), known_.end(), make_up) != known_.end();
  if (!known) known_[ended_ % known_.size()] = make_up;
  ends_[ended_++ % kKept] = end;
  const auto has = [&](KernelRole role) { return (end.roles & role_bit(role)) != 0; };
  const bool fed = end.begin != 0 || loaded;
  follow(recurring_, known ? 1 : 0, ended_);
  follow(mean_launches_, end.launches, ended_);
  follow(graphed_, end.rows == 0 && has(KernelRole::kGraph) ? 1 : 0, ended_);
  follow(fed_, fed ? 1 : 0, ended_, kTurns);
  fed_ever_ = fed_ever_ || fed;
  unfed_ = fed ? 0 : unfed_ + 1;
  decodes_by_name_ = decodes_by_name_ || has(KernelRole::kAttentionDecode);
  writes_cache_ = writes_cache_ || has(KernelRole::kCacheWrite);
  loss_ = loss_ || has(KernelRole::kLoss);
  constexpr std::uint64_t kMoved = role_bit(KernelRole::kCopyToDevice) | role_bit(KernelRole::kCopyToHost) |
                                   role_bit(KernelRole::kCopyWithin) | role_bit(KernelRole::kMemset);
  products_alone_ =
      products_alone_ && (end.roles & ~(kMoved | role_bit(KernelRole::kGemm) | role_bit(KernelRole::kReduce))) == 0;
  follow_level(end.rows);
  for (std::uint32_t& count : kinds_) count -= count / kPart;
  kinds_[static_cast<std::size_t>(kind_of(end))] += kPart;
}

/// Follows how many rows a decode has: it falls at once, and rises by a few, or when it stays high.
void ServingUnits::follow_level(std::uint32_t rows) noexcept {
  if (rows == 0) return;
  if (level_ != 0 && rows > level_ * kLonger + kNear && ++above_level_ < kGenerated) return;
  level_ = rows;
  above_level_ = 0;
}

StepKind ServingUnits::kind_of(const End& end) const noexcept {
  const auto has = [&](std::uint64_t roles) { return (end.roles & roles) != 0; };
  const bool writes_cache = has(role_bit(KernelRole::kCacheWrite));
  const bool is_graph = has(role_bit(KernelRole::kGraph));
  // Names first where they are certain; kernels that serve both are separated by rows against those of a decode.
  const bool by_graphs = graphed_ > kFed, decodes = decodes_by_name_ || graphed_ != 0;
  if (end.rows != 0 && !by_graphs && (writes_cache || decodes))
    return end.rows > level_ * kLonger + kNear ? StepKind::kPrefillOrMixed : StepKind::kDecode;
  if (by_graphs && end.rows != 0 && writes_cache) return StepKind::kPrefillOrMixed;
  if (has(role_bit(KernelRole::kAttentionPrefill))) return StepKind::kPrefillOrMixed;
  if (has(role_bit(KernelRole::kAttentionDecode))) return StepKind::kDecode;
  // An encoder's attention writes no cache and samples nothing: its pass prefills nothing.
  if (has(role_bit(KernelRole::kAttention)) && (writes_cache || decodes)) return StepKind::kPrefillOrMixed;
  if (is_graph && (samples_ || writes_cache_)) return StepKind::kDecode;
  // No name says what it is; but what samples again and again without new input goes on from what it sampled before.
  const bool attends = has(role_bit(KernelRole::kAttention) | role_bit(KernelRole::kSoftmax));
  if (names_only_ || !samples_ || !attends || !fed_ever_ || fed_ > kFed) return StepKind::kIteration;
  return end.begin != 0 ? StepKind::kPrefillOrMixed : StepKind::kDecode;
}

bool ServingUnits::generates() const noexcept {
  return writes_cache_ || decodes_by_name_ || (samples_ && fed_ <= kFed);
}

const char* ServingUnits::why_not() const noexcept {
  if (loss_) return "they compute a loss, as an evaluation does";
  if (products_alone_) return "they are products alone";
  if (recurring_ < kMost) return "few are alike";
  if (clean_ < kAlike) return "other work lies between them";
  if (ended_ < kUnlike || (!generates() && ended_ < turns_)) return "too few so far";
  return nullptr;
}

bool ServingUnits::found() const noexcept { return why_not() == nullptr; }

StepKind ServingUnits::usual_kind() const noexcept {
  return static_cast<StepKind>(std::max_element(kinds_.begin(), kinds_.end()) - kinds_.begin());
}

}  // namespace mfu

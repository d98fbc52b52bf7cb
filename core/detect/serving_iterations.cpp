#include "core/detect/serving_iterations.h"

#include <algorithm>
#include <bit>

#include "core/base/bit_mix.h"
#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;

}  // namespace

/// The model runs again: nothing more can come of what went to the host.
bool ServingIterations::model_runs(std::uint64_t n) noexcept {
  runs_ = true;
  const bool ended = returned_ && samples_ && end_iteration();  // a turn of the host ends with its next input
  returned_ = false;
  ran_ = true;
  sampled_ = false;
  if (copied_in_) {
    // Launches between a batch's copies and the model prepare what several passes use.
    if (++inputs_ == 1) input_ = n - copy_ <= kT.burst ? copies_ : n;
    copied_in_ = false;
  }
  return ended;
}

/// A loop that replays one graph, with its sample in it, need not look at every token: the host comes by now and then.
bool ServingIterations::graph_runs(const KernelTraits& traits, std::uint32_t name, std::uint64_t n) noexcept {
  if ((traits.flags & kFlagSampling) == 0 || (graph_ != 0 && name != graph_)) {
    other_graphs_ = true;
    pass_graph_ = 0;
    return false;
  }
  bool ended = false;
  if (returned_ && samples_) {
    ended = end_iteration();
  } else if (name == pass_graph_ && replays_ != 0) {
    end_ = n;
    roles_before_end_ = roles_;
    ended = end_iteration();
  }
  graph_ = name;
  replay_ = n;
  ++replays_;
  return ended;
}

/// The end of an iteration is known by the next one, which the last one has not. Once all tokens are there they are
/// fetched, which is no iteration's.
bool ServingIterations::finish() noexcept {
  if (returned_) {
    end_ = together_;
    return end_iteration();
  }
  if (replays_ == 0 || graph_ != pass_graph_) return false;
  end_ = replay_ + 1;
  roles_before_end_ = roles_;
  return end_iteration();
}

bool ServingIterations::mark(const KernelTraits& traits, std::uint64_t n) noexcept {
  bool ended = false;
  if ((traits.flags & kFlagToDevice) != 0) {
    if (returned_) ended = end_iteration();
    copied_in_ = true;
    if (n != copy_ + 1) copies_ = n;
    copy_ = n;
    runs_ = false;
  }
  if ((traits.flags & kFlagSampling) != 0) {
    sampled_ = true;
    ran_ = true;  // a graph that samples is a model, too
    runs_ = false;
  }
  if ((traits.flags & kFlagToHost) != 0 && ran_ && (sampled_ || !samples_)) {
    samples_ = samples_ || sampled_;
    if (!returned_ || n + 1 - together_ <= kT.burst) together_ = n + 1;
    returned_ = true;
    runs_ = false;
    end_ = n + 1;
    roles_before_end_ = roles_;
  }
  return ended;
}

void ServingIterations::note_rows(const KernelTraits& traits, const Grid& grid) noexcept {
  if (traits.row_axis == RowAxis::kY || grid.x == 0) return;
  if (traits.role == KernelRole::kCacheWrite)
    cache_rows_ = std::max(cache_rows_, grid.x);
  else if (traits.role == KernelRole::kRope)
    rope_rows_ = std::max(rope_rows_, grid.x);
  else  // those of queries and keys run over more rows; that of the last row of each sequence is one of many
    norm_rows_ = norm_rows_ == 0 ? grid.x : std::min(norm_rows_, grid.x);
}

/// \return whether it was one
bool ServingIterations::end_iteration() noexcept {
  const bool turn_of_host = !samples_ && inputs_ == 0;
  const auto launches = static_cast<std::uint32_t>(std::min<std::uint64_t>(end_ - begin_, 1u << 31));
  const std::uint64_t roles = roles_before_end_;
  const std::uint32_t rows = cache_rows_ != 0 ? cache_rows_ : rope_rows_ != 0 ? rope_rows_ : norm_rows_;
  const bool clean = inputs_ <= 1;
  // Drafts are graphs that sample, too; but another one runs before the host looks.
  constexpr std::uint32_t kLaunchesBetween = 4;
  const bool several = replays_ > 1 && !other_graphs_ && launches <= kLaunchesBetween * replays_;
  if (several) pass_graph_ = graph_;
  graph_ = replays_ = 0;
  other_graphs_ = false;
  const std::uint64_t input = inputs_ == 1 ? input_ : 0;
  begin_ = end_;
  roles_ = 0;
  inputs_ = 0;
  cache_rows_ = rope_rows_ = norm_rows_ = 0;
  ran_ = sampled_ = returned_ = false;
  if (turn_of_host) return false;  // nothing was copied in: a result that is looked at now and then
  last_ = {end_, input, roles, rows, launches, clean && !several};

  const std::uint64_t make_up = mix(roles ^ (static_cast<std::uint64_t>(std::bit_width(launches)) << 56));
  const bool known = std::find(known_.begin(), known_.end(), make_up) != known_.end();
  if (!known) known_[ended_ % known_.size()] = make_up;
  ++ended_;
  const double weight = std::max(1.0 / static_cast<double>(ended_), 1.0 / 16);
  recurring_ += weight * ((known ? 1.0 : 0.0) - recurring_);
  uniform_ += weight * ((make_up == make_up_ ? 1.0 : 0.0) - uniform_);
  clean_ += weight * ((clean ? 1.0 : 0.0) - clean_);
  mean_launches_ += weight * (static_cast<double>(launches) - mean_launches_);
  make_up_ = make_up;
  decodes_by_name_ =
      decodes_by_name_ || (roles & (role_bit(KernelRole::kAttentionDecode) | role_bit(KernelRole::kGraph))) != 0;
  writes_cache_ = writes_cache_ || (roles & role_bit(KernelRole::kCacheWrite)) != 0;
  const bool graph = rows == 0 && (roles & role_bit(KernelRole::kGraph)) != 0;
  graphed_ += weight * ((graph ? 1.0 : 0.0) - graphed_);
  fed_ever_ = fed_ever_ || input != 0;
  fed_ += std::max(1.0 / static_cast<double>(ended_), 1.0 / 64) * ((input != 0 ? 1.0 : 0.0) - fed_);
  follow_level();
  for (std::uint32_t& count : kinds_) count -= count / 16;
  kinds_[static_cast<std::size_t>(kind_of(last_))] += 16;
  return true;
}

/// Follows how many rows a decode has: it falls at once, and rises by a few, or when it stays high.
void ServingIterations::follow_level() noexcept {
  constexpr std::uint32_t kStays = 24;
  if (last_.rows == 0) return;
  const double rows = last_.rows;
  if (level_ == 0 || rows <= level_ * kT.more_sequences + kT.few_sequences) {
    level_ = rows;
    above_level_ = 0;
  } else if (++above_level_ >= kStays) {
    level_ = rows;
    above_level_ = 0;
  }
}

ServingKind ServingIterations::kind_of(const End& end) const noexcept {
  const auto has = [&](std::uint64_t roles) { return (end.roles & roles) != 0; };
  const bool writes_cache = has(role_bit(KernelRole::kCacheWrite));
  // Names first where they are certain; kernels that serve both are told by rows against those of a decode.
  const bool decodes_in_graphs = graphed_ > kT.serving_graphed;
  if (end.rows != 0 && !decodes_in_graphs && (writes_cache || decodes_by_name_))
    return end.rows > level_ * kT.more_sequences + kT.few_sequences ? ServingKind::kPrefillOrMixed
                                                                    : ServingKind::kDecode;
  if (decodes_in_graphs && end.rows != 0 && writes_cache) return ServingKind::kPrefillOrMixed;
  if (has(role_bit(KernelRole::kAttentionPrefill))) return ServingKind::kPrefillOrMixed;
  if (has(role_bit(KernelRole::kAttentionDecode))) return ServingKind::kDecode;
  // An encoder's attention writes no cache and samples nothing: its pass prefills nothing.
  if (has(role_bit(KernelRole::kAttention)) && (writes_cache || decodes_by_name_)) return ServingKind::kPrefillOrMixed;
  if (has(role_bit(KernelRole::kGraph)) && (samples_ || writes_cache_)) return ServingKind::kDecode;
  // No name says what it is; but what samples again and again without new input goes on from what it sampled before.
  const bool attends = has(role_bit(KernelRole::kAttention) | role_bit(KernelRole::kSoftmax));
  if (names_only_ || !samples_ || !attends || !fed_ever_ || fed_ > kT.serving_fed) return ServingKind::kUnknown;
  return end.begin != 0 ? ServingKind::kPrefillOrMixed : ServingKind::kDecode;
}

bool ServingIterations::found() const noexcept {
  if (recurring_ < kT.serving_recurring || clean_ < kT.serving_clean) return false;
  return ended_ >= (samples_ ? kT.serving_iterations : kT.host_turns);
}

ServingKind ServingIterations::usual_kind() const noexcept {
  return static_cast<ServingKind>(std::max_element(kinds_.begin(), kinds_.end()) - kinds_.begin());
}

}  // namespace mfu

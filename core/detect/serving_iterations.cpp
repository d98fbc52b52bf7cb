#include "core/detect/serving_iterations.h"

#include <algorithm>
#include <bit>

#include "core/base/bit_mix.h"

namespace mfu {
namespace {

constexpr std::uint64_t bit(KernelRole c) noexcept { return std::uint64_t{1} << static_cast<unsigned>(c); }

constexpr std::uint64_t kOfModel = bit(KernelRole::kGraph) | bit(KernelRole::kEmbedding) | bit(KernelRole::kGemm) |
                                   bit(KernelRole::kNorm) | bit(KernelRole::kAttention) |
                                   bit(KernelRole::kAttentionPrefill) | bit(KernelRole::kAttentionDecode) |
                                   bit(KernelRole::kCacheWrite);

}  // namespace

bool ServingIterations::take(KernelRole role) noexcept {
  last_class_ = role;
  // The model runs again: nothing more can come of what went to the host.
  const bool ended = talks_ && (bit(role) & kOfModel) != 0;
  if (ended) {
    end_iteration();
    seen_classes_ = 0;
  }
  seen_classes_ |= bit(role);
  return ended;
}

bool ServingIterations::mark(const KernelTraits& traits, std::uint64_t n) noexcept {
  bool ended = false;
  // The next iteration's input also ends the wait for copies of the last one's output.
  const bool input = (traits.flags & kFlagToDevice) != 0 && sampled_;
  if (sampled_ && (n >= decide_at_ || input)) {
    end_iteration();
    ended = true;
    seen_classes_ = bit(traits.role);  // what came since the sample is too little to tell
  }
  if ((traits.flags & kFlagSampling) != 0) {
    sampled_ = true;
    end_ = n + 1;
    decide_at_ = n + kBurst;
  } else if (sampled_ && (traits.flags & kFlagToHost) != 0) {
    end_ = n + 1;
    talks_ = true;
  }
  return ended;
}

void ServingIterations::end_iteration() noexcept {
  const std::uint64_t make_up = mix(seen_classes_ ^ (static_cast<std::uint64_t>(std::bit_width(end_ - begin_)) << 56));
  const bool known = std::find(known_.begin(), known_.end(), make_up) != known_.end();
  if (!known) known_[ended_ % known_.size()] = make_up;
  ++ended_;
  const double weight = std::max(1.0 / static_cast<double>(ended_), 1.0 / 16);
  recurring_ += weight * ((known ? 1.0 : 0.0) - recurring_);
  talking_ += weight * ((talks_ ? 1.0 : 0.0) - talking_);
  mean_launches_ += weight * (static_cast<double>(end_ - begin_) - mean_launches_);

  // An encoder's attention writes no cache: its pass prefills nothing. Where something decodes, a cache is written by
  // kernels that no name gives away.
  const bool encodes = (seen_classes_ & bit(KernelRole::kCacheWrite)) == 0 &&
                       kinds_[static_cast<std::size_t>(ServingKind::kDecode)] == 0;
  const bool prefill = (seen_classes_ & bit(KernelRole::kAttentionPrefill)) != 0 ||
                       (!encodes && (seen_classes_ & bit(KernelRole::kAttention)) != 0);
  const bool decode = (seen_classes_ & (bit(KernelRole::kAttentionDecode) | bit(KernelRole::kGraph))) != 0;
  last_ = {end_, prefill ? ServingKind::kPrefillOrMixed : decode ? ServingKind::kDecode : ServingKind::kUnknown};
  for (std::uint32_t& count : kinds_) count -= count / 16;
  kinds_[static_cast<std::size_t>(last_.kind)] += 16;
  begin_ = end_;
  sampled_ = talks_ = false;
  decide_at_ = kNever;
}

ServingKind ServingIterations::usual_kind() const noexcept {
  return static_cast<ServingKind>(std::max_element(kinds_.begin(), kinds_.end()) - kinds_.begin());
}

}  // namespace mfu

#include "core/detect/launch_history.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

namespace mfu {
bool LaunchHistory::Keys::equal(Position a, Position b, std::uint64_t count) const noexcept {
  while (count > 0) {
    const std::uint32_t at = slot(a), other = slot(b);
    const std::uint64_t here = std::min<std::uint64_t>(count, kRing - std::max(at, other));
    if (std::memcmp(&ring_[at], &ring_[other], here * sizeof(Key)) != 0) return false;
    a += here;
    b += here;
    count -= here;
  }
  return true;
}

LaunchHistory::LaunchHistory(Position first)
    : flags_(kRing),
      begins_(kRing),
      word_names_(kVocabulary),
      seen_until_(kVocabulary),
      word_index_(kIndexSlots, kFreeSlot),
      words_(kVocabulary),
      first_(first),
      n_(first) {
  std::iota(words_.begin(), words_.end(), Key{0});
  word_count_ = 1;  // that of name 0
}

LaunchHistory::Key LaunchHistory::find_or_add(std::uint32_t name) {
  std::uint32_t at = index_slot(name);
  for (; word_index_[at] != kFreeSlot; at = (at + 1) % kIndexSlots) {
    const Key known = word_index_[at];
    if (word_names_[known] != name) continue;
    seen_until_[known] = n_ + 1;
    return known;
  }
  if (word_count_ == kVocabulary) {
    forget_words();
    at = free_index_slot(name);
  }
  const Key word = words_[word_count_++];
  word_names_[word] = name;
  seen_until_[word] = n_ + 1;
  word_index_[at] = word;
  newest_word_ = n_;
  return word;
}

std::uint32_t LaunchHistory::free_index_slot(std::uint32_t name) const noexcept {
  std::uint32_t at = index_slot(name);
  while (word_index_[at] != kFreeSlot) at = (at + 1) % kIndexSlots;
  return at;
}

/// Forgets about half of the vocabulary, the longest unseen: the median of a sample divides it. Where names never
/// return, this is most of what a launch costs.
void LaunchHistory::forget_words() {
  flooded_ = n_ - std::exchange(forgot_, n_) < kFloodLength;
  std::array<Position, kVocabulary / 64> ends;
  for (std::uint32_t i = 0; i < ends.size(); ++i) ends[i] = seen_until_[64 * i + 1];
  std::nth_element(ends.begin(), ends.begin() + ends.size() / 2, ends.end());
  const Position keep_from = ends[ends.size() / 2];
  // Which words stay nobody can predict, the processor neither: each is written, without a branch, after those that
  // stay and before those that do not.
  std::uint32_t kept = 1;
  for (std::uint32_t i = 1; i < kVocabulary; ++i) {
    words_[kept] = words_[kept + (kVocabulary - 1 - i)] = static_cast<Key>(i);
    kept += seen_until_[i] > keep_from ? 1 : 0;
  }
  std::fill(word_index_.begin(), word_index_.end(), kFreeSlot);
  for (std::uint32_t i = 1; i < kept; ++i) word_index_[free_index_slot(word_names_[words_[i]])] = words_[i];
  word_count_ = kept;
}

/// A backward pass or an optimizer.
void LaunchHistory::note_training(std::uint8_t flags) {
  constexpr std::uint32_t kEnough = 3;  // one may be a misread name
  if ((flags & kFlagBackward) != 0 && backward_seen_ < kEnough) ++backward_seen_;
  if ((flags & kFlagOptimizer) != 0 && optimizer_seen_ < kEnough) ++optimizer_seen_;
  const bool was = training_;
  training_ = training_ || backward_seen_ == kEnough || optimizer_seen_ == kEnough;
  if (!training_) return;
  if ((flags & (kFlagOptimizer | kFlagForeach)) != 0) optimizer_known_ = true;
  const bool of_training = (flags & (kFlagBackward | kFlagOptimizer)) != 0;
  if (was && of_training)
    training_gap_ = std::max(training_gap_, static_cast<std::uint32_t>(std::min<Position>(n_ - last_trained_, kRing)));
  if (!was || of_training) last_trained_ = n_;
}

void LaunchHistory::forget_training() noexcept {
  training_ = optimizer_known_ = false;
  backward_seen_ = optimizer_seen_ = training_gap_ = 0;
}

std::size_t LaunchHistory::held_bytes() const noexcept {
  const auto bytes = [](const auto& v) { return v.capacity() * sizeof(v[0]); };
  return names_.ring_.bytes() + families_.ring_.bytes() + flags_.bytes() + begins_.bytes() + bytes(words_) +
         bytes(word_names_) + bytes(seen_until_) + bytes(word_index_);
}

double multiset_similarity(const LaunchHistory::Keys& keys, LaunchPosition a, LaunchPosition a_end, LaunchPosition b,
                           LaunchPosition b_end, KeyCounts& counts) {
  if (a != a_end && a_end - a == b_end - b && keys.equal(a, b, a_end - a)) return 1;
  for (LaunchPosition i = a; i < a_end; ++i) ++counts[keys[i]];
  for (LaunchPosition i = b; i < b_end; ++i) --counts[keys[i]];
  std::uint64_t unlike = 0;
  const auto take = [&](LaunchPosition i) {
    std::int32_t& count = counts[keys[i]];
    unlike += static_cast<std::uint64_t>(std::abs(count));
    count = 0;
  };
  for (LaunchPosition i = a; i < a_end; ++i) take(i);
  for (LaunchPosition i = b; i < b_end; ++i) take(i);
  const std::uint64_t both = (a_end - a) + (b_end - b);
  const std::uint64_t longer = std::max(a_end - a, b_end - b);
  return longer == 0 ? 0 : static_cast<double>(both - unlike) / 2 / static_cast<double>(longer);
}

}  // namespace mfu

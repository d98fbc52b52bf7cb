// The last launches of one device, their names as small keys, and whether the program trains.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/zeroed_array.h"
#include "core/detect/launch.h"

namespace mfu {

/// A kernel's name, a graph or a direction of a copy, as an index; also a family of names (KernelTraits::family).
using LaunchKey = std::uint16_t;
/// Index of a launch, counted from the first one ever added.
using LaunchPosition = std::uint64_t;

/// [one thread] Hot: add() runs for every launch; no allocation after construction.
class LaunchHistory {
 public:
  static constexpr std::uint32_t kRing = 1u << 17;    ///< launches that are remembered
  static constexpr std::uint32_t kVocabulary = 4096;  ///< distinct names; the least recent makes way
  static constexpr std::uint32_t kFamilies = 64;      ///< keys after the vocabulary's, one per family
  static constexpr std::uint32_t kKeys = kVocabulary + kFamilies;
  static constexpr std::uint32_t kLoaderFamily = kFamilies;  ///< of copies by a thread that launches no kernel

  using Key = LaunchKey;
  using Position = LaunchPosition;

  /// The keys of the remembered launches, by position.
  class Keys {
   public:
    [[nodiscard]] Key operator[](Position p) const noexcept { return ring_[slot(p)]; }
    /// The `count` launches from `a` on are, one by one, those from `b` on.
    [[nodiscard]] bool equal(Position a, Position b, std::uint64_t count) const noexcept;

   private:
    friend class LaunchHistory;
    Keys() : ring_(kRing) {}
    LargeZeroedTable<Key> ring_;
  };

  /// `first`: the position of the first launch that will be added.
  explicit LaunchHistory(Position first);

  /// \return its position
  Position add(const Launch& launch) {
    const Key word = intern(launch.name);
    const std::uint32_t at = slot(n_);
    names_.ring_[at] = word;
    families_.ring_[at] = launch.traits.family != 0 ? key_of_family(launch.traits.family) : word;
    families_seen_ |= launch.traits.family != 0;
    flags_[at] = launch.traits.flags;
    begins_[at] = launch.begin_ns;
    if ((launch.traits.flags & (kFlagBackward | kFlagOptimizer | kFlagForeach)) != 0)
      note_training(launch.traits.flags);
    return n_++;
  }

  [[nodiscard]] Position end() const noexcept { return n_; }  ///< of the next launch
  [[nodiscard]] Position oldest() const noexcept { return n_ > first_ + kRing ? n_ - kRing : first_; }
  [[nodiscard]] const Keys& names() const noexcept { return names_; }
  /// Names that stand for the same operation on other shapes share a key.
  [[nodiscard]] const Keys& families() const noexcept { return families_; }
  [[nodiscard]] std::uint8_t flags(Position p) const noexcept { return flags_[slot(p)]; }
  [[nodiscard]] TimeNs begin_ns(Position p) const noexcept { return begins_[slot(p)]; }
  [[nodiscard]] bool families_seen() const noexcept { return families_seen_; }
  [[nodiscard]] Position newest_name() const noexcept { return newest_word_; }  ///< where one was new last
  /// Most launches are of names that are not known, or not any more: nothing that is remembered can return.
  [[nodiscard]] bool flooded() const noexcept { return flooded_ && n_ - forgot_ < kFloodLength; }
  /// The key of KernelTraits::family, which is not 0.
  [[nodiscard]] static constexpr Key key_of_family(std::uint32_t family) noexcept {
    return static_cast<Key>(kVocabulary + std::min(family, kFamilies) - 1);
  }
  /// Calls `visit(position)` with the last occurrence of every name in memory.
  template <typename Visit>
  void for_each_name(Visit&& visit) const {
    for (std::uint32_t i = 0; i < word_count_; ++i)
      if (const Position end = seen_until_[words_[i]]; end > oldest()) visit(end - 1);
  }

  // ---- training
  [[nodiscard]] bool is_optimizer(Position p) const noexcept {
    return (flags(p) & kFlagOptimizer) != 0 || (training_ && (flags(p) & kFlagForeach) != 0);
  }
  /// Backward passes or optimizers were seen.
  [[nodiscard]] bool training() const noexcept { return training_; }
  [[nodiscard]] bool optimizer_known() const noexcept { return optimizer_known_; }
  [[nodiscard]] Position last_trained() const noexcept { return last_trained_; }
  /// Longest stretch of training without a backward pass or optimizer [launch].
  [[nodiscard]] std::uint32_t training_gap() const noexcept { return training_gap_; }
  void forget_training() noexcept;

  [[nodiscard]] std::size_t held_bytes() const noexcept;

 private:
  [[nodiscard]] static std::uint32_t slot(Position p) noexcept { return static_cast<std::uint32_t>(p) & (kRing - 1); }
  static constexpr std::uint32_t kIndexBits = 13;
  static constexpr std::uint32_t kIndexSlots = 1u << kIndexBits;
  static_assert(kIndexSlots == 2 * kVocabulary);
  /// In a slot of the index: none is there. It is the word of name 0 for good, so that a look-up need not ask.
  static constexpr Key kFreeSlot = 0;
  /// Half of the vocabulary came anew in so many launches: in every second one, a name did.
  static constexpr Position kFloodLength = kVocabulary;
  /// Where to look for a name first. Names are numbered one by one, which multiples of the golden ratio lay far apart.
  [[nodiscard]] static constexpr std::uint32_t index_slot(std::uint32_t name) noexcept {
    return (name * 0x9E37'79B9u) >> (32 - kIndexBits);
  }
  Key intern(std::uint32_t name) {
    const Key word = word_index_[index_slot(name)];
    if (word_names_[word] != name) [[unlikely]]
      return find_or_add(name);
    seen_until_[word] = n_ + 1;
    return word;
  }
  [[gnu::noinline]] Key find_or_add(std::uint32_t name);
  [[nodiscard]] std::uint32_t free_index_slot(std::uint32_t name) const noexcept;
  void forget_words();
  [[gnu::noinline]] void note_training(std::uint8_t flags);

  Keys names_, families_;
  LargeZeroedTable<std::uint8_t> flags_;
  LargeZeroedTable<TimeNs> begins_;
  std::vector<std::uint32_t> word_names_;  ///< by word
  std::vector<Position> seen_until_;       ///< by word: after its last launch; 0: there was none
  std::vector<Key> word_index_;            ///< by name, open addressing
  std::vector<Key> words_;                 ///< all of them: word_count_ that are in use, then those that are free
  Position first_ = 0, n_ = 0;
  std::uint32_t word_count_ = 0;
  Position newest_word_ = 0;
  Position forgot_ = 0;   ///< where half of the vocabulary was forgotten last
  bool flooded_ = false;  ///< it filled again at once
  bool families_seen_ = false;
  std::uint32_t backward_seen_ = 0, optimizer_seen_ = 0;
  bool training_ = false;
  Position last_trained_ = 0;
  std::uint32_t training_gap_ = 0;
  bool optimizer_known_ = false;
};

/// A number for every key, all zero between uses.
class KeyCounts {
 public:
  KeyCounts() : counts_(LaunchHistory::kKeys) {}
  [[nodiscard]] std::int32_t& operator[](LaunchKey key) noexcept { return counts_[key]; }
  void fill(std::int32_t value) noexcept { std::fill(counts_.begin(), counts_.end(), value); }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return counts_.capacity() * sizeof(counts_[0]); }

 private:
  std::vector<std::int32_t> counts_;
};

/// What [a, a_end) and [b, b_end) have in common, whatever its order, as a share of the longer one: 0..1.
[[nodiscard]] double multiset_similarity(const LaunchHistory::Keys& keys, LaunchPosition a, LaunchPosition a_end,
                                         LaunchPosition b, LaunchPosition b_end, KeyCounts& counts);

}  // namespace mfu

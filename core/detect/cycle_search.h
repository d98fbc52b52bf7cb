// Searches the remembered launches for a cycle that looks like a whole step.
//
// Names and 8-grams of names that return at equal distances, and bursts of marks, propose candidates; a candidate's
// last two turns must agree, and it must look like a whole step rather than a layer, a loop over parameters, or several
// turns of something shorter.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/zeroed_array.h"
#include "core/detect/detection_log.h"
#include "core/detect/launch_history.h"

namespace mfu {

/// A distance at which launches return, and what its last turns show.
struct CycleCandidate {
  std::uint32_t period = 0;       ///< [launch]
  std::uint32_t members = 0;      ///< names and 8-grams that return at this distance
  std::uint32_t repeats = 0;      ///< whole turns that look like the one after
  double coverage = 0;            ///< share of the remembered names that occur in it
  double similarity = 0;          ///< of the last two turns: equal at the same place, or as multisets
  double similarity_by_name = 0;  ///< of the last two turns, in order: every name weighs the same
  double composite = 0;           ///< share of its 8-grams that are there more than once
  std::uint8_t trait_flags = 0;   ///< TraitFlag bits in both of the last two turns
  bool optimizer = false;         ///< both hold one, at the same place
  std::uint32_t updates = 0;      ///< launches of it
  bool matmuls = false;           ///< matrix products or convolutions in the last turn
  bool accepted = false;          ///< it is a step, as far as one candidate alone can show
  const char* refused = nullptr;  ///< why it is not
  std::uint32_t needed = 0;       ///< turns asked of it; 0: it is none however often it runs
  bool by_family = false;         ///< found among families, not names
};

/// Equal within 1/32, or two launches.
[[nodiscard]] inline bool equal_periods(std::uint32_t a, std::uint32_t b) noexcept {
  const std::uint32_t more = std::max(a, b);
  return more - std::min(a, b) <= std::max(more / 32, 2u);
}

/// Turns that a stack of layers, or a cycle with a loss, must have run, by its coverage.
[[nodiscard]] std::uint32_t repeats_of_stack(double coverage) noexcept;

/// [one thread] Memory is fixed at construction.
class CycleSearch {
 public:
  static constexpr std::uint32_t kMaxPeriod = LaunchHistory::kRing / 2;  ///< [launch]

  CycleSearch(const LaunchHistory& history, Explainer& explain);

  /// The step that the last `window` launches are made of, if they are.
  [[nodiscard]] std::optional<CycleCandidate> find(std::uint32_t window);
  /// The shortest distance at which something returned in the last search; 0: none.
  [[nodiscard]] std::uint32_t shortest_repeat() const noexcept { return shortest_; }

  [[nodiscard]] std::size_t held_bytes() const noexcept;

 private:
  using Key = LaunchKey;
  using Position = LaunchPosition;
  using Keys = LaunchHistory::Keys;

  /// What returns: a name, or an 8-gram of names.
  struct Anchor {
    std::uint32_t last = 0;  ///< positions relative to the window's begin
    std::uint32_t gap = 0;
    std::uint32_t run = 0;   ///< equal gaps in a row, now
    std::uint32_t prev = 0;  ///< most equal gaps in a row, before

    void returns(std::uint32_t here) noexcept;
  };
  struct GramAnchor {
    std::uint64_t gram = 0;  ///< its hash; 0: free
    Anchor anchor;
  };
  static constexpr std::uint32_t kAbsences = 3;
  /// One name's, in one line of the cache: any of its launches, and those after an absence of 64, 512 and 4,096.
  struct alignas(64) NameAnchors {
    std::array<Anchor, 1 + kAbsences> of;
  };
  struct Alignment {
    double share = 0;    ///< of the launches
    double by_name = 0;  ///< the same with every name weighing alike, however often it occurs
  };
  /// Turns that are asked of a candidate, or why no number of them would do.
  struct Needed {
    std::uint32_t repeats = 0;
    const char* never = nullptr;
  };
  struct Tally {  ///< of one name in the last turn, and in the one before
    std::uint32_t count = 0, unlike = 0, before = 0;
  };

  std::optional<CycleCandidate> best_of(Position begin, const Keys& keys);
  void collect_returns(Position begin, const Keys& keys);
  void touch_gram(std::uint64_t gram, std::uint32_t here);
  [[nodiscard]] std::vector<CycleCandidate> candidates_of_returns(std::uint32_t length);
  void add_burst_candidates(Position begin, std::vector<CycleCandidate>& candidates) const;
  void refuse_multiples(std::vector<CycleCandidate>& candidates, const Keys& keys);
  std::optional<CycleCandidate> choose(const std::vector<CycleCandidate>& candidates, const Keys& keys);
  std::optional<CycleCandidate> without_shorter(CycleCandidate best, Position begin, const Keys& keys);
  template <typename Visit>
  bool align(Position end, std::uint32_t period, const Keys& keys, Visit&& visit) const;
  Alignment alignment(Position end, std::uint32_t period, const Keys& keys);
  bool holds_more(const CycleCandidate& longer, const CycleCandidate& shorter, const Keys& keys);
  void evaluate(CycleCandidate& candidate, Position begin, const Keys& keys);
  void look_at_marks(CycleCandidate& candidate, Position begin) const;
  [[nodiscard]] std::uint32_t names_in_turn(std::uint32_t period, const Keys& keys);
  [[nodiscard]] double coverage_of(std::uint32_t period, const Keys& keys);
  [[nodiscard]] double returning_stretches(std::uint32_t period, Position first, const Keys& keys);
  [[nodiscard]] double composite_of(std::uint32_t period, const Keys& keys);
  std::uint32_t longest_undisturbed(std::uint32_t period, Position begin, const Keys& keys);
  [[nodiscard]] static bool holds_update(const CycleCandidate& candidate) noexcept;
  [[nodiscard]] const char* refused_at_sight(const CycleCandidate& candidate) const noexcept;
  [[nodiscard]] Needed repeats_needed(const CycleCandidate& candidate) const noexcept;
  void explain(const CycleCandidate& candidate);

  const LaunchHistory& history_;
  Explainer& explain_;
  LargeZeroedTable<NameAnchors> name_anchors_;  ///< by key; only those of seen_ are of this search
  std::vector<Key> seen_;                       ///< in this search
  LargeZeroedTable<GramAnchor> gram_anchors_;   ///< by hash, open addressing
  std::uint32_t gram_anchors_used_ = 0;
  KeyCounts counts_;
  std::vector<Tally> tallies_;  ///< by key; all zero between uses
  std::vector<std::uint32_t> grams_;
  std::uint32_t shortest_ = 0;
  std::uint32_t several_turns_ = 0;  ///< the longest period that the last look refused for being that; 0: none
};

}  // namespace mfu

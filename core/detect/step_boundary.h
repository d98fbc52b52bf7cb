// Where in a cycle a step begins, and how a boundary is found again in the stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/detect/cycle_search.h"
#include "core/detect/launch_history.h"
#include "core/detect/step_findings.h"

namespace mfu {

/// The cycle that is being followed.
struct StepCycle {
  std::uint32_t period = 0;  ///< [launch]
  BoundaryRule rule = BoundaryRule::kAnywhere;
  LaunchPosition begin = 0, end = 0;  ///< the reference: the step that others are compared with
  std::uint8_t trait_flags = 0;
  bool optimizer = false;
  double coverage = 0;
  bool by_family = false;  ///< found among families, not names
};

/// Where in [begin, begin + cycle.period), taken for a circle, a step begins; sets cycle.rule.
[[nodiscard]] LaunchPosition place_boundary(const LaunchHistory& history, LaunchPosition begin, StepCycle& cycle);

/// Finds places that look like the end of the reference step. [one thread]
class BoundaryFinder {
 public:
  using Position = LaunchPosition;

  struct Found {
    Position at = 0;
    double score = 0;  ///< share of the surroundings that agrees, by weight
  };
  enum Side : std::uint8_t { kBefore = 1, kAfter = 2, kBoth = 3 };

  BoundaryFinder(const LaunchHistory& history, const StepCycle& cycle);

  /// Weighs the names around the end of the reference step. To be called whenever it changes.
  void weigh_surroundings();
  /// Sets what surroundings must share from what the two ends of the reference share.
  void measure_agreement();

  /// The place within `reach` launches of `expected` whose surroundings are most like those of the reference's end.
  [[nodiscard]] Found find(Position expected, std::uint32_t reach, Side side);
  [[nodiscard]] bool agrees(const Found& found) const noexcept { return found.score >= agreement_; }
  /// The launches from `p` on look like those after the reference. Cheap: asked for every launch while scanning.
  [[nodiscard]] bool starts_like_step(Position p) const noexcept;
  /// The cycle's optimizer, if it has one, runs as far before `p` as before the reference's end.
  [[nodiscard]] bool ends_with_update(Position p) const noexcept;

  /// Launches on each side of a boundary that are compared.
  [[nodiscard]] std::uint32_t surroundings() const noexcept;
  /// How far a boundary may lie from where it is expected [launch].
  [[nodiscard]] std::uint32_t slack() const noexcept { return cycle_.period / 32 + 16; }

  [[nodiscard]] std::size_t held_bytes() const noexcept;

 private:
  static constexpr std::uint32_t kSurroundings = 64;

  const LaunchHistory& history_;
  const StepCycle& cycle_;
  std::array<std::int32_t, 2 * kSurroundings> weights_{};  ///< of the names around the reference's end
  double agreement_ = 0;
  KeyCounts counts_;
  std::vector<std::int32_t> cost_, mark_;  ///< of one row of the alignment
};

}  // namespace mfu

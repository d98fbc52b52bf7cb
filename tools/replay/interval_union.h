// Lengths of unions of time intervals: of one set, cut to windows, and of many consecutive runs of one sequence.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "core/base/units.h"

namespace mfu {

/// The union of a set of intervals as disjoint pieces in order, with lengths looked up by time. O(n log n) to build.
class IntervalUnion {
 public:
  IntervalUnion() = default;
  explicit IntervalUnion(std::vector<Interval> intervals);

  [[nodiscard]] DurationNs length_ns() const noexcept { return before_.empty() ? 0 : before_.back(); }
  /// Length of the union before `t` [ns]. O(log n).
  [[nodiscard]] DurationNs length_before(TimeNs t) const noexcept;
  /// True when `t` lies in the union. O(log n).
  [[nodiscard]] bool contains(TimeNs t) const noexcept;
  [[nodiscard]] const std::vector<Interval>& pieces() const noexcept { return pieces_; }

 private:
  std::vector<Interval> pieces_;
  std::vector<DurationNs> before_;  ///< before_[i]: length of the pieces 0..i together
};

/// Union lengths of the runs [first, last) of one sequence of intervals, for many runs at once in O((n + q) log n),
/// however much the runs overlap.
///
/// The intervals are painted on the time line in order, each over what lies there. After interval j has been painted,
/// the union of i..j is the length painted by i or a later one; a Fenwick tree over the painters adds that up.
/// Several lines (devices) may be painted; their lengths add.
class RunUnions {
 public:
  /// \param size number of intervals that will be painted
  explicit RunUnions(std::size_t size, std::size_t lines) : sums_(size + 1, 0), lines_(lines) {}

  /// Paints the next interval, number `painter` (ascending), on line `line`. An empty one is a no-op.
  void paint(std::size_t line, Interval interval, std::size_t painter);
  /// Length painted by `first` or later painters [ns].
  [[nodiscard]] DurationNs painted_since(std::size_t first) const noexcept;
  /// Says that painted_since will not be asked for less than `first` any more, so that what lies before is dropped.
  void forget_before(std::size_t first) noexcept;

 private:
  struct Piece {
    TimeNs end_ns;
    std::size_t painter;
  };
  using Line = std::map<TimeNs, Piece>;  ///< disjoint pieces by begin

  void add(std::size_t painter, DurationNs length) noexcept;

  std::vector<DurationNs> sums_;  ///< Fenwick tree, 1-based
  DurationNs total_ = 0;
  std::vector<Line> lines_;
};

}  // namespace mfu

// Measures the cost of tracing to the program, and decides when to trace so that it stays within a budget.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/units.h"

namespace mfu {

/// Pure: no clock and no CUPTI. Times in ns, on the clock that windows are cut on.
///
/// The cost is found by turns: stretches of some steps that are traced, and stretches that are not, in the order on,
/// off, off, on, so that what drifts cancels out. Each neighbouring pair gives the difference of their time per step;
/// of the pairs the cost is the mean without the outermost eighths, and its error follows from the same pairs with
/// these eighths drawn in (the trimmed mean of Tukey and McLaughlin, Sankhya A 25, 1963). Only a cost that is surely
/// above the budget counts: then one window in `every` is traced, and after a while it is found again. Nothing pauses
/// as long as the launches are too few to cost that much, or the GPU too busy: one that does not wait for the host
/// loses nothing by what tracing costs there.
class TraceBudget {
 public:
  /// How far the program is: its unit of work with this number began at `at`.
  struct Progress {
    std::uint64_t units = 0;
    TimeNs at = 0;
    std::uint64_t launches = 0;
    bool graphs = false;     ///< one was launched: what that costs depends on its nodes
    DurationNs idle_ns = 0;  ///< of the GPU
  };
  struct Cost {
    double mean = 0;   ///< time that tracing adds to a step, as a share of a step without
    double error = 0;  ///< half of the 95 % interval
  };
  static constexpr TimeNs kNotTraced = -1;

  /// \param budget share of a step, above 0.
  TraceBudget(double budget, TimeNs origin, DurationNs window) : budget_(budget), origin_(origin), window_(window) {}

  /// Once per tick. \param traced_from all that ran since then was traced; kNotTraced: tracing pauses, or did.
  /// \return whether to trace from now on.
  [[nodiscard]] bool look(TimeNs now, Progress progress, TimeNs traced_from);
  /// Tracing is not to pause at this moment: a search for the cost begins anew.
  void stop_turns() noexcept;
  /// A look before this moment changes nothing.
  [[nodiscard]] TimeNs due(TimeNs now) const noexcept;

  [[nodiscard]] const std::optional<Cost>& cost() const noexcept { return cost_; }  ///< none: it is not known yet
  /// Of so many windows one is traced; 1: all are, 0: none is.
  [[nodiscard]] std::uint64_t every() const noexcept { return every_; }
  /// The cost, its error and what follows, for people.
  [[nodiscard]] std::string sentence() const;
  /// True once after each change of `every`, and after the cost is known at first.
  [[nodiscard]] bool take_news() noexcept { return std::exchange(news_, false); }

 private:
  void warm_up(TimeNs now, Progress progress);
  [[nodiscard]] bool may_be_above(TimeNs now, Progress progress) const noexcept;
  void take_turn(TimeNs now, Progress progress);
  void decide(TimeNs now, const Cost& cost);
  /// With a margin, since there are several looks.
  [[nodiscard]] bool is_above(const Cost& cost) const noexcept { return cost.mean - 1.5 * cost.error > budget_; }
  [[nodiscard]] bool in_traced_window(TimeNs now, TimeNs traced_from);
  [[nodiscard]] bool traced_turn() const noexcept { return (turn_ + 1) / 2 % 2 == 0; }
  [[nodiscard]] std::int64_t window_of(TimeNs at) const noexcept { return (at - origin_) / window_; }
  /// When tracing begins for a window: before it does, since what runs at first was launched before.
  [[nodiscard]] TimeNs begin_of(std::int64_t window) const noexcept {
    return edge(window) - std::min(window_ / 4, kNsPerSecond);
  }
  [[nodiscard]] TimeNs edge(std::int64_t window) const noexcept { return origin_ + window * window_; }

  const double budget_;
  const TimeNs origin_;
  const DurationNs window_;
  enum class State : std::uint8_t { kWarmsUp, kTurns, kDecided } state_ = State::kWarmsUp;
  TimeNs since_ = 0;        ///< begin of the warm-up, 0: nothing was done yet; or of the turn
  Progress mark_;           ///< where the steps begin that are timed
  TimeNs marked_at_ = 0;    ///< in the warm-up
  bool marked_ = false;     ///< of a turn
  DurationNs stretch_ = 0;  ///< length of a turn
  std::uint32_t turn_ = 0;
  double other_step_ns_ = 0;  ///< of the first turn of a pair
  std::vector<double> pairs_;
  std::optional<Cost> cost_;
  std::uint64_t every_ = 1;
  TimeNs again_ = 0;       ///< when the cost is looked for again
  std::int64_t next_ = 0;  ///< the window that is traced next, or is being traced
  std::uint32_t tries_ = 0;
  bool news_ = false;
};

/// Of at least 4 pairs.
[[nodiscard]] TraceBudget::Cost cost_of(std::vector<double> pairs);

}  // namespace mfu

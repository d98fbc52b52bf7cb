#include "injection/threads/trace_budget.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace mfu {

namespace {

constexpr std::int64_t kStepsOfTurn = 10;
constexpr DurationNs kWarmUp = 4 * kNsPerSecond;  // the first steps are like no others; a short run is traced whole
// Several times what tracing a launch costs: 2.0 us on an H100, where launches follow each other (docs/hardware).
constexpr DurationNs kMostPerLaunch = 10'000;
constexpr DurationNs kShortest = kNsPerSecond / 5, kLongest = 5 * kNsPerSecond;  // of a turn
constexpr DurationNs kAgain = 600 * kNsPerSecond;
constexpr double kMostWindows = 100;  // more than that from one that is traced to the next is none

/// Few looks, since each may be wrong.
constexpr bool is_time_to_look(std::size_t pairs) noexcept { return pairs == 8 || pairs == 16 || pairs == 32; }

}  // namespace

TraceBudget::Cost cost_of(std::vector<double> pairs) {
  std::sort(pairs.begin(), pairs.end());
  const std::size_t cut = pairs.size() / 8;
  double inner = 0, sum = 0, squares = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (i >= cut && i < pairs.size() - cut) inner += pairs[i];
    const double drawn_in = std::clamp(pairs[i], pairs[cut], pairs[pairs.size() - 1 - cut]);
    sum += drawn_in;
    squares += drawn_in * drawn_in;
  }
  const auto n = static_cast<double>(pairs.size()), kept = n - 2 * static_cast<double>(cut);
  const double variance = std::max(0.0, (squares - sum * sum / n) / (n - 1));
  const double quantile = 2 + 3 / (kept - 1);  // of Student's t at 97.5 %, within 2 % from 5 degrees of freedom on
  return {inner / kept, quantile * std::sqrt(variance * n) / kept};
}

bool TraceBudget::look(TimeNs now, Progress progress, TimeNs traced_from) {
  if (state_ == State::kDecided && now >= again_) stop_turns();
  if (state_ == State::kWarmsUp)
    warm_up(now, progress);
  else if (state_ == State::kTurns)
    take_turn(now, progress);
  if (state_ == State::kDecided) return in_traced_window(now, traced_from);
  return state_ == State::kWarmsUp || traced_turn();
}

void TraceBudget::stop_turns() noexcept {
  state_ = State::kWarmsUp;
  since_ = 0;
}

/// The launches since the mark may cost more than the budget.
bool TraceBudget::may_be_above(TimeNs now, Progress progress) const noexcept {
  const double allowed_ns = budget_ * static_cast<double>(now - marked_at_);
  const auto launches = static_cast<double>(progress.launches - mark_.launches);
  return static_cast<double>(progress.idle_ns - mark_.idle_ns) > allowed_ns &&
         (progress.graphs || launches * kMostPerLaunch > allowed_ns);
}

void TraceBudget::warm_up(TimeNs now, Progress progress) {
  if (progress.units == 0 || since_ == 0) since_ = now;
  const bool begins = now - since_ <= kWarmUp;
  if (begins || (now - marked_at_ >= kNsPerSecond && !may_be_above(now, progress))) {
    mark_ = progress;
    marked_at_ = now;
  }
  const auto steps = static_cast<std::int64_t>(progress.units - mark_.units);
  if (now - marked_at_ < kNsPerSecond || steps < 2 || (steps < kStepsOfTurn && now - marked_at_ < kLongest)) return;
  stretch_ = std::clamp((progress.at - mark_.at) / steps * kStepsOfTurn, kShortest, kLongest);
  state_ = State::kTurns;
  since_ = now;
  turn_ = 0;
  marked_ = false;
  pairs_.clear();
}

void TraceBudget::take_turn(TimeNs now, Progress progress) {
  // The first quarter does not count, since work from before the turn still runs.
  if (!marked_) {
    marked_ = now - since_ >= stretch_ / 4;
    mark_ = progress;
    return;
  }
  if (now - since_ > 4 * (kLongest + stretch_)) return stop_turns();  // the program does something else
  if (now - since_ < stretch_ / 4 * 5 || progress.units == mark_.units) return;
  const double step_ns =
      static_cast<double>(progress.at - mark_.at) / static_cast<double>(progress.units - mark_.units);
  const bool traced = traced_turn();
  since_ = now;
  marked_ = false;
  if (turn_++ % 2 == 0) {
    other_step_ns_ = step_ns;
    return;
  }
  pairs_.push_back(traced ? step_ns / other_step_ns_ - 1 : other_step_ns_ / step_ns - 1);
  if (!is_time_to_look(pairs_.size())) return;
  const Cost cost = cost_of(pairs_);
  if (is_above(cost) || cost.mean + cost.error < budget_ || pairs_.size() == 32) decide(now, cost);
}

void TraceBudget::decide(TimeNs now, const Cost& cost) {
  state_ = State::kDecided;
  again_ = now + kAgain;
  const double most =
      (cost.mean + cost.error) / budget_ * static_cast<double>(edge(1) - begin_of(0)) / static_cast<double>(window_);
  const std::uint64_t every = !is_above(cost)       ? 1
                              : most > kMostWindows ? 0
                                                    : static_cast<std::uint64_t>(std::ceil(std::max(2.0, most)));
  next_ = window_of(now) + static_cast<std::int64_t>(every);
  tries_ = 0;
  news_ = !cost_ || every != every_;
  cost_ = cost;
  every_ = every;
}

bool TraceBudget::in_traced_window(TimeNs now, TimeNs traced_from) {
  if (every_ < 2) return every_ == 1;
  if (now >= edge(next_ + 1)) {
    // Where the host runs far ahead, the work of the window's begin was launched before tracing began: the next one.
    const bool whole = traced_from != kNotTraced && traced_from <= edge(next_);
    tries_ = whole || tries_ == 2 ? 0 : tries_ + 1;
    next_ = std::max(window_of(now), next_ + (tries_ == 0 ? static_cast<std::int64_t>(every_) : 1));
  }
  return now >= begin_of(next_);
}

TimeNs TraceBudget::due(TimeNs now) const noexcept {
  TimeNs at = std::numeric_limits<TimeNs>::max();
  if (state_ == State::kTurns) at = since_ + (marked_ ? stretch_ / 4 * 5 : stretch_ / 4);
  if (state_ == State::kDecided && every_ >= 2) at = now < begin_of(next_) ? begin_of(next_) : edge(next_ + 1);
  return std::max(at, now + kNsPerSecond / 50);
}

std::string TraceBudget::sentence() const {
  if (!cost_) return "the cost of tracing is unknown: there were too few steps";
  return fmt::format("tracing costs {:.1f} +-{:.1f} % of a step, MFU_BUDGET is {:g} %: {}", cost_->mean * 100,
                     cost_->error * 100, budget_ * 100,
                     every_ == 0   ? "no window is traced"
                     : every_ == 1 ? "all windows are traced"
                                   : fmt::format("one window in {} is traced", every_));
}

}  // namespace mfu

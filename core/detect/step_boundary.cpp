#include "core/detect/step_boundary.h"

#include <algorithm>
#include <limits>

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// One turn of a cycle, taken for a circle: the launch after its last is its first.
class Circle {
 public:
  Circle(const LaunchHistory& history, LaunchPosition begin, std::uint32_t period) noexcept
      : history_(history), begin_(begin), period_(period) {}

  [[nodiscard]] LaunchPosition at(std::uint32_t offset) const noexcept { return begin_ + offset % period_; }
  [[nodiscard]] bool has(std::uint32_t offset, std::uint8_t flags) const noexcept {
    return (history_.flags(at(offset)) & flags) != 0;
  }
  [[nodiscard]] bool to_device(std::uint32_t offset) const noexcept { return has(offset, kFlagToDevice); }

  /// The longest stretch without a mark: offset of the mark that ends it, and of the one before.
  struct Stretch {
    std::uint32_t after = 0, before = 0, length = 0;
  };
  template <typename Marked>
  [[nodiscard]] Stretch longest_without(Marked&& marked) const {
    Stretch best;
    std::uint32_t first = kNone, previous = 0;
    for (std::uint32_t i = 0; i < period_; ++i) {
      if (!marked(i)) continue;
      if (first == kNone)
        first = i;
      else if (i - previous > best.length)
        best = {i, previous, i - previous};
      previous = i;
    }
    if (first != kNone && first + period_ - previous > best.length)
      best = {first, previous, first + period_ - previous};
    return best;
  }

  /// The fullest run of copies to the device that begins in the `reach` launches from `offset`; `offset` if none does.
  [[nodiscard]] std::uint32_t fullest_copies(std::uint32_t offset, std::uint32_t reach) const {
    std::uint32_t best = offset, most = 0;
    for (std::uint32_t i = 0; i < reach; ++i) {
      if (!to_device(offset + i)) continue;
      std::uint32_t count = 0, last = i;
      const std::uint32_t start = i;
      for (; i < reach && i - last <= 3; ++i) {
        if (!to_device(offset + i)) continue;
        ++count;
        last = i;
      }
      // A lone copy far from where the optimizer ends is more likely a scalar on its way than a batch.
      if (count > 4 * most && (count > 1 || start <= period_ / 8)) {
        most = count;
        best = offset + start;
      }
    }
    return best;
  }

 private:
  const LaunchHistory& history_;
  LaunchPosition begin_;
  std::uint32_t period_;
};

/// Where the repetition itself began: arbitrary, but better than most places.
LaunchPosition begin_of_repetition(const LaunchHistory& history, LaunchPosition begin, std::uint32_t p) {
  LaunchPosition start = begin + p;
  std::uint32_t unlike = 0;
  while (start > history.oldest() + p && unlike < 16) {
    --start;
    unlike = history.families()[start] == history.families()[start - p] ? 0 : unlike + 1;
  }
  start = start - p + unlike;
  return begin + (p - (begin - start) % p) % p;
}

}  // namespace

LaunchPosition place_boundary(const LaunchHistory& history, LaunchPosition begin, StepCycle& cycle) {
  const std::uint32_t p = cycle.period;
  const Circle circle(history, begin, p);
  if (cycle.optimizer) {
    const auto free = circle.longest_without([&](std::uint32_t i) { return history.is_optimizer(circle.at(i)); });
    cycle.rule = BoundaryRule::kOptimizer;
    return circle.at(circle.fullest_copies(free.before + 1, p / 2));
  }
  if (!history.training() && (cycle.trait_flags & kFlagSampling) != 0) {
    const auto free = circle.longest_without([&](std::uint32_t i) { return circle.has(i, kFlagSampling); });
    const std::uint32_t sampled = free.before + 1;
    std::uint32_t end = sampled;
    for (std::uint32_t i = end; i < end + kT.burst && i < end + p; ++i)
      if (circle.has(i, kFlagToHost)) end = i + 1;
    // A sample that stays on the device is a part of a model.
    if (end > sampled) {
      cycle.rule = BoundaryRule::kSampling;
      return circle.at(circle.fullest_copies(end, p / 8));
    }
  }
  if ((cycle.trait_flags & kFlagToDevice) != 0 && (cycle.trait_flags & kFlagToHost) != 0) {
    // Results go to the host, and the next input comes from there.
    const auto free = circle.longest_without([&](std::uint32_t i) { return circle.has(i, kFlagToHost); });
    const std::uint32_t end = free.before + 1, input = circle.fullest_copies(end, p / 8);
    if (free.length > p / 3 && circle.to_device(input)) {
      cycle.rule = BoundaryRule::kCopies;
      return circle.at(input);
    }
  }
  if ((cycle.trait_flags & kFlagToDevice) != 0) {
    const auto free = circle.longest_without([&](std::uint32_t i) { return circle.to_device(i); });
    if (free.length > p / 3) {
      cycle.rule = BoundaryRule::kCopies;
      return circle.at(free.after);
    }
  }
  std::uint32_t graphs = 0, graph = 0;
  for (std::uint32_t i = 0; i < p; ++i) {
    if (!circle.has(i, kFlagGraph)) continue;
    if (graphs++ == 0) graph = i;
  }
  if (graphs == 1 || graphs == 2) {
    cycle.rule = BoundaryRule::kGraph;
    return begin + graph;
  }
  cycle.rule = BoundaryRule::kAnywhere;
  return begin_of_repetition(history, begin, p);
}

// ---------------------------------------------------------------------------------------------- BoundaryFinder

BoundaryFinder::BoundaryFinder(const LaunchHistory& history, const StepCycle& cycle)
    : history_(history),
      cycle_(cycle),
      cost_(2 * (CycleSearch::kMaxPeriod / 32 + 16) + 2 * kSurroundings + 2),
      mark_(cost_.size()) {}

std::size_t BoundaryFinder::held_bytes() const noexcept {
  return (cost_.capacity() + mark_.capacity()) * sizeof(cost_[0]) + counts_.held_bytes();
}

std::uint32_t BoundaryFinder::surroundings() const noexcept { return std::min(kSurroundings, cycle_.period / 2); }

/// A name weighs as much in all as any other: in a run of 200 memsets the few kernels that are something else say where
/// one is.
void BoundaryFinder::weigh_surroundings() {
  const auto& family = history_.families();
  const Position end = cycle_.end;
  const std::uint32_t w = surroundings();
  const Position from = end - std::min<Position>(w, end - history_.oldest());
  const Position to = std::min<Position>(end + w, history_.end());
  for (Position i = from; i < to; ++i) ++counts_[family[i]];
  weights_.fill(1);
  for (Position i = from; i < to; ++i) weights_[kSurroundings + i - end] = std::max(1, 64 / counts_[family[i]]);
  for (Position i = from; i < to; ++i) counts_[family[i]] = 0;
}

void BoundaryFinder::measure_agreement() {
  const double score = find(cycle_.begin, slack(), kBoth).score;
  agreement_ = std::clamp(kT.agreement_share * score, kT.agreement_least, kT.agreement_most);
}

/// The surroundings are aligned with the stream (edit distance with free ends), and where the boundary falls is the
/// answer. Inserted launches are put before it.
BoundaryFinder::Found BoundaryFinder::find(Position expected, std::uint32_t reach, Side side) {
  const auto& family = history_.families();
  const Position reference = cycle_.end, n = history_.end();
  const std::uint32_t w = surroundings();
  const Position low = history_.oldest();
  std::uint32_t before = 0, after = 0;
  if ((side & kBefore) != 0 && reference > low && expected > low)
    before = static_cast<std::uint32_t>(std::min<Position>({w, reference - low, expected - low}));
  if ((side & kAfter) != 0 && n > expected)
    after = static_cast<std::uint32_t>(std::min<Position>({w, n - reference, n - expected}));
  const std::uint32_t rows = before + after;
  if (rows < std::min(w, 8u)) return {expected, 0};
  const std::int32_t* weights = &weights_[kSurroundings - before];
  std::int32_t unlike = 0, total = 0;
  for (std::uint32_t i = 0; i < rows; ++i) {
    total += weights[i];
    if (family[reference - before + i] != family[expected - before + i]) unlike += weights[i];
  }
  if (unlike == 0 || reach == 0) return {expected, 1.0 - static_cast<double>(unlike) / total};

  const Position target = expected - std::min<Position>(before + reach, expected - low);
  const auto columns = static_cast<std::uint32_t>(std::min<Position>(expected + after + reach, n) - target);
  for (std::uint32_t j = 0; j <= columns; ++j) {
    cost_[j] = 0;
    mark_[j] = static_cast<std::int32_t>(j);
  }
  const std::int32_t inserted = std::max(1, total / static_cast<std::int32_t>(rows));
  for (std::uint32_t i = 0; i < rows; ++i) {
    const LaunchKey key = family[reference - before + i];
    const std::int32_t weight = weights[i];
    std::int32_t diagonal = cost_[0];
    std::int32_t diagonal_mark = mark_[0];
    cost_[0] += weight;
    for (std::uint32_t j = 1; j <= columns; ++j) {
      const std::int32_t up = cost_[j];
      const std::int32_t up_mark = mark_[j];
      std::int32_t best = diagonal + (key == family[target + j - 1] ? 0 : weight);
      // Up to the boundary a mark is the column reached; it stays what it was where the first launch after it is taken.
      std::int32_t best_mark = i < before ? static_cast<std::int32_t>(j) : diagonal_mark;
      if (up + weight < best) {
        best = up + weight;
        best_mark = i < before ? static_cast<std::int32_t>(j) : up_mark;
      }
      if (cost_[j - 1] + inserted < best) {
        best = cost_[j - 1] + inserted;
        best_mark = i < before ? static_cast<std::int32_t>(j) : mark_[j - 1];
      }
      diagonal = up;
      diagonal_mark = up_mark;
      cost_[j] = best;
      mark_[j] = best_mark;
    }
  }
  Found found{expected, -1};
  for (std::uint32_t j = 0; j <= columns; ++j) {
    const double score = 1.0 - static_cast<double>(cost_[j]) / total;
    const Position here = target + static_cast<std::uint32_t>(mark_[j]);
    const auto distance = [&](Position p) { return p > expected ? p - expected : expected - p; };
    if (score > found.score || (score == found.score && distance(here) < distance(found.at))) found = {here, score};
  }
  return found;
}

/// Where passes are accumulated, every pass begins like a step, but only the last one ends with an update.
bool BoundaryFinder::ends_with_update(Position p) const noexcept {
  if (!cycle_.optimizer) return true;
  const Position reach = cycle_.period / 2 + surroundings(), oldest = history_.oldest();
  Position distance = 1;
  while (distance <= reach && cycle_.end >= oldest + distance && !history_.is_optimizer(cycle_.end - distance))
    ++distance;
  if (distance > reach || cycle_.end < oldest + distance) return true;
  const Position tolerance = distance / 32 + kT.burst;
  const Position nearest = distance - std::min(distance - 1, tolerance);
  for (Position d = nearest; d <= distance + tolerance && p >= oldest + d; ++d)
    if (history_.is_optimizer(p - d)) return true;
  return false;
}

bool BoundaryFinder::starts_like_step(Position p) const noexcept {
  const auto& family = history_.families();
  const std::uint32_t w = std::min(32u, surroundings());
  std::int32_t equal = 0, total = 0;
  for (std::uint32_t i = 0; i < w; ++i) {
    const std::int32_t weight = weights_[kSurroundings + i];
    total += weight;
    if (family[p + i] == family[cycle_.end + i]) equal += weight;
    if (i == 7 && equal * 4 < total) return false;
  }
  return equal * 3 >= total * 2;
}

}  // namespace mfu

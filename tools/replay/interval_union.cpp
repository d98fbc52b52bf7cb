#include "tools/replay/interval_union.h"

#include <algorithm>
#include <iterator>

namespace mfu {

IntervalUnion::IntervalUnion(std::vector<Interval> intervals) {
  const auto by_begin = [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; };
  if (!std::is_sorted(intervals.begin(), intervals.end(), by_begin))
    std::sort(intervals.begin(), intervals.end(), by_begin);
  for (const Interval& interval : intervals) {
    if (interval.end_ns <= interval.begin_ns) continue;
    if (!pieces_.empty() && interval.begin_ns <= pieces_.back().end_ns)
      pieces_.back().end_ns = std::max(pieces_.back().end_ns, interval.end_ns);
    else
      pieces_.push_back(interval);
  }
  before_.reserve(pieces_.size());
  DurationNs sum = 0;
  for (const Interval& piece : pieces_) before_.push_back(sum += piece.length_ns());
}

DurationNs IntervalUnion::length_before(TimeNs t) const noexcept {
  const auto after =
      std::partition_point(pieces_.begin(), pieces_.end(), [t](const Interval& piece) { return piece.begin_ns < t; });
  if (after == pieces_.begin()) return 0;
  const auto last = static_cast<std::size_t>(after - pieces_.begin()) - 1;
  return before_[last] - std::max<DurationNs>(0, pieces_[last].end_ns - t);
}

bool IntervalUnion::contains(TimeNs t) const noexcept {
  const auto after =
      std::partition_point(pieces_.begin(), pieces_.end(), [t](const Interval& piece) { return piece.begin_ns <= t; });
  return after != pieces_.begin() && std::prev(after)->end_ns > t;
}

void RunUnions::add(std::size_t painter, DurationNs length) noexcept {
  total_ += length;
  for (std::size_t i = painter + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += length;
}

DurationNs RunUnions::painted_since(std::size_t first) const noexcept {
  DurationNs before = 0;
  for (std::size_t i = first; i > 0; i &= i - 1) before += sums_[i];
  return total_ - before;
}

void RunUnions::forget_before(std::size_t first) noexcept {
  // The lengths of dropped painters stay in the tree: they are in the total and before `first` alike.
  for (Line& line : lines_)
    while (!line.empty() && line.begin()->second.painter < first) line.erase(line.begin());
}

void RunUnions::paint(std::size_t line_index, Interval interval, std::size_t painter) {
  if (interval.end_ns <= interval.begin_ns) return;
  Line& line = lines_[line_index];
  // The first piece that reaches beyond the interval's begin. Work mostly comes in time order: look at the end first.
  auto at = line.end();
  if (!line.empty() && std::prev(line.end())->second.end_ns > interval.begin_ns) {
    at = line.upper_bound(interval.begin_ns);
    if (at != line.begin() && std::prev(at)->second.end_ns > interval.begin_ns) --at;
  }
  if (at != line.end() && at->first < interval.begin_ns) {
    const Piece whole = at->second;
    add(whole.painter, interval.begin_ns - std::min(whole.end_ns, interval.end_ns));
    at->second.end_ns = interval.begin_ns;
    ++at;
    if (whole.end_ns > interval.end_ns) {  // painted in the middle of a longer one
      at = line.emplace_hint(at, interval.end_ns, whole);
    }
  }
  while (at != line.end() && at->first < interval.end_ns) {
    const TimeNs begin_ns = at->first;
    const Piece old = at->second;
    at = line.erase(at);
    add(old.painter, begin_ns - std::min(old.end_ns, interval.end_ns));
    if (old.end_ns > interval.end_ns) {
      at = line.emplace_hint(at, interval.end_ns, old);
      break;
    }
  }
  line.emplace_hint(at, interval.begin_ns, Piece{interval.end_ns, painter});
  add(painter, interval.end_ns - interval.begin_ns);
}

}  // namespace mfu

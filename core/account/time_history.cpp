#include "core/account/time_history.h"

#include <utility>

namespace mfu {
namespace {

void apply(ClassTimes& times, const Correction& c, DurationNs length) noexcept {
  times[static_cast<std::size_t>(c.from)] -= length;
  times[static_cast<std::size_t>(c.to)] += length;
}

}  // namespace

Corrections::Corrections(std::vector<Correction> list) : list_(std::move(list)) {
  sums_.reserve(list_.size() + 1);
  sums_.push_back({});
  for (const Correction& c : list_) {
    sums_.push_back(sums_.back());
    apply(sums_.back(), c, c.end_ns - c.begin_ns);
  }
}

ClassTimes Corrections::before(TimeNs at) const noexcept {
  const auto first =
      std::partition_point(list_.begin(), list_.end(), [at](const Correction& c) { return c.end_ns <= at; });
  ClassTimes times = sums_[static_cast<std::size_t>(first - list_.begin())];
  if (first != list_.end() && first->begin_ns < at) apply(times, *first, at - first->begin_ns);
  return times;
}

ClassTimes Corrections::within(Interval interval) const noexcept {
  if (interval.end_ns <= interval.begin_ns) return {};
  ClassTimes times = before(interval.end_ns);
  const ClassTimes earlier = before(interval.begin_ns);
  for (std::size_t c = 0; c < kTimeClasses; ++c) times[c] -= earlier[c];
  return times;
}

/// The ring is full: from its first item to its last it is in the order in which they came.
void TimeHistory::make_room() {
  if (ring_.empty()) {
    ring_.resize(kFew);
    return;
  }
  const auto end_of = [](const Past& past) { return past.begin_ns + static_cast<DurationNs>(past.length); };
  auto first_kept = ring_.begin();
  if (keep_from_ == kNever) {
    next_ = 0;  // each new one writes over the oldest
    if (ring_.size() == kFew) return;
    first_kept = ring_.end() - static_cast<std::ptrdiff_t>(kFew);
  } else {
    const auto half = static_cast<std::ptrdiff_t>(ring_.size() / 2);
    first_kept =
        std::find_if(ring_.begin(), ring_.begin() + half, [&](const Past& p) { return end_of(p) > keep_from_; });
    if (first_kept != ring_.begin() + half) {
      if (ring_.size() * 2 <= most_) {
        next_ = ring_.size();
        ring_.resize(ring_.size() * 2);
        return;
      }
      first_kept = ring_.begin() + half;
    }
  }
  for (auto past = ring_.begin(); past != first_kept; ++past) known_from_ = std::max(known_from_, end_of(*past));
  std::vector<Past> kept(first_kept, ring_.end());
  if (keep_from_ != kNever) {
    next_ = kept.size();
    kept.resize(ring_.size());
  }
  ring_ = std::move(kept);
}

void TimeHistory::add_long(TimeNs begin, TimeNs end, TimeClass time_class) {
  if (long_.size() >= kMostLong) {
    std::erase_if(long_, [this](const LateActivity& work) { return work.end_ns <= known_from_; });
    if (long_.size() >= kMostLong) {  // half of a minute of work of 10 ms at the least
      const auto half = long_.begin() + static_cast<std::ptrdiff_t>(kMostLong / 2);
      for (auto work = long_.begin(); work != half; ++work) known_from_ = std::max(known_from_, work->end_ns);
      long_.erase(long_.begin(), half);
    }
  }
  long_.push_back({begin, end, time_class});
}

TimeNs TimeHistory::earliest_of(const std::vector<LateActivity>& late, TimeNs now) noexcept {
  for (const LateActivity& work : late) now = std::min(now, work.begin_ns);
  return now;
}

Corrections TimeHistory::classes(Interval interval) const {
  Sweep sweep = begin_correction({}, interval);
  for (Began& work : sweep.began) work.late = 0;
  return Corrections(next_part(sweep, std::numeric_limits<std::size_t>::max()));
}

TimeHistory::Sweep TimeHistory::begin_correction(const std::vector<LateActivity>& late, Interval interval) const {
  Sweep sweep;
  sweep.at = std::max(interval.begin_ns, known_from_);
  sweep.stop = interval.end_ns;
  const auto add = [&sweep](TimeNs begin, TimeNs end, TimeClass time_class, std::uint32_t late_index) {
    if (end <= sweep.at || begin >= sweep.stop || time_class == TimeClass::kIdle) return;
    sweep.began.push_back({std::max(begin, sweep.at), end, time_class, late_index});
  };
  for (const Past& past : ring_)
    add(past.begin_ns, past.begin_ns + static_cast<DurationNs>(past.length), past.time_class, kNobody);
  for (const LateActivity& work : long_) add(work.begin_ns, work.end_ns, work.time_class, kNobody);
  for (std::uint32_t i = 0; i < late.size(); ++i) add(late[i].begin_ns, late[i].end_ns, late[i].time_class, i);
  std::sort(sweep.began.begin(), sweep.began.end(),
            [](const Began& a, const Began& b) { return a.begin_ns < b.begin_ns; });
  sweep.known_until.fill(sweep.at);
  sweep.true_until.fill(sweep.at);
  return sweep;
}

std::vector<Correction> TimeHistory::next_part(Sweep& sweep, std::size_t most) {
  std::vector<Correction> part;
  // The class of the moment `at`, and how long it lasts unless something begins.
  const auto class_at = [](const std::array<TimeNs, kUnions>& until, TimeNs at, TimeNs& lasts) {
    for (std::size_t c = 0; c < kUnions; ++c) {
      if (until[c] <= at) continue;
      lasts = std::min(lasts, until[c]);
      return static_cast<TimeClass>(c);
    }
    return TimeClass::kIdle;
  };
  while (part.size() < most && sweep.at < sweep.stop) {
    for (; sweep.next < sweep.began.size() && sweep.began[sweep.next].begin_ns <= sweep.at; ++sweep.next) {
      const Began& work = sweep.began[sweep.next];
      for (std::size_t c = static_cast<std::size_t>(work.time_class); c < kUnions; ++c) {
        if (work.late == kNobody) sweep.known_until[c] = std::max(sweep.known_until[c], work.end_ns);
        if (work.end_ns <= sweep.true_until[c]) continue;
        sweep.true_until[c] = work.end_ns;
        sweep.covered_by[c] = work.late;
      }
    }
    TimeNs until =
        sweep.next < sweep.began.size() ? std::min(sweep.stop, sweep.began[sweep.next].begin_ns) : sweep.stop;
    const TimeClass known = class_at(sweep.known_until, sweep.at, until);
    const TimeClass in_truth = class_at(sweep.true_until, sweep.at, until);
    if (known != in_truth) {
      const std::uint32_t by = sweep.covered_by[static_cast<std::size_t>(in_truth)];
      if (!part.empty() && part.back().end_ns == sweep.at && part.back().from == known && part.back().to == in_truth &&
          part.back().late == by)
        part.back().end_ns = until;
      else
        part.push_back({sweep.at, until, known, in_truth, by});
    }
    sweep.at = until;
  }
  return part;
}

}  // namespace mfu

// Idle time by what the host did.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "core/base/units.h"
#include "core/idle/host_work.h"
#include "core/idle/look_pace.h"

namespace mfu {

/// nullptr: unknown. The others live as long as the process.
using TimeByWork = std::map<const HostWork*, DurationNs>;

inline void add_times(TimeByWork& to, const TimeByWork& more) {
  for (const auto& [work, ns] : more) to[work] += ns;
}

inline void add_times(TimeByWork& to, const std::shared_ptr<const TimeByWork>& more) {
  if (more) add_times(to, *more);
}

/// Shares out what was not looked at: there the host is taken to have done the same as in the rest of the long gaps.
inline void share_out_rests(TimeByWork& work) {
  const auto rests = work.find(not_looked_at());
  if (rests == work.end()) return;
  DurationNs left = rests->second, seen = 0;
  for (const auto& [_, ns] : work) seen += ns;
  seen -= left;
  if (seen <= 0) return;
  work.erase(rests);
  for (auto& [_, ns] : work) {
    const auto more =
        static_cast<DurationNs>(static_cast<double>(left) * static_cast<double>(ns) / static_cast<double>(seen));
    seen -= ns;
    left -= more;
    ns += more;
  }
}

/// The host's work in an interval in which nothing was launched.
struct WorkSpan {
  Interval when;
  const HostWork* work = nullptr;
  bool at_begin = false;  ///< it was seen at the begin alone: it says nothing of a gap that begins later
  bool sample = false;    ///< it was seen although work may run: it says nothing of short gaps
};

/// [mfu-drain] Of one device: idle time so far by what the host did. Gaps come piece by piece, in order of time.
class IdleWork {
 public:
  using Sums = std::shared_ptr<const TimeByWork>;            ///< a state; nullptr: nothing yet
  static constexpr DurationNs kLong = LookPace::kLookAfter;  ///< shorter gaps are time between launches

  /// In order of time.
  void add(const WorkSpan& span) {
    constexpr std::size_t kMost = 1u << 12;
    spans_.push_back(span);
    if (spans_.size() > kMost) spans_.pop_front();
  }
  /// Whether of a piece of a gap that ends at `end` something can be known.
  [[nodiscard]] bool knows_before(TimeNs end) const noexcept {
    return !spans_.empty() && spans_.front().when.begin_ns < end;
  }
  void add_gap(Interval piece) {
    while (!spans_.empty() && spans_.front().when.end_ns <= piece.begin_ns) spans_.pop_front();
    if (piece.length_ns() >= kLong) long_ns_ += piece.length_ns();
    if (piece.begin_ns != until_) gap_from_ = piece.begin_ns;
    until_ = piece.end_ns;
    TimeByWork found;
    // Looks begin when a gap is long already: the time before one is of what it saw, that behind the last one as well.
    TimeNs from = piece.begin_ns;
    const HostWork* last = nullptr;
    for (const WorkSpan& span : spans_) {
      if (span.when.begin_ns >= piece.end_ns) break;
      if ((span.sample || span.work == not_looked_at()) && piece.length_ns() < kLong) continue;
      if (span.at_begin && span.when.begin_ns < gap_from_) continue;
      last = span.work;
      const TimeNs to = std::min(span.when.end_ns, piece.end_ns);
      found[last] += to - from;
      from = to;
    }
    if (found.empty() && piece.length_ns() < kLong) return;
    if (from < piece.end_ns) found[last] += piece.end_ns - from;
    if (sums_) add_times(found, *sums_);
    sums_ = std::make_shared<TimeByWork>(std::move(found));  // others keep earlier states
  }
  [[nodiscard]] const Sums& sums() const noexcept { return sums_; }
  /// Since the state `before`, which becomes that of now.
  [[nodiscard]] Sums since(Sums& before) const {
    if (sums_ == before) return nullptr;
    TimeByWork more = *sums_;
    if (before)
      for (const auto& [work, ns] : *before) more[work] -= ns;
    std::erase_if(more, [](const auto& part) { return part.second == 0; });
    before = sums_;
    return std::make_shared<const TimeByWork>(std::move(more));
  }
  /// Time in long gaps so far.
  [[nodiscard]] DurationNs long_ns() const noexcept { return long_ns_; }

 private:
  std::deque<WorkSpan> spans_;
  Sums sums_;
  DurationNs long_ns_ = 0;
  TimeNs gap_from_ = 0, until_ = 0;  ///< the gap that the last piece is of, so far
};

}  // namespace mfu

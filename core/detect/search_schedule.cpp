#include "core/detect/search_schedule.h"

#include <algorithm>
#include <utility>

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;

}  // namespace

void SearchSchedule::restart() {
  since_ = history_.end();
  next_small_ = next_middle_ = next_full_ = since_ + kT.search_every;
}

std::uint32_t SearchSchedule::window(bool followed, bool final) {
  if (!followed) notice_change();
  const LaunchPosition n = history_.end(), age = n - since_;
  const auto wait = [&](LaunchPosition age_share, std::uint32_t least, std::uint32_t window) {
    return n + std::clamp<LaunchPosition>(age <= LaunchHistory::kRing ? age / age_share : 2 * age, least,
                                          LaunchPosition{kT.seldom} * window);
  };
  if (final || n >= next_full_) {
    next_full_ = wait(followed ? 2 : 4, kT.search_every, LaunchHistory::kRing);
    return LaunchHistory::kRing;
  }
  if (followed) return 0;
  if (n >= next_middle_) {
    next_middle_ = wait(8, 4 * kT.search_every, kT.middle_window);
    return kT.middle_window;
  }
  if (n < next_small_) return 0;
  next_small_ = wait(8, kT.search_every, kT.small_window);
  return kT.small_window;
}

/// Names never seen before after a long time without any, or no more of them after a long time with many: something
/// else began, and is searched for as at the start. Not often, or what never rests would cost as much as a start.
void SearchSchedule::notice_change() {
  const LaunchPosition n = history_.end();
  const bool quiet = n - history_.newest_name() > kT.quiet;
  if (std::exchange(quiet_, quiet) == quiet || n - since_ < LaunchHistory::kRing) return;
  restart();
  next_small_ = next_middle_ = next_full_ = n;
}

}  // namespace mfu

#include "core/drain/stall_watch.h"

#include <gtest/gtest.h>

#include <random>

namespace mfu {
namespace {

using Change = StallWatch::Change;
constexpr DurationNs kLeast = 30 * kNsPerSecond, kTick = kNsPerSecond / 2;

/// Ticks for `wait` without anything that moves. \return changes to a stall, and when the first came.
struct Waited {
  int begins = 0;
  DurationNs after = 0;
};
Waited wait(StallWatch& watch, TimeNs& now, std::uint64_t moved, DurationNs wait, bool waits = true,
            DurationNs tick = kTick) {
  Waited seen;
  for (const TimeNs begin = now; now < begin + wait;) {
    now += tick;
    if (watch.look(now, moved, waits) != Change::kBegins) continue;
    if (seen.begins++ == 0) seen.after = now - begin;
  }
  return seen;
}

TEST(StallWatch, SaysOnceThatItBeginsAndOnceThatItEnds) {
  StallWatch watch(kLeast);
  TimeNs now = 1000 * kNsPerSecond;
  std::uint64_t moved = 0;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watch.look(now += kTick, ++moved, true), Change::kNone);
  const Waited seen = wait(watch, now, moved, 300 * kNsPerSecond);
  EXPECT_EQ(seen.begins, 1);
  EXPECT_GT(seen.after, kLeast);
  EXPECT_LE(seen.after, kLeast + 2 * kTick);
  EXPECT_EQ(watch.look(now += kTick, ++moved, true), Change::kEnds);
  EXPECT_EQ(watch.look(now += kTick, ++moved, true), Change::kNone);
  const Waited again = wait(watch, now, moved, 3600 * kNsPerSecond);
  EXPECT_EQ(again.begins, 1);
  EXPECT_NEAR(seconds(again.after), 600, 3) << "twice the first one";
}

TEST(StallWatch, NothingStallsThatIsNotUnderWay) {
  StallWatch watch(kLeast);
  TimeNs now = 1;
  EXPECT_EQ(wait(watch, now, 7, 3600 * kNsPerSecond, false).begins, 0);
  StallWatch off(0);
  EXPECT_EQ(wait(off, now, 7, 3600 * kNsPerSecond).begins, 0);
}

TEST(StallWatch, ALaunchAfterALongRestWaitsSinceItWasMade) {
  StallWatch watch(kLeast);
  TimeNs now = 1;
  EXPECT_EQ(wait(watch, now, 7, 3600 * kNsPerSecond, false).begins, 0);
  EXPECT_EQ(wait(watch, now, 8, kLeast - kTick).begins, 0);
}

TEST(StallWatch, TimeInWhichNobodyLookedCountsLittle) {
  StallWatch watch(kLeast);
  TimeNs now = kNsPerSecond;
  (void)watch.look(now, 1, true);
  (void)watch.look(now += kTick, 2, true);
  EXPECT_EQ(watch.look(now += 3600 * kNsPerSecond, 2, true), Change::kNone);
  EXPECT_EQ(wait(watch, now, 2, kLeast).begins, 1);
}

/// 10^4 healthy windows of 10 s: waits of any length that the program has had before, and up to ten times that.
TEST(StallWatch, UsualWaitsAreNone) {
  std::mt19937_64 random(1);
  StallWatch watch(kLeast);
  TimeNs now = kNsPerSecond;
  std::uint64_t moved = 0;
  DurationNs longest = kNsPerSecond;
  for (int window = 0; window < 10'000; ++window) {
    const DurationNs most = std::min<DurationNs>(9 * longest, 600 * kNsPerSecond);
    const auto length = std::uniform_int_distribution<DurationNs>(0, std::max(most, kLeast - 2 * kTick))(random);
    (void)watch.look(now += kTick, ++moved, true);
    ASSERT_EQ(wait(watch, now, moved, length).begins, 0) << window;
    longest = std::max(longest, length);
  }
}

}  // namespace
}  // namespace mfu

#include "core/base/ticks.h"

#include <gtest/gtest.h>

#include "core/base/units.h"

namespace mfu {
namespace {

TEST(TickClock, IdentityIsForTimesThatAreNanosecondsAlready) {
  const TickClock clock(true);
  EXPECT_EQ(clock.to_ns(0), 0);
  EXPECT_EQ(clock.to_ns(123'456'789), 123'456'789);
}

TEST(TickClock, WithoutASlopeItSaysWhatItHas) {
  TickClock clock;
  EXPECT_EQ(clock.to_ns(5), 0);
  clock.anchor(1000, 77);
  EXPECT_EQ(clock.to_ns(0), 77);
  EXPECT_EQ(clock.to_ns(99'999), 77);
}

TEST(TickClock, InterpolatesBetweenAnchorsAndExtrapolatesBeyond) {
  TickClock clock;
  clock.anchor(0, 1000);
  clock.anchor(3000, 2000);  // 3 ticks per ns
  clock.anchor(5000, 3000);  // then 2
  EXPECT_EQ(clock.to_ns(1500), 1500);
  EXPECT_EQ(clock.to_ns(3000), 2000);
  EXPECT_EQ(clock.to_ns(4000), 2500);
  EXPECT_EQ(clock.to_ns(7000), 4000);
  EXPECT_EQ(clock.to_ns(-3000), 0);
}

TEST(TickClock, StaysExactOverYears) {
  constexpr Ticks kPerNs = 3;
  constexpr TimeNs kYears = 10LL * 365 * 86400 * kNsPerSecond;
  TickClock clock;
  clock.anchor(0, kYears);
  clock.anchor(1'000'000'000 * kPerNs, kYears + kNsPerSecond);
  EXPECT_EQ(clock.to_ns(500'000'000 * kPerNs), kYears + kNsPerSecond / 2);
  EXPECT_EQ(clock.to_ns(2'000'000'000 * kPerNs + 3), kYears + 2 * kNsPerSecond + 1);
}

TEST(TickClock, AJumpOfTheClockIsSaidAndStartsAnew) {
  TickClock clock;
  EXPECT_TRUE(clock.anchor(0, 0));
  EXPECT_TRUE(clock.anchor(1'000'000'000, kNsPerSecond));
  EXPECT_TRUE(clock.anchor(2'000'000'000, 2 * kNsPerSecond + 900'000'000));  // slewed, not set
  EXPECT_FALSE(clock.anchor(3'000'000'000, 3600 * kNsPerSecond));
  EXPECT_EQ(clock.to_ns(3'000'000'000), 3600 * kNsPerSecond);
  EXPECT_TRUE(clock.anchor(4'000'000'000, 3601 * kNsPerSecond));
  EXPECT_EQ(clock.to_ns(3'500'000'000), 3600 * kNsPerSecond + kNsPerSecond / 2);
}

TEST(TickClock, TicksThatDoNotMoveAreNoAnchor) {
  TickClock clock;
  clock.anchor(100, 10);
  clock.anchor(200, 20);
  EXPECT_TRUE(clock.anchor(200, 25));
  EXPECT_TRUE(clock.anchor(150, 0));
  EXPECT_EQ(clock.to_ns(300), 30);
}

TEST(TickClock, ManyAnchorsKeepTheNewest) {
  TickClock clock;
  for (int i = 0; i < 1000; ++i) clock.anchor(i * 100, i * 50);
  EXPECT_EQ(clock.to_ns(99'950), 49'975);
  EXPECT_EQ(clock.to_ns(0), 0);  // beyond what is kept: by the oldest slope
}

TEST(Ticks, TheCounterGoesForward) {
  const Ticks first = ticks_now();
  Ticks last = first;
  for (int i = 0; i < 1000; ++i) {
    const Ticks now = ticks_now();
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, first);
}

}  // namespace
}  // namespace mfu

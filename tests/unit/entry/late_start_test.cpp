// A host's thread waits for a start that gets on, and goes on without one that takes too long or does nothing.
#include "injection/entry/late_start.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <thread>

namespace mfu {
namespace {

TEST(LateStart, ThatEnds) {
  LateStart late;
  std::thread start([&] {
    late.begin();
    late.end();
  });
  start.join();
  EXPECT_TRUE(late.await());
  EXPECT_FALSE(late.was_left());
}

/// It works on for as long as anybody waits for it: were there no end to the waiting, this test had none.
TEST(LateStart, ThatWorksForever) {
  LateStart late;
  std::thread start([&] {
    late.begin();
    while (!late.was_left()) {
    }
    late.end();
  });
  EXPECT_FALSE(late.await());
  start.join();
  EXPECT_TRUE(late.was_left());
}

/// It waits for what the caller has: a lock, here a flag that is set when the caller goes on.
TEST(LateStart, ThatWaitsForTheCaller) {
  LateStart late;
  std::atomic<bool> free{false};
  std::thread start([&] {
    late.begin();
    const ::timespec moment{0, 1'000'000'000};
    while (!free) ::nanosleep(&moment, nullptr);
    late.end();
  });
  EXPECT_FALSE(late.await());
  free = true;
  start.join();
}

/// No thread could be started that would do anything.
TEST(LateStart, ThatNeverBegins) {
  LateStart late;
  EXPECT_FALSE(late.await());
  EXPECT_TRUE(late.was_left());
}

}  // namespace
}  // namespace mfu

// A number per stream: the same for all threads, another for every other stream, never that of a stream that is gone.
#include "core/attribution/stream_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

namespace mfu {
namespace {

constexpr std::uint32_t kUnknown = LaunchPlace::kUnknownLane;

std::uint64_t handle(std::uint64_t n) { return 0x7f00'0000'0000 + 64 * n; }

class StreamLanesTest : public testing::Test {
 protected:
  std::uint32_t lane(std::uint32_t context, std::uint64_t stream, bool per_thread = false, std::uint32_t thread = 1) {
    StreamLanes::Cache fresh;
    return lanes_->lane_of(fresh, context, stream, per_thread, thread);
  }
  std::unique_ptr<StreamLanes> lanes_ = std::make_unique<StreamLanes>();
};

TEST_F(StreamLanesTest, DefaultStreamsByContextAndThread) {
  const std::uint32_t legacy = lane(1, 0);
  EXPECT_NE(legacy, kUnknown);
  EXPECT_EQ(lane(1, 1), legacy);            // CU_STREAM_LEGACY
  EXPECT_EQ(lane(1, 0, false, 7), legacy);  // of the context, whoever asks
  EXPECT_EQ(lane(1, 1, true, 7), legacy);   // by name, in a per-thread call too
  EXPECT_NE(lane(2, 0), legacy);
  const std::uint32_t own = lane(1, 2, false, 7);  // CU_STREAM_PER_THREAD
  EXPECT_EQ(lane(1, 0, true, 7), own);
  EXPECT_EQ(lane(1, 2, true, 7), own);
  EXPECT_NE(own, legacy);
  EXPECT_NE(lane(1, 2, false, 8), own);
  EXPECT_NE(lane(2, 2, false, 7), own);
}

TEST_F(StreamLanesTest, AgreesWithAMapOfWhatWasCreatedAndDestroyed) {
  std::mt19937 rng(11);
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> known;
  std::set<std::uint32_t> ever;
  StreamLanes::Cache cache;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint32_t context = 1 + rng() % 3;
    const std::uint64_t stream = handle(rng() % 200);
    const auto key = std::pair(context, stream);
    if (rng() % 20 == 0) {
      lanes_->remove(context, stream);
      known.erase(key);
      continue;
    }
    const std::uint32_t got = lanes_->lane_of(cache, context, stream, rng() % 2 == 0, 1 + rng() % 4);
    ASSERT_NE(got, kUnknown);
    const auto found = known.find(key);
    if (found != known.end()) {
      ASSERT_EQ(got, found->second);
    } else {
      // A handle that is used again is another stream.
      ASSERT_TRUE(ever.insert(got).second) << got;
      known[key] = got;
    }
  }
}

TEST_F(StreamLanesTest, OneMoreThanThereIsRoomForIsUnknownAndHarmsNoOther) {
  std::map<std::uint64_t, std::uint32_t> known;
  std::set<std::uint32_t> numbers;
  std::size_t unknown = 0;
  for (std::uint64_t n = 0; n < 10'000; ++n) {
    const std::uint32_t got = lane(1, handle(n));
    if (got == kUnknown) {
      ++unknown;
      continue;
    }
    known[n] = got;
    EXPECT_TRUE(numbers.insert(got).second);
  }
  EXPECT_GT(known.size(), 3000u);
  EXPECT_GT(unknown, 5000u);
  for (const auto& [n, number] : known) EXPECT_EQ(lane(1, handle(n)), number);
  for (const auto& [n, number] : known) lanes_->remove(1, handle(n));
  EXPECT_NE(lane(1, handle(20'000)), kUnknown);
}

TEST_F(StreamLanesTest, ThreadsThatMeetAStreamAtTheSameTimeGetOneNumber) {
  constexpr std::uint64_t kStreams = 300;
  constexpr std::uint32_t kThreads = 8;
  std::vector<std::vector<std::uint32_t>> got(kThreads, std::vector<std::uint32_t>(kStreams, kUnknown));
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      StreamLanes::Cache cache;
      for (std::uint64_t n = 0; n < kStreams; ++n)
        // Unknown while another thread writes it: the launch after that knows.
        while (got[t][n] == kUnknown) got[t][n] = lanes_->lane_of(cache, 1, handle(n), false, t + 1);
    });
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t t = 1; t < kThreads; ++t) EXPECT_EQ(got[t], got[0]);
  EXPECT_EQ(std::set<std::uint32_t>(got[0].begin(), got[0].end()).size(), kStreams);
}

}  // namespace
}  // namespace mfu

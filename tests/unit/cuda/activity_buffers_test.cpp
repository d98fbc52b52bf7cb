// Buffers hold what their thread makes in a tenth of a second, and all of them together have a bound.
#include "cuda/activity_buffers.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace mfu {
namespace {

constexpr std::size_t kRecord = 216;  ///< bytes of a kernel record of CUPTI 13.0

/// A thread whose work keeps the GPU busy: buffers come back full, as late as their records take.
class Thread {
 public:
  Thread(ActivityBuffers& buffers, std::uint32_t lane, double records_per_s)
      : buffers_(buffers), lane_(lane), per_s_(records_per_s) {}
  /// Fills one buffer; returns its size [B].
  std::size_t fill() {
    std::size_t size = 0, records = 0;
    std::uint8_t* data = buffers_.request(lane_, size, records);
    if (data == nullptr) return 0;
    held_ = std::min(size / kRecord, records != 0 ? records : size);
    const std::size_t used = held_ * kRecord;
    now_ += static_cast<DurationNs>(static_cast<double>(used) / kRecord / per_s_ * 1e9);
    buffers_.give_back(data, used, now_);
    return size;
  }
  [[nodiscard]] TimeNs now() const { return now_; }
  /// Records of the last buffer.
  [[nodiscard]] std::size_t held() const { return held_; }

 private:
  ActivityBuffers& buffers_;
  std::uint32_t lane_;
  double per_s_;
  std::size_t held_ = 0;
  TimeNs now_ = 5 * kNsPerSecond;
};

TEST(ActivityBuffers, AreSmallWhereRecordsAreFew) {
  Counters counters;
  ActivityBuffers buffers(counters, true);
  Thread slow(buffers, 3, 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(slow.fill(), ActivityBuffers::kSmallest);
}

TEST(ActivityBuffers, AreCutShortWhereRecordsAreFewAndNotWhereTheyWait) {
  Counters counters;
  ActivityBuffers buffers(counters, true);
  Thread slow(buffers, 3, 100);
  slow.fill();
  EXPECT_EQ(slow.held(), ActivityBuffers::kSmallest / kRecord);
  for (int i = 0; i < 10; ++i) slow.fill();
  EXPECT_NEAR(static_cast<double>(slow.held()), 10, 2);  // a tenth of a second
  // It launches a thousand at once, far ahead of the GPU.
  std::size_t size = 0, records = 0, room = 0;
  for (std::uint32_t i = 0; i < ActivityBuffers::kMostCounted + 7; ++i) {
    ASSERT_NE(buffers.request(3, size, records), nullptr);
    room += std::min(size / kRecord, records != 0 ? records : size);
  }
  EXPECT_GT(room, 1000);
}

TEST(ActivityBuffers, GrowWithTheRateUpToTheLargest) {
  Counters counters;
  for (const double rate : {1e3, 3e3, 1e4, 1e5, 1e6}) {
    ActivityBuffers buffers(counters, true);
    Thread thread(buffers, 1, rate);
    while (thread.now() < 8 * kNsPerSecond) thread.fill();
    const TimeNs before = thread.now();
    const std::size_t size = thread.fill();
    EXPECT_LE(thread.now() - before, ActivityBuffers::kFillTime) << rate;
    if (rate == 1e6) {
      EXPECT_EQ(size, ActivityBuffers::kLargest);
    }
  }
}

TEST(ActivityBuffers, ABusyThreadDoesNotDelayAQuietOne) {
  Counters counters;
  ActivityBuffers buffers(counters, true);
  Thread busy(buffers, 1, 1e6), quiet(buffers, 2, 300);
  for (int i = 0; i < 40; ++i) {
    while (busy.now() < quiet.now()) busy.fill();
    EXPECT_EQ(quiet.fill(), ActivityBuffers::kSmallest);
  }
}

TEST(ActivityBuffers, ShrinkAgain) {
  Counters counters;
  ActivityBuffers buffers(counters, true);
  Thread thread(buffers, 1, 1e6);
  while (thread.now() < 6 * kNsPerSecond) thread.fill();
  std::size_t size = 0, records = 0;
  std::uint8_t* data = buffers.request(1, size, records);
  EXPECT_EQ(size, ActivityBuffers::kLargest);
  for (int i = 1; i <= 2; ++i) {  // the first one ends the time in which it was busy
    buffers.give_back(data, kRecord, thread.now() + i * 10 * kNsPerSecond);
    data = buffers.request(1, size, records);
  }
  EXPECT_EQ(size, ActivityBuffers::kSmallest);
}

/// A host that launches graphs of thousands of nodes far ahead: no buffer comes back for a long time.
TEST(ActivityBuffers, ALongBacklogTakesLargerOnesUpToTheCap) {
  Counters counters;
  ActivityBuffers buffers(counters, true);
  std::deque<std::pair<std::uint8_t*, std::size_t>> out;
  std::size_t total = 0;
  while (true) {
    std::size_t size = 0, records = 0;
    std::uint8_t* data = buffers.request(1, size, records);
    if (data == nullptr) break;
    EXPECT_LE(size, std::max(ActivityBuffers::kSmallest, total / 32 + 1));
    out.emplace_back(data, size);
    total += size;
  }
  EXPECT_GT(total, 30u << 20);
  EXPECT_LE(total, 31u << 20);
  EXPECT_EQ(buffers.bytes_out(), total);
  EXPECT_EQ(buffers.advertised_bytes(), total);
  EXPECT_EQ(counters.get(Counter::kBuffersExhausted), 1);
  for (const auto& [data, size] : out) {
    std::size_t told = 0;
    EXPECT_EQ(buffers.owner_of(data, told), ActivityBuffers::Owner::kOurs);
    EXPECT_EQ(told, size);
    buffers.give_back(data, size, 1);
    EXPECT_EQ(buffers.owner_of(data, told), ActivityBuffers::Owner::kForeign);  // no longer out
  }
  EXPECT_EQ(buffers.bytes_out(), 0);
}

/// Hundreds of threads, each with a buffer of its own, beside some that had large ones.
TEST(ActivityBuffers, EveryOneOf512BlocksIsThereHoweverLargeSomeWere) {
  Counters counters;
  ActivityBuffers buffers(counters, false);
  for (std::uint32_t lane = 1; lane < 30; ++lane) {
    Thread busy(buffers, lane, 1e6);
    while (busy.now() < 6 * kNsPerSecond) busy.fill();
  }
  std::size_t size = 0, records = 0;
  for (std::uint32_t i = 0; i < ActivityBuffers::kMaxBlocks; ++i) EXPECT_NE(buffers.request(i, size, records), nullptr);
  EXPECT_LE(buffers.advertised_bytes(), 31u << 20);
  // CUPTI before 12.9 needs an answer even then.
  std::uint8_t* spare = buffers.request(0, size, records);
  ASSERT_NE(spare, nullptr);
  EXPECT_EQ(size, ActivityBuffers::kSpareBytes);
  EXPECT_EQ(buffers.owner_of(spare, size), ActivityBuffers::Owner::kSpare);
}

}  // namespace
}  // namespace mfu

// Assumptions about CUPTI: each violation is found, said once, and taken back when it is over.
#include "injection/threads/cupti_health.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace mfu {
namespace {

class TrustTest : public testing::Test {
 protected:
  /// A batch of kernels on one stream, 1 us each, in the order of their launches.
  RecordBatch& batch() {
    batch_->count = 2000;
    for (std::uint32_t i = 0; i < batch_->count; ++i) {
      ActivityRecord& record = batch_->records[i];
      record = {};
      record.correlation = static_cast<CorrelationId>(++id_);
      record.begin_ns = now_ += 1000;
      record.end_ns = now_ + 900;
    }
    now_ += 1'000'000;
    return *batch_;
  }
  std::vector<std::string> look() { return checks_.look(seen_); }

  TrustChecks checks_;
  CuptiLook seen_;
  std::unique_ptr<RecordBatch> batch_ = std::make_unique<RecordBatch>();
  std::uint32_t id_ = 0xFFFF'FE00u;  // wraps on the way
  TimeNs now_ = 1'000'000'000;
};

TEST_F(TrustTest, NothingIsSaidOfWhatIsAsExpected) {
  for (int i = 0; i < 100; ++i) {
    RecordBatch& records = batch();
    checks_.see(records, now_);
    seen_.settled += 2000;
    seen_.without_record += 10;  // empty graphs
    seen_.records += 2000;
    EXPECT_TRUE(look().empty());
  }
}

TEST_F(TrustTest, LaunchesWithoutRecords) {
  seen_.settled = 10'000;
  seen_.without_record = seen_.records = 5'000;
  const auto said = look();
  ASSERT_EQ(said.size(), 1);
  EXPECT_EQ(said[0], "records: 50% of the launches got no record; busy time and FLOP are lower bounds");
  EXPECT_TRUE(look().empty());
  seen_.settled += 10'000;
  seen_.records += 10'000;
  EXPECT_EQ(look(), std::vector<std::string>{"records: as expected again"});
}

TEST_F(TrustTest, RecordsOfUnknownLaunches) {
  seen_.settled = seen_.records = 10'000;
  seen_.unmatched = 900;
  ASSERT_EQ(look().size(), 1);
  EXPECT_FALSE(checks_.holds(TrustChecks::kCallbacks));
}

TEST_F(TrustTest, AStreamOutOfOrder) {
  RecordBatch& records = batch();
  for (std::uint32_t i = 0; i + 1 < records.count; i += 4)
    std::swap(records.records[i].begin_ns, records.records[i + 1].begin_ns);
  checks_.see(records, now_);
  ASSERT_EQ(look().size(), 1);
  EXPECT_FALSE(checks_.holds(TrustChecks::kOrder));
}

TEST_F(TrustTest, DeliveryInAnyOrderIsFine) {
  RecordBatch& records = batch();
  std::reverse(records.records.begin(), records.records.begin() + records.count);
  checks_.see(records, now_);
  EXPECT_TRUE(look().empty());
}

TEST_F(TrustTest, WorkThatBeganBeforeItWasLaunched) {
  RecordBatch& records = batch();
  now_ += 10'000'000;
  checks_.begin_tick(now_, records.records[999].correlation);  // the second half was launched after all of it had ended
  checks_.see(records, now_);
  const auto said = look();
  ASSERT_EQ(said.size(), 1);
  EXPECT_TRUE(said[0].starts_with("clock: ")) << said[0];
  EXPECT_EQ(checks_.states()[TrustChecks::kClock].against, 1000);
}

TEST_F(TrustTest, WorkThatBeganAfterItWasLaunched) {
  checks_.begin_tick(now_, static_cast<CorrelationId>(id_));
  RecordBatch& records = batch();
  checks_.begin_tick(now_, static_cast<CorrelationId>(id_));
  checks_.see(records, now_);
  EXPECT_TRUE(look().empty());
  EXPECT_EQ(checks_.states()[TrustChecks::kClock].holds, true);
}

TEST_F(TrustTest, RecordsWithoutTimes) {
  seen_.settled = seen_.records = 10'000;
  seen_.untimed = 500;
  EXPECT_TRUE(look().empty()) << "there is a line for it already, with the cause";
  EXPECT_FALSE(checks_.holds(TrustChecks::kTimes));
}

TEST_F(TrustTest, BuffersThatDoNotComeBack) {
  const auto second = [this](std::uint64_t launches, std::uint64_t buffers) {
    seen_.now += kNsPerSecond;
    seen_.launches += launches;
    seen_.buffers += buffers;
    return look();
  };
  seen_.now = 1;
  std::vector<std::string> said = look();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(second(100, 1).empty());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(second(0, 0).empty()) << "nothing is launched, nothing need come back";
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(second(100, i % 2).empty()) << "every other second";
  for (int i = 0; i < 12 && said.empty(); ++i) said = second(100, 0);
  ASSERT_EQ(said.size(), 1);
  EXPECT_TRUE(said[0].starts_with("buffers: ")) << said[0];
  said.clear();
  for (int i = 0; i < 12 && said.empty(); ++i) said = second(100, 3);
  EXPECT_EQ(said, std::vector<std::string>{"buffers: as expected again"});
}

TEST_F(TrustTest, EveryCheckIsInAWindow) {
  std::vector<std::string> names;
  for (const TrustState& state : checks_.states()) {
    names.push_back(state.name);
    EXPECT_FALSE(state.holds.has_value()) << "nothing was seen yet";
  }
  EXPECT_EQ(names, (std::vector<std::string>{"records", "callbacks", "order", "clock", "times", "buffers"}));
}

TEST_F(TrustTest, AClockThatRunsAhead) {
  RecordBatch& records = batch();
  checks_.see(records, records.records[0].begin_ns);
  const auto said = look();
  ASSERT_EQ(said.size(), 1);
  EXPECT_TRUE(said[0].starts_with("clock: ")) << said[0];
}

}  // namespace
}  // namespace mfu

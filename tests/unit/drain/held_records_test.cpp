// HeldRecords against plain vectors, over random sequences of what a drain does with them.
#include "core/drain/held_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace mfu {
namespace {

HeldRecord record_of(std::uint32_t correlation, TimeNs begin) {
  HeldRecord held;
  held.record.correlation = static_cast<CorrelationId>(correlation);
  held.record.begin_ns = begin;
  return held;
}

bool same(const HeldRecord& a, const HeldRecord& b) {
  return a.record.correlation == b.record.correlation && a.record.begin_ns == b.record.begin_ns && a.launch == b.launch;
}

/// Takes what `expected` says, in the order of launches; gives out some of it.
class HeldRecordsTest : public testing::TestWithParam<int> {
 protected:
  HeldRecordsTest() : seed_(std::random_device{}()), rng_(seed_) {}

  std::uint64_t seed_;
  std::mt19937_64 rng_;
  HeldRecords held_;
  std::vector<HeldRecord> waiting_, taken_;
  std::uint32_t next_ = 0xFFFF'0000u;  // wraps on the way
  TimeNs now_ = 0;
  std::uint64_t launch_ = 0;

  /// Some launches of one to three records, told in an order that streams of different speed lead to.
  std::vector<HeldRecord> told(std::uint64_t launches) {
    std::vector<HeldRecord> out;
    for (; launches > 0; --launches, ++next_)
      for (std::uint64_t n = rng_() % 8 == 0 ? 3 : 1; n > 0; --n) out.push_back(record_of(next_, ++now_));
    switch (GetParam()) {
      case 1:  // one stream lags behind
        std::stable_partition(out.begin(), out.end(),
                              [](const HeldRecord& h) { return raw(h.record.correlation) % 5 != 0; });
        break;
      case 2:  // neighbours change places
        for (std::size_t i = 1; i < out.size(); i += 1 + rng_() % 9) std::swap(out[i - 1], out[i]);
        break;
      case 3:
        std::shuffle(out.begin(), out.end(), rng_);
        break;
      default:
        break;
    }
    return out;
  }
  void tick() {
    for (const HeldRecord& held : told(rng_() % (rng_() % 50 == 0 ? 5000 : 100))) {
      held_.push_back(held);
      waiting_.push_back(held);
    }
    ASSERT_EQ(held_.waiting().size(), waiting_.size());
    const auto complete = static_cast<CorrelationId>(next_ - 1 - static_cast<std::uint32_t>(rng_() % 20));
    std::sort(waiting_.begin(), waiting_.end(), comes_before);
    const auto rest = std::find_if(waiting_.begin(), waiting_.end(),
                                   [&](const HeldRecord& h) { return newer(h.record.correlation, complete); });
    const std::span<HeldRecord> records = held_.waiting_until(complete);
    ASSERT_TRUE(std::equal(records.begin(), records.end(), waiting_.begin(), rest, same));
    for (HeldRecord& held : records) {
      launch_ += rng_() % 2;
      held.launch = launch_;
      taken_.push_back(held);
    }
    held_.take(records.size());
    waiting_.erase(waiting_.begin(), rest);
    ASSERT_TRUE(std::equal(held_.begin(), held_.end(), taken_.begin(), taken_.end(), same));

    const std::uint64_t from = launch_ - std::min<std::uint64_t>(launch_, rng_() % 100);
    const auto first = std::find_if(taken_.begin(), taken_.end(), [&](const auto& h) { return h.launch >= from; });
    ASSERT_EQ(held_.from(from) - held_.begin(), first - taken_.begin());
    const auto gone = static_cast<std::ptrdiff_t>(rng_() % 7 == 0 ? taken_.size() : rng_() % (taken_.size() + 1));
    held_.drop_before(held_.begin() + gone);
    taken_.erase(taken_.begin(), taken_.begin() + gone);
    ASSERT_TRUE(std::equal(held_.begin(), held_.end(), taken_.begin(), taken_.end(), same));
    ASSERT_EQ(held_.empty(), taken_.empty());
    ASSERT_EQ(held_.waiting().size(), waiting_.size());
    if (rng_() % 3 == 0) return;  // it is not asked for at every tick
    TimeNs earliest = HeldRecords::kNone;
    for (const auto* all : {&taken_, &waiting_})
      for (const HeldRecord& held : *all) earliest = std::min(earliest, held.record.begin_ns);
    ASSERT_EQ(held_.earliest_begin(), earliest);
  }
};

TEST_P(HeldRecordsTest, ComeInAnyOrderAndAreTakenInThatOfLaunches) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  for (int i = 0; i < 500 && !HasFatalFailure(); ++i) tick();
}

INSTANTIATE_TEST_SUITE_P(Orders, HeldRecordsTest, testing::Range(0, 4));

TEST(HeldRecordsMemory, FollowsWhatIsHeld) {
  constexpr std::size_t kMost = 100'000;
  HeldRecords held;
  const auto pass = [&](std::uint32_t correlation) {
    held.push_back(record_of(correlation, correlation));
    held.take(held.waiting_until(static_cast<CorrelationId>(correlation)).size());
  };
  // As many stay as are held at most, while records pass through without an end.
  for (std::uint32_t i = 0; i < 10 * kMost; ++i) {
    pass(i);
    if (i >= kMost) held.drop_before(held.begin() + 1);
  }
  EXPECT_LE(held.held_bytes() * 10, 14 * kMost * sizeof(HeldRecord));  // a third more
  // The burst is over: little is held, and little memory.
  for (int tick = 0; tick < 3; ++tick) {
    held.drop_before(held.end());
    for (std::uint32_t i = 0; i < 100; ++i) pass(static_cast<std::uint32_t>(10 * kMost + i));
  }
  EXPECT_LE(held.held_bytes(), 4096 * sizeof(HeldRecord));
}

}  // namespace
}  // namespace mfu

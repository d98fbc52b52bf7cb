#include "core/drain/instance_feed.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace mfu {
namespace {

class InstanceFeedTest : public ::testing::Test {
 protected:
  /// Takes what is there, releases what is over, and counts both.
  void take() {
    for (const InstanceFeed::Event& event : feed_.take()) {
      ++(event.opens() ? opened_ : closed_);
      if (!event.opens()) table_->release(*event.slot);
    }
  }

  Counters counters_;
  TickClock clock_{true};
  std::unique_ptr<InstanceTable> table_ = std::make_unique<InstanceTable>(counters_);
  InstanceFeed feed_{*table_, clock_};
  std::uint64_t opened_ = 0, closed_ = 0;
};

/// A thread may be held up between claim and publish while the drain looks any number of times.
TEST_F(InstanceFeedTest, WaitsForAClaimAsLongAsItTakes) {
  InstanceTable::Share late, share;
  InstanceId held{}, id{};
  InstanceSlot* slot = table_->claim(late, held);
  ASSERT_NE(slot, nullptr);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_NE(table_->claim(share, id), nullptr);
    InstanceTable::publish(table_->slot(id));
    table_->close(id, i, 0);
    take();
  }
  EXPECT_EQ(opened_, 1000u);
  InstanceTable::publish(*slot);
  take();
  EXPECT_EQ(opened_, 1001u);
  table_->close(held, 1, 0);
  take();
  EXPECT_EQ(closed_, 1001u);
}

/// More threads than cores, which open more than the table holds: whatever was not refused is opened and closed once,
/// and every slot is free again.
TEST_F(InstanceFeedTest, EveryInstanceIsTakenOrCountedAsRefused) {
  constexpr std::size_t kThreads = 8;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> claims{0};
  std::vector<std::thread> threads;
  std::array<InstanceTable::Share, kThreads> shares{};
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::uint64_t tried = 0;
      InstanceTable::Share& share = shares[t];
      for (; !stop.load(std::memory_order_relaxed); ++tried) {
        InstanceId id{};
        InstanceSlot* slot = table_->claim(share, id);
        if (slot == nullptr) {
          if (tried % 64 == 0) std::this_thread::yield();
          continue;
        }
        slot->open_ticks = 1;
        InstanceTable::publish(*slot);
        table_->close(id, 2, 0);
      }
      claims.fetch_add(tried);
    });
  }
  while (opened_ < 60 * InstanceTable::kCapacity) {
    take();
    std::this_thread::yield();
  }
  stop.store(true);
  for (std::thread& t : threads) t.join();
  take();
  take();
  EXPECT_EQ(opened_ + counters_.get(Counter::kInstancesFull), claims.load());
  EXPECT_EQ(closed_, opened_);
  InstanceId id{};
  std::uint32_t room = 0;
  for (InstanceTable::Share& share : shares)
    while (share.left != 0) room += table_->claim(share, id) != nullptr;
  for (InstanceTable::Share share; table_->claim(share, id) != nullptr;) ++room;
  EXPECT_EQ(room, InstanceTable::kCapacity);
}

}  // namespace
}  // namespace mfu

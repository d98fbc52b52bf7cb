#include "core/attribution/record_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace mfu {
namespace {

TEST(BoundedQueue, FirstInFirstOutAndNeverMoreThanItsSize) {
  BoundedQueue<int, 4> queue;
  int out = 0;
  EXPECT_FALSE(queue.pop(out));
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.push(10 * round + i));
    EXPECT_FALSE(queue.push(99));
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(queue.pop(out));
      EXPECT_EQ(out, 10 * round + i);
    }
    EXPECT_FALSE(queue.pop(out));
  }
}

TEST(BoundedQueue, ManyProducersAndConsumersLoseAndDoubleNothing) {
  BoundedQueue<std::uint32_t, 64> queue;
  constexpr std::uint32_t kProducers = 3, kConsumers = 2, kEach = 20'000;
  std::vector<std::atomic<std::uint32_t>> got(kProducers * kEach);
  std::atomic<std::uint32_t> taken{0};
  std::vector<std::thread> threads;
  for (std::uint32_t p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      for (std::uint32_t i = 0; i < kEach; ++i)
        while (!queue.push(p * kEach + i)) std::this_thread::yield();
    });
  }
  std::atomic<bool> in_order{true};
  for (std::uint32_t c = 0; c < kConsumers; ++c) {
    threads.emplace_back([&] {
      std::vector<std::uint32_t> last(kProducers, 0);  // one consumer sees each producer's in order
      std::uint32_t value = 0;
      while (taken.load() < kProducers * kEach) {
        if (!queue.pop(value)) {
          std::this_thread::yield();
          continue;
        }
        taken.fetch_add(1);
        got[value].fetch_add(1);
        if (value % kEach + 1 <= last[value / kEach]) in_order = false;
        last[value / kEach] = value % kEach + 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(in_order);
  for (const auto& count : got) ASSERT_EQ(count.load(), 1u);
}

TEST(RecordQueue, HandsOutEachBatchOnceAndTheSameFewAgain) {
  const auto queue = std::make_unique<RecordQueue>();
  std::set<RecordBatch*> all;
  for (std::size_t i = 0; i < RecordQueue::kBatches; ++i) {
    RecordBatch* batch = queue->take();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->count, 0u);
    EXPECT_TRUE(all.insert(batch).second);
  }
  EXPECT_EQ(queue->take(), nullptr);
  RecordBatch* one = *all.begin();
  one->count = 3;
  queue->send(one);
  EXPECT_EQ(queue->receive(), one);
  EXPECT_EQ(queue->receive(), nullptr);
  queue->give_back(one);
  for (int i = 0; i < 10; ++i) {
    RecordBatch* again = queue->take();
    EXPECT_EQ(again, one);
    EXPECT_EQ(again->count, 0u);
    queue->give_back(again);
  }
}

TEST(RecordQueue, TouchesOnlyTheMemoryItNeeds) {
  const auto queue = std::make_unique<RecordQueue>();
  for (int i = 0; i < 1000; ++i) {
    RecordBatch* batch = queue->take();
    batch->records.fill({});
    queue->send(batch);
    queue->give_back(queue->receive());
  }
  EXPECT_LE(queue->resident_bytes(), 2 * sizeof(RecordBatch));
}

TEST(RecordQueue, SeveralDecodersAndOneDrain) {
  const auto queue = std::make_unique<RecordQueue>();
  constexpr std::uint32_t kDecoders = 3, kEach = 3000;
  std::vector<std::thread> threads;
  for (std::uint32_t d = 0; d < kDecoders; ++d) {
    threads.emplace_back([&, d] {
      for (std::uint32_t i = 0; i < kEach;) {
        RecordBatch* batch = queue->take();
        if (batch == nullptr) {
          std::this_thread::yield();
          continue;
        }
        // A batch may hold what others put into it: one adds to it, until it is full.
        batch->records[batch->count++].correlation = static_cast<CorrelationId>(d * kEach + i);
        queue->send(batch);
        ++i;
      }
    });
  }
  std::vector<int> seen(kDecoders * kEach, 0);
  for (std::uint32_t received = 0; received < kDecoders * kEach;) {
    RecordBatch* batch = queue->receive();
    if (batch == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_LE(batch->count, RecordBatch::kRecords);
    for (std::uint32_t i = 0; i < batch->count; ++i) ++seen[raw(batch->records[i].correlation)];
    received += batch->count;
    queue->give_back(batch);
  }
  for (std::thread& t : threads) t.join();
  for (const int n : seen) ASSERT_EQ(n, 1);
  EXPECT_EQ(queue->receive(), nullptr);
}

}  // namespace
}  // namespace mfu

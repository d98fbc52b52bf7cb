#include "core/attribution/correlation_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/ticks.h"

namespace mfu {
namespace {

using Lookup = CorrelationMap::Lookup;
constexpr std::uint32_t kCapacity = CorrelationMap::kCapacity;
CorrelationId id(std::uint32_t value) { return static_cast<CorrelationId>(value); }
LaunchOwner owner(std::uint32_t value) { return static_cast<LaunchOwner>(value); }

TEST(CorrelationMap, AnEmptyMapKnowsNoId) {
  CorrelationMap map;
  for (const std::uint32_t i : {0u, 1u, kCapacity, 0xFFFF'FFFFu}) {
    EXPECT_EQ(map.record(id(i)).result, Lookup::kNeverSeen) << i;
    EXPECT_FALSE(map.outstanding(id(i))) << i;
    EXPECT_FALSE(map.retract(id(i))) << i;
  }
}

TEST(CorrelationMap, KeepsOwnersToTheLastBitAndTellsTheFirstRecord) {
  CorrelationMap map;
  std::uint32_t next = 0;
  for (const LaunchOwner o : {LaunchOwner::kOutside, owner(1), LaunchOwner::kMaxInstance, LaunchOwner::kAmbiguous}) {
    EXPECT_TRUE(map.insert(id(next), o));
    EXPECT_TRUE(map.outstanding(id(next)));
    const auto first = map.record(id(next));
    EXPECT_EQ(first.result, Lookup::kFound);
    EXPECT_EQ(first.owner, o);
    EXPECT_FALSE(map.outstanding(id(next)));
    const auto second = map.record(id(next));
    EXPECT_EQ(second.result, Lookup::kAlreadyRecorded);
    EXPECT_EQ(second.owner, o);
    ++next;
  }
}

TEST(CorrelationMap, TheOuterApiCallEntersTheIdAndTheInnerOneDoesNot) {
  CorrelationMap map;
  EXPECT_TRUE(map.insert(id(5), owner(1)));
  EXPECT_FALSE(map.insert(id(5), owner(2)));
  EXPECT_EQ(map.record(id(5)).owner, owner(1));
}

TEST(CorrelationMap, ANewerIdInTheSlotMeansOverwrittenAnOlderOneNeverSeen) {
  CorrelationMap map;
  ASSERT_TRUE(map.insert(id(10), owner(1)));
  ASSERT_TRUE(map.insert(id(10 + kCapacity), owner(2)));
  EXPECT_EQ(map.record(id(10)).result, Lookup::kOverwritten);
  EXPECT_EQ(map.record(id(10 + 2 * kCapacity)).result, Lookup::kNeverSeen);
  EXPECT_EQ(map.record(id(10 + kCapacity)).owner, owner(2));
}

TEST(CorrelationMap, IdsWrapAt32Bits) {
  CorrelationMap map;
  const std::uint32_t last = 0xFFFF'FFFFu - 3;
  for (std::uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(map.insert(id(last + i), owner(i + 1)));
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto found = map.record(id(last + i));
    EXPECT_EQ(found.result, Lookup::kFound);
    EXPECT_EQ(found.owner, owner(i + 1));
  }
  // Across the wrap "newer" is still newer.
  ASSERT_TRUE(map.insert(id(0xFFFF'FFFFu), owner(1)) || true);
  ASSERT_TRUE(map.insert(id(0xFFFF'FFFFu + kCapacity), owner(2)));
  EXPECT_EQ(map.record(id(0xFFFF'FFFFu)).result, Lookup::kOverwritten);
}

TEST(CorrelationMap, ARetractedLaunchIsNotWaitedForOnceAndNeverAfterItsRecord) {
  CorrelationMap map;
  ASSERT_TRUE(map.insert(id(3), owner(1)));
  EXPECT_TRUE(map.retract(id(3)));
  EXPECT_FALSE(map.retract(id(3)));
  EXPECT_FALSE(map.outstanding(id(3)));
  EXPECT_EQ(map.record(id(3)).owner, LaunchOwner::kNotALaunch);
  ASSERT_TRUE(map.insert(id(4), owner(1)));
  (void)map.record(id(4));
  EXPECT_FALSE(map.retract(id(4)));  // it did put work on a stream
  EXPECT_EQ(map.record(id(4)).owner, owner(1));
}

TEST(CorrelationMap, MarksARecordTheSameWayHoweverFarTheNewestLaunchIsAhead) {
  for (const std::uint32_t first : {100u, 0xFFFF'FFF0u}) {  // ids wrap
    for (const std::uint32_t ahead : {0u, 1u, 5000u, kCapacity / 2 - 1, kCapacity / 2, kCapacity, 0xFFFF'FFFFu}) {
      CorrelationMap map;
      ASSERT_TRUE(map.insert(id(first), owner(7), {}, ProductTag::first_of(ProductId{3})));
      const auto found = map.record(id(first), CorrelationMap::Newest(id(first + ahead)));
      EXPECT_EQ(found.result, Lookup::kFound) << ahead;
      EXPECT_EQ(found.owner, owner(7)) << ahead;
      EXPECT_EQ(found.product.product(), ProductId{3}) << ahead;
      EXPECT_FALSE(map.outstanding(id(first))) << ahead;
      EXPECT_FALSE(map.retract(id(first))) << ahead;
      EXPECT_EQ(map.record(id(first), CorrelationMap::Newest(id(first + ahead))).result, Lookup::kAlreadyRecorded)
          << ahead;
      ASSERT_TRUE(map.insert(id(first + kCapacity), owner(8)));
      EXPECT_EQ(map.record(id(first), CorrelationMap::Newest(id(first + ahead))).result, Lookup::kOverwritten) << ahead;
    }
  }
}

TEST(CorrelationMap, EveryLaunchOfManyThreadsIsFoundOnceWhileTheyInsert) {
  CorrelationMap map;
  constexpr std::uint32_t kThreads = 4, kEach = 20'000;
  std::vector<std::atomic<std::uint32_t>> done(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        map.insert(id(i * kThreads + t), owner(i * kThreads + t + 1));
        done[t].store(i + 1, std::memory_order_release);
      }
    });
  }
  std::uint64_t found = 0;
  for (std::uint32_t i = 0; i < kEach; ++i) {
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      while (done[t].load(std::memory_order_acquire) <= i) std::this_thread::yield();
      const CorrelationId launch = id(i * kThreads + t);
      const auto f = i % 2 == 0 ? map.record(launch) : map.record(launch, CorrelationMap::Newest(launch));
      found += f.result == Lookup::kFound && f.owner == owner(i * kThreads + t + 1);
    }
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(found, std::uint64_t{kThreads} * kEach);
}

TEST(CorrelationMap, WhoLooksWhileManyTakeOverASlotSeesOneEntryWhole) {
  CorrelationMap map;
  constexpr std::uint32_t kSlots = 4, kLaps = 3'000;  // a lap is the next id in the same slot; ids may wrap
  const auto id_of = [](std::uint32_t slot, std::uint32_t lap) { return id(lap * kCapacity + slot); };
  const auto place_of = [](std::uint32_t lap) { return LaunchPlace::on(lap & 0xFFFF).by(lap & 0x7FF); };
  std::vector<std::atomic<std::uint32_t>> lap_of(kSlots);
  std::vector<std::thread> writers;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    writers.emplace_back([&, slot] {
      for (std::uint32_t lap = 1; lap <= kLaps; ++lap) {
        map.insert_event(id_of(slot, lap), lap % 2 == 0, place_of(lap), lap * 7);
        lap_of[slot].store(lap, std::memory_order_release);
        for (int pause = 0; pause < 20; ++pause) spin_pause();
      }
    });
  }
  std::uint64_t seen = 0, torn = 0;
  for (std::uint32_t slot = 0, done = 0; done < kSlots; slot = (slot + 1) % kSlots) {
    // The one that is there, and the one that comes.
    const std::uint32_t lap = lap_of[slot].load(std::memory_order_acquire);
    done = lap == kLaps ? done + 1 : 0;
    for (const std::uint32_t asked : {lap, lap + 1}) {
      const CorrelationMap::Entry entry = map.look(id_of(slot, asked));
      if (entry.kind == CorrelationMap::Kind::kOther) continue;
      ++seen;
      const bool awaited = entry.kind == CorrelationMap::Kind::kEventAwaited;
      torn += entry.place.word() != place_of(asked).word() || entry.detail != asked * 7 || awaited != (asked % 2 == 0);
    }
  }
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_GE(seen, kSlots);  // at least the last one of each
}

TEST(CorrelationMap, ALaunchKeepsItsProductUntilItsFirstRecord) {
  CorrelationMap map;
  const ProductTag tag = ProductTag::first_of(ProductId{77});
  ASSERT_TRUE(map.insert(id(5), owner(1), LaunchPlace::on(3), tag));
  const auto found = map.record(id(5));
  EXPECT_EQ(found.product.product(), ProductId{77});
  EXPECT_TRUE(found.product.first());
  map.note_times(id(5), 1'000'000, 2'000'000, true);
  EXPECT_FALSE(map.record(id(5)).product);
  EXPECT_EQ(CorrelationMap::end_of(map.look(id(5)), 2'000'000), 2'000'000 / 256 * 256);
  // Without a usable time nothing of the tag is left to be taken for one.
  ASSERT_TRUE(map.insert(id(6), owner(1), LaunchPlace::on(3), tag));
  EXPECT_TRUE(map.record(id(6)).product);
  EXPECT_TRUE(map.note_no_time(id(6), true));
  EXPECT_FALSE(map.note_no_time(id(6), false));
  EXPECT_EQ(CorrelationMap::end_of(map.look(id(6)), 2'000'000), 0);
}

TEST(CorrelationMap, AProductIsTakenBackUntilItsRecordAndNotOfAnotherId) {
  CorrelationMap map;
  const ProductTag tag = ProductTag::first_of(ProductId{77}), other = ProductTag::first_of(ProductId{78}).further();
  ASSERT_TRUE(map.insert(id(5), owner(1), {}, tag));
  map.retag(id(5 + kCapacity), other);
  map.retag(id(5), other);
  const auto found = map.record(id(5));
  EXPECT_EQ(found.product.product(), ProductId{78});
  EXPECT_FALSE(found.product.first());
  map.note_times(id(5), 1'000'000, 2'000'000, true);
  map.retag(id(5), tag);
  EXPECT_EQ(CorrelationMap::end_of(map.look(id(5)), 2'000'000), 2'000'000 / 256 * 256);
  ASSERT_TRUE(map.insert(id(6), owner(1), {}, tag));
  ASSERT_TRUE(map.retract(id(6)));
  EXPECT_FALSE(map.record(id(6)).product);  // it put no work on a stream
}

}  // namespace
}  // namespace mfu

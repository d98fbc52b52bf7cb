#include "core/attribution/instance_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

namespace mfu {
namespace {

TEST(ShapeWords, TheFirstSourceWinsAndAllValuesSurvive) {
  ShapeWords w;
  w.set(ShapeWords::kBatch, 4);
  w.set(ShapeWords::kBatch, 9);
  EXPECT_EQ(w.to_shape().batch, 4);
  EXPECT_FALSE(w.to_shape().context.has_value());
  ShapeWords all;
  for (std::size_t key = 0; key < ShapeWords::kCount; ++key)
    all.set(key, key == ShapeWords::kGenTokens ? 0 : static_cast<std::int64_t>(key) + 1);
  w.take(all);
  const Shape back = w.to_shape();
  EXPECT_EQ(back.batch, 1);
  EXPECT_EQ(back.seq_len, 2);
  EXPECT_EQ(back.context, 3);
  EXPECT_EQ(back.new_tokens, 4);
  EXPECT_EQ(back.tokens, 5);
  EXPECT_EQ(back.gen_batch, 6);
  EXPECT_EQ(back.gen_tokens, 0);
}

class InstanceTableTest : public ::testing::Test {
 protected:
  InstanceId open(InstanceTable::Share& share) {
    InstanceId id{};
    InstanceSlot* slot = table_->claim(share, id);
    if (slot == nullptr) return InstanceId::kNone;
    InstanceTable::publish(*slot);
    return id;
  }
  void end(InstanceId id) {
    table_->close(id, 1, 0);
    table_->release(table_->slot(id));
  }
  /// Of the chunks taken so far, each slot's id.
  std::vector<InstanceId> all() const {
    std::vector<InstanceId> ids;
    for (std::uint64_t n = 0; n < table_->chunks_taken(); ++n)
      for (InstanceTable::Share chunk = table_->chunk(n); chunk.left != 0; ++chunk.next, --chunk.left)
        ids.push_back(static_cast<InstanceId>(chunk.next));
    return ids;
  }
  Counters counters_;
  std::unique_ptr<InstanceTable> table_ = std::make_unique<InstanceTable>(counters_);
};

TEST_F(InstanceTableTest, AnInstanceIsSeenOnceItIsPublishedAndUntilItIsReleased) {
  InstanceTable::Share share;
  InstanceId id{};
  InstanceSlot* slot = table_->claim(share, id);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot, &table_->slot(id));
  EXPECT_EQ(slot->id, id);
  EXPECT_EQ(all().front(), id);
  EXPECT_EQ(slot->state.load(), InstanceSlot::kFree);
  InstanceTable::publish(*slot);
  EXPECT_EQ(slot->state.load(), InstanceSlot::kOpen);
  table_->close(id, 42, 7);
  EXPECT_EQ(slot->state.load(), InstanceSlot::kClosed);
  EXPECT_EQ(slot->close_ticks, 42);
  EXPECT_EQ(slot->context.load(), 7u);
  table_->close(id, 43, 8);  // closing twice changes nothing
  EXPECT_EQ(slot->close_ticks, 42);
  table_->release(*slot);
  EXPECT_EQ(slot->state.load(), InstanceSlot::kFree);
}

TEST_F(InstanceTableTest, EachThreadHasTheNextIdsOfItsOwnChunk) {
  InstanceTable::Share a, b;
  std::vector<InstanceId> of_a, of_b;
  for (std::uint32_t i = 0; i < InstanceTable::kChunk; ++i) {
    of_a.push_back(open(a));
    of_b.push_back(open(b));
  }
  EXPECT_EQ(table_->chunks_taken(), 2u);
  std::vector<InstanceId> both = of_a;
  both.insert(both.end(), of_b.begin(), of_b.end());
  EXPECT_EQ(all(), both);
}

TEST_F(InstanceTableTest, AFullTableRefusesAndCounts) {
  InstanceTable::Share share;
  std::vector<InstanceId> ids;
  for (std::uint32_t i = 0; i < InstanceTable::kCapacity; ++i) {
    ids.push_back(open(share));
    ASSERT_NE(ids.back(), InstanceId::kNone);
  }
  EXPECT_EQ(std::set<InstanceId>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_EQ(open(share), InstanceId::kNone);
  EXPECT_EQ(counters_.get(Counter::kInstancesFull), 1u);
  // All of a chunk but one instance, which stays open, is no chunk.
  for (std::uint32_t i = 1; i < InstanceTable::kChunk; ++i) end(ids[i]);
  EXPECT_EQ(open(share), InstanceId::kNone);
  end(ids[0]);
  const InstanceId again = open(share);
  ASSERT_NE(again, InstanceId::kNone);
  EXPECT_EQ(&table_->slot(again), &table_->slot(ids[0]));
  EXPECT_NE(again, ids[0]) << "a launch of the old one is not of the new one";
  table_->close(ids[0], 5, 0);
  EXPECT_EQ(table_->slot(again).state.load(), InstanceSlot::kOpen);
}

TEST_F(InstanceTableTest, AnInstanceThatStaysOpenKeepsItsChunkAlone) {
  InstanceTable::Share share, other;
  const InstanceId held = open(share);
  for (std::uint32_t i = 0; i < 4 * InstanceTable::kCapacity; ++i) {
    const InstanceId id = open(other);
    ASSERT_NE(id, InstanceId::kNone);
    ASSERT_NE(&table_->slot(id), &table_->slot(held));
    end(id);
  }
  EXPECT_EQ(table_->slot(held).state.load(), InstanceSlot::kOpen);
  EXPECT_EQ(counters_.get(Counter::kInstancesFull), 0u);
}

TEST_F(InstanceTableTest, IdsStartAgainAt1AndNeverReachTheVerdicts) {
  // One chunk is left, so that its ids come one behind another.
  std::vector<InstanceTable::Share> taken(InstanceTable::kChunks);
  InstanceId first{};
  for (std::size_t i = taken.size(); i-- > 1;) ASSERT_NE(table_->claim(taken[i], first), nullptr);
  InstanceId last = InstanceId::kNone;
  constexpr std::uint32_t kOfOneSlot = InstanceTable::kIds / InstanceTable::kCapacity;
  for (std::uint32_t n = 0; n <= kOfOneSlot * InstanceTable::kChunk; ++n) {
    const InstanceId id = open(taken[0]);
    ASSERT_GE(raw(id), 1u);
    ASSERT_LE(raw(id), InstanceTable::kIds);
    ASSERT_EQ(raw(id) > raw(last), n < kOfOneSlot * InstanceTable::kChunk) << n;
    if (n == 0) first = id;
    last = id;
    end(id);
  }
  EXPECT_EQ(last, first);
}

}  // namespace
}  // namespace mfu

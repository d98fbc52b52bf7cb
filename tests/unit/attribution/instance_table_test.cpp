#include "core/attribution/instance_table.h"

#include <gtest/gtest.h>

#include <memory>

namespace mfu {
namespace {

TEST(ShapeWords, TheFirstSourceWinsAndAllValuesSurvive) {
  ShapeWords w;
  w.set(ShapeWords::kBatch, 4);
  w.set(ShapeWords::kBatch, 9);
  EXPECT_EQ(w.to_shape().batch, 4);
  EXPECT_FALSE(w.to_shape().context.has_value());
  Shape all;
  all.batch = 1, all.seq_len = 2, all.context = 3, all.new_tokens = 4, all.tokens = 5, all.gen_batch = 6,
  all.gen_tokens = 0;
  const Shape back = ShapeWords::from_shape(all).to_shape();
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
  InstanceSlot* open(InstanceId& id) {
    InstanceSlot* slot = table_->claim(id);
    if (slot != nullptr) InstanceTable::publish(*slot);
    return slot;
  }
  Counters counters_;
  std::unique_ptr<InstanceTable> table_ = std::make_unique<InstanceTable>(counters_);
};

TEST_F(InstanceTableTest, AClaimIsPendingUntilItIsPublished) {
  InstanceId id{};
  InstanceSlot* slot = table_->claim(id);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(raw(id), 1u);
  bool pending = false;
  EXPECT_EQ(table_->at_sequence(0, pending), nullptr);
  EXPECT_TRUE(pending);
  InstanceTable::publish(*slot);
  EXPECT_EQ(table_->at_sequence(0, pending), slot);
  EXPECT_FALSE(pending);
  table_->close(id, 42, 7);
  EXPECT_EQ(slot->state.load(), InstanceSlot::kClosed);
  EXPECT_EQ(slot->close_ticks, 42);
  EXPECT_EQ(slot->context.load(), 7u);
  table_->close(id, 43, 8);  // closing twice changes nothing
  EXPECT_EQ(slot->close_ticks, 42);
}

TEST_F(InstanceTableTest, AFullTableRefusesAndCounts) {
  InstanceId first{}, id{};
  open(first);
  for (std::uint32_t i = 1; i < InstanceTable::kCapacity; ++i) ASSERT_NE(open(id), nullptr);
  EXPECT_EQ(open(id), nullptr);
  EXPECT_EQ(id, InstanceId::kNone);
  EXPECT_EQ(counters_.get(Counter::kInstancesFull), 1u);
  bool pending = true;
  EXPECT_EQ(table_->at_sequence(InstanceTable::kCapacity, pending), nullptr);  // will never come
  EXPECT_FALSE(pending);
  table_->close(InstanceTable::id_of(InstanceTable::kCapacity), 5, 0);  // nor does its close hit the one in its slot
  EXPECT_EQ(table_->slot(first).state.load(), InstanceSlot::kOpen);
  // The second one is freed: the next claim (for that slot) works, with a new id.
  table_->close(InstanceTable::id_of(1), 5, 0);
  InstanceTable::release(table_->slot(InstanceTable::id_of(1)));
  ASSERT_NE(open(id), nullptr);
  EXPECT_EQ(raw(id), InstanceTable::kCapacity + 2);
}

TEST_F(InstanceTableTest, ASlotThatIsClaimedButNotPublishedIsNotGivenTwice) {
  InstanceId held{}, id{};
  ASSERT_NE(table_->claim(held), nullptr);  // its thread is held up here
  for (std::uint32_t i = 1; i < InstanceTable::kCapacity; ++i) {
    ASSERT_NE(open(id), nullptr);
    table_->close(id, 1, 0);
    InstanceTable::release(table_->slot(id));
  }
  EXPECT_EQ(table_->claim(id), nullptr);
  EXPECT_EQ(table_->slot(held).id, held);
  // It is waited for, and the one that found its slot taken is not.
  bool pending = false;
  EXPECT_EQ(table_->at_sequence(0, pending), nullptr);
  EXPECT_TRUE(pending);
  EXPECT_EQ(table_->at_sequence(InstanceTable::kCapacity, pending), nullptr);
  EXPECT_FALSE(pending);
  InstanceTable::publish(table_->slot(held));
  EXPECT_EQ(table_->at_sequence(0, pending), &table_->slot(held));
}

TEST(InstanceIds, StartAgainAt1AndNeverReachTheVerdicts) {
  EXPECT_EQ(raw(InstanceTable::id_of(0)), 1u);
  EXPECT_EQ(raw(InstanceTable::id_of(InstanceTable::kIds - 1)), InstanceTable::kIds);
  EXPECT_EQ(raw(InstanceTable::id_of(InstanceTable::kIds)), 1u);
  EXPECT_EQ(raw(InstanceTable::id_of(0xFFFF'FFFFu)), InstanceTable::kIds);
  EXPECT_EQ(raw(InstanceTable::id_of(std::uint64_t{1} << 32)), 1u);
}

}  // namespace
}  // namespace mfu

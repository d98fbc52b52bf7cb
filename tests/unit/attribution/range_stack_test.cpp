#include "core/attribution/range_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace mfu {
namespace {

constexpr DomainId kA = static_cast<DomainId>(1), kB = static_cast<DomainId>(2);
using Popped = RangeStack::Popped;

/// A range that opens instance `id` of `region` on top of what is open.
RangeStack::Frame opens(const RangeStack& stack, DomainId domain, std::uint32_t id, std::uint16_t region = 0) {
  RangeStack::Frame f;
  f.domain = domain;
  f.instance = f.innermost = static_cast<InstanceId>(id);
  f.region = static_cast<RegionId>(region);
  if (id == 0) f.innermost = stack.innermost();
  return f;
}
RangeStack::Frame plain(const RangeStack& stack, DomainId domain) {
  RangeStack::Frame f;
  f.domain = domain;
  f.innermost = stack.innermost();
  return f;
}

TEST(RangeStack, EmptyStackHasNoLeafAndNothingToPop) {
  RangeStack stack;
  InstanceId opened = InstanceId::kNone;
  EXPECT_EQ(stack.innermost(), InstanceId::kNone);
  EXPECT_EQ(stack.pop(kA, opened), Popped::kUnmatched);
  EXPECT_EQ(stack.depth(), 0u);
}

TEST(RangeStack, PlainRangesInsideARegionKeepItsLeaf) {
  RangeStack stack;
  stack.push(opens(stack, kA, 7));
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(stack.push(plain(stack, kA)));
    EXPECT_EQ(raw(stack.innermost()), 7u);
  }
  InstanceId opened = InstanceId::kNone;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(stack.pop(kA, opened), Popped::kFrame);
    EXPECT_EQ(opened, InstanceId::kNone);
    EXPECT_EQ(raw(stack.innermost()), 7u);
  }
  EXPECT_EQ(stack.pop(kA, opened), Popped::kFrame);
  EXPECT_EQ(raw(opened), 7u);
  EXPECT_EQ(stack.innermost(), InstanceId::kNone);
}

TEST(RangeStack, LevelsBeyondTheDeepestAreCountedSoThatPopsStayBalanced) {
  RangeStack stack;
  stack.push(opens(stack, kA, 1));
  for (std::uint32_t i = 1; i < RangeStack::kMaxDepth; ++i) EXPECT_TRUE(stack.push(plain(stack, kA)));
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(stack.push(opens(stack, kA, 99)));
  EXPECT_EQ(stack.depth(), RangeStack::kMaxDepth + 50);
  EXPECT_EQ(stack.stored_depth(), RangeStack::kMaxDepth);
  EXPECT_EQ(raw(stack.innermost()), 1u);  // what is not stored opens nothing
  InstanceId opened = InstanceId::kNone;
  for (int i = 0; i < 50; ++i) EXPECT_EQ(stack.pop(kA, opened), Popped::kTooDeep);
  for (std::uint32_t i = 1; i < RangeStack::kMaxDepth; ++i) EXPECT_EQ(stack.pop(kA, opened), Popped::kFrame);
  EXPECT_EQ(stack.pop(kA, opened), Popped::kFrame);
  EXPECT_EQ(raw(opened), 1u);
  EXPECT_EQ(stack.pop(kA, opened), Popped::kUnmatched);
}

TEST(RangeStack, DomainsPopTheirOwnInnermostRange) {
  RangeStack stack;
  stack.push(opens(stack, kA, 1));
  stack.push(opens(stack, kB, 2));
  InstanceId opened = InstanceId::kNone;
  ASSERT_EQ(stack.pop(kA, opened), Popped::kFrame);  // below the other domain's
  EXPECT_EQ(raw(opened), 1u);
  EXPECT_EQ(raw(stack.innermost()), 2u);
  EXPECT_EQ(stack.pop(kA, opened), Popped::kUnmatched);
  ASSERT_EQ(stack.pop(kB, opened), Popped::kFrame);
  EXPECT_EQ(stack.innermost(), InstanceId::kNone);
}

TEST(RangeStack, AFrameAboveTheRemovedRegionSeesWhatLayBelow) {
  RangeStack stack;
  stack.push(opens(stack, kA, 1));
  stack.push(opens(stack, kB, 2));
  stack.push(plain(stack, kA));
  InstanceId opened = InstanceId::kNone;
  ASSERT_EQ(stack.pop(kB, opened), Popped::kFrame);
  EXPECT_EQ(raw(stack.innermost()), 1u);
}

TEST(RangeStack, FindsTheOpenInstanceOfARegionButNotAnOrphanedPart) {
  RangeStack stack;
  stack.push(opens(stack, kA, 1, 5));
  EXPECT_EQ(raw(stack.open_instance_of(static_cast<RegionId>(5))), 1u);
  EXPECT_EQ(stack.open_instance_of(static_cast<RegionId>(6)), InstanceId::kNone);
  RangeStack::Frame part = plain(stack, kB);  // of the same region: keeps the innermost
  part.instance = static_cast<InstanceId>(2);
  part.region = static_cast<RegionId>(5);
  stack.push(part);
  EXPECT_EQ(raw(stack.open_instance_of(static_cast<RegionId>(5))), 1u);
  InstanceId opened = InstanceId::kNone;
  ASSERT_EQ(stack.pop(kA, opened), Popped::kFrame);  // the whole closes before its part
  EXPECT_EQ(stack.open_instance_of(static_cast<RegionId>(5)), InstanceId::kNone);
  EXPECT_EQ(stack.innermost(), InstanceId::kNone);
}

/// What NVTX means, said the slow way: a list of open ranges; the innermost is the last one in it that opened an
/// instance.
TEST(RangeStack, AgreesWithAListOnRandomPushesAndPops) {
  struct Open {
    DomainId domain;
    std::uint32_t instance;
  };
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    RangeStack stack;
    std::vector<Open> model;
    std::uint32_t next = 1;
    const unsigned push_weight = 40 + seed % 30;
    for (int step = 0; step < 400 && !testing::Test::HasFailure(); ++step) {
      const auto domain = static_cast<DomainId>(rng() % 3);
      if (rng() % 100 < push_weight && model.size() < RangeStack::kMaxDepth) {
        const std::uint32_t instance = rng() % 3 == 0 ? next++ : 0;
        ASSERT_TRUE(stack.push(opens(stack, domain, instance)));
        model.push_back({domain, instance});
      } else {
        InstanceId opened = InstanceId::kNone;
        const auto at = std::find_if(model.rbegin(), model.rend(), [&](const Open& o) { return o.domain == domain; });
        const auto popped = stack.pop(domain, opened);
        ASSERT_EQ(popped, at == model.rend() ? Popped::kUnmatched : Popped::kFrame);
        if (at != model.rend()) {
          ASSERT_EQ(raw(opened), at->instance);
          model.erase(std::next(at).base());
        }
      }
      std::uint32_t innermost = 0;
      for (const Open& o : model) innermost = o.instance != 0 ? o.instance : innermost;
      ASSERT_EQ(raw(stack.innermost()), innermost);
      ASSERT_EQ(stack.depth(), model.size());
    }
  }
}

}  // namespace
}  // namespace mfu

// Whose launch is it: every rule by hand, then random programs against the rules said the slow way.
#include "core/attribution/attribution.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <thread>

namespace mfu {
namespace {

constexpr DomainId kDomain = DomainId::kDefault;
constexpr std::uint32_t kContext = 1, kOtherContext = 2;

RegionOpening region(std::uint16_t id) {
  RegionOpening o;
  o.region = static_cast<RegionId>(id);
  o.rule = static_cast<RuleId>(0);
  return o;
}

class AttributionTest : public ::testing::Test {
 protected:
  /// The owner that one launch of `thread` gets.
  LaunchOwner launch(ThreadState* thread, std::uint32_t context = kContext) {
    const auto id = static_cast<CorrelationId>(++correlation_);
    if (thread != nullptr) {
      EXPECT_TRUE(a_->launch(*thread, id, context));
      a_->launch_done(*thread, id, false);
    } else {
      a_->launch_anonymous(id, context);
    }
    ++launches_;
    const auto found = a_->map().record(id);
    EXPECT_EQ(found.result, CorrelationMap::Lookup::kFound);
    if (thread != nullptr && is_outside(found.owner)) {
      EXPECT_EQ(thread_outside(found.owner), thread->index);
      return LaunchOwner::kOutside;
    }
    return found.owner;
  }
  /// The instance that a push of `r` on `thread` opened.
  LaunchOwner push(ThreadState* thread, std::uint16_t r) {
    a_->push_region(*thread, kDomain, region(r), ++now_);
    return static_cast<LaunchOwner>(raw(thread->stack.frame(thread->stack.stored_depth() - 1).instance));
  }
  void pop(ThreadState* thread) {
    a_->pop(*thread, kDomain, [this] { return ++now_; });
  }
  /// The instances that were published since the last call.
  std::vector<InstanceId> published() {
    std::vector<InstanceId> ids;
    InstanceTable& table = a_->instances();
    for (const std::uint64_t end = table.chunks_taken(); chunks_seen_ != end; ++chunks_seen_)
      chunks_.push_back(table.chunk(chunks_seen_));
    for (InstanceTable::Share& chunk : chunks_) {
      for (; chunk.left != 0; ++chunk.next, --chunk.left) {
        const auto id = static_cast<InstanceId>(chunk.next);
        if (table.slot(id).state.load(std::memory_order_acquire) == InstanceSlot::kFree) break;
        ids.push_back(id);
      }
    }
    std::erase_if(chunks_, [](const InstanceTable::Share& chunk) { return chunk.left == 0; });
    return ids;
  }
  const InstanceSlot& slot(LaunchOwner instance) { return a_->instances().slot(static_cast<InstanceId>(instance)); }

  Counters counters_;
  std::unique_ptr<Attribution> a_ = std::make_unique<Attribution>(counters_);
  Ticks now_ = 0;
  std::uint32_t correlation_ = 0xFFFF'FF00u;  // wraps on the way
  std::uint64_t launches_ = 0;
  std::uint64_t chunks_seen_ = 0;
  std::vector<InstanceTable::Share> chunks_;
};

TEST_F(AttributionTest, NoRegionOpenAnywhereIsOutside) {
  ThreadState* t = a_->acquire_thread();
  EXPECT_EQ(launch(t), LaunchOwner::kOutside);
  a_->push(*t, kDomain);  // a range that is no region
  EXPECT_EQ(launch(t), LaunchOwner::kOutside);
  EXPECT_EQ(launch(nullptr), LaunchOwner::kOutside);
  EXPECT_EQ(a_->launches_seen(), launches_);
}

TEST_F(AttributionTest, TheThreadsInnermostRegionOwnsItsLaunches) {
  ThreadState* t = a_->acquire_thread();
  const LaunchOwner outer = push(t, 0);
  EXPECT_EQ(launch(t), outer);
  a_->push(*t, kDomain);
  const LaunchOwner inner = push(t, 1);
  EXPECT_EQ(launch(t), inner);
  EXPECT_EQ(slot(inner).parent, static_cast<InstanceId>(outer));
  pop(t);
  EXPECT_EQ(launch(t), outer);
  pop(t);
  pop(t);
  EXPECT_EQ(launch(t), LaunchOwner::kOutside);
  EXPECT_EQ(counters_.get(Counter::kNvtxPopUnmatched), 0u);
  pop(t);
  EXPECT_EQ(counters_.get(Counter::kNvtxPopUnmatched), 1u);
}

TEST_F(AttributionTest, ARangeOfTheSameRegionIsAPartAndItsLaunchesAreTheWholes) {
  ThreadState* t = a_->acquire_thread();
  const LaunchOwner whole = push(t, 0);
  const LaunchOwner part = push(t, 0);
  EXPECT_EQ(slot(part).kind, InstanceKind::kNested);
  EXPECT_EQ(slot(part).parent, static_cast<InstanceId>(whole));
  EXPECT_EQ(launch(t), whole);
  const LaunchOwner nested = push(t, 1);
  const LaunchOwner deep_part = push(t, 0);
  EXPECT_EQ(slot(deep_part).parent, static_cast<InstanceId>(whole));
  EXPECT_EQ(launch(t), nested);
  for (int i = 0; i < 4; ++i) pop(t);
  EXPECT_EQ(launch(t), LaunchOwner::kOutside);
}

TEST_F(AttributionTest, AThreadWithoutARegionInheritsTheOnlyOneOpen) {
  ThreadState *main = a_->acquire_thread(), *backward = a_->acquire_thread();
  const LaunchOwner step = push(main, 0);
  EXPECT_EQ(launch(backward), step);
  EXPECT_EQ(launch(backward, kOtherContext), step);
  EXPECT_EQ(launch(nullptr), step);
  const LaunchOwner inner = push(main, 1);
  EXPECT_EQ(launch(backward), inner);
  pop(main);
  pop(main);
  EXPECT_EQ(launch(backward), LaunchOwner::kOutside);
}

TEST_F(AttributionTest, AThreadsOutermostRangeIsInsideTheRegionThatItsLaunchesWouldBelongTo) {
  ThreadState *main = a_->acquire_thread(), *autograd = a_->acquire_thread();
  const LaunchOwner step = push(main, 0);
  const LaunchOwner hook = push(autograd, 1);
  EXPECT_EQ(slot(hook).parent, static_cast<InstanceId>(step));
  EXPECT_EQ(slot(hook).kind, InstanceKind::kThread);
  EXPECT_EQ(launch(autograd), hook);
  EXPECT_EQ(launch(main), step);
  const LaunchOwner inner = push(autograd, 2);
  EXPECT_EQ(slot(inner).parent, static_cast<InstanceId>(hook)) << "a range inside keeps its own thread's parent";
  pop(autograd);
  pop(autograd);
  pop(main);
  EXPECT_EQ(slot(push(autograd, 1)).parent, InstanceId::kNone) << "nothing else is open";
}

TEST_F(AttributionTest, WhereNothingDecidesBetweenRegionsAnOutermostRangeHasNoParent) {
  ThreadState *a = a_->acquire_thread(), *b = a_->acquire_thread(), *c = a_->acquire_thread();
  push(a, 0);
  const LaunchOwner of_b = push(b, 3);
  EXPECT_EQ(slot(push(c, 1)).parent, InstanceId::kNone);
  pop(c);
  launch(b);
  launch(c);
  EXPECT_EQ(slot(push(c, 1)).parent, static_cast<InstanceId>(of_b)) << "it launched on the same context last";
}

TEST_F(AttributionTest, OfSeveralTheOneThatLastLaunchedOnTheContext) {
  ThreadState *a = a_->acquire_thread(), *b = a_->acquire_thread(), *other = a_->acquire_thread();
  const LaunchOwner of_a = push(a, 0), of_b = push(b, 0);
  EXPECT_EQ(launch(other), LaunchOwner::kAmbiguous);
  EXPECT_EQ(launch(nullptr), LaunchOwner::kAmbiguous);
  launch(a);
  launch(b, kOtherContext);
  EXPECT_EQ(launch(other), of_a);
  EXPECT_EQ(launch(other, kOtherContext), of_b);
  EXPECT_EQ(launch(other, 77), LaunchOwner::kAmbiguous);
  launch(b);
  EXPECT_EQ(launch(other), of_b);
  pop(b);
  EXPECT_EQ(launch(other, kOtherContext), of_a);  // the only one left
}

TEST_F(AttributionTest, WhenTheLastToLaunchHasClosedTheOneBeforeItCounts) {
  ThreadState *a = a_->acquire_thread(), *b = a_->acquire_thread(), *c = a_->acquire_thread(),
              *other = a_->acquire_thread();
  const LaunchOwner of_a = push(a, 0), of_b = push(b, 0);
  push(c, 0);
  launch(c, kOtherContext);
  ThreadState* d = a_->acquire_thread();
  push(d, 0);
  launch(a);
  launch(b);
  launch(d);
  EXPECT_NE(launch(other), of_b);
  pop(d);
  EXPECT_EQ(launch(other), of_b);
  EXPECT_EQ(launch(other), of_b);
  pop(b);
  EXPECT_EQ(launch(other), of_a);
  EXPECT_EQ(launch(other, 77), LaunchOwner::kAmbiguous);
}

TEST_F(AttributionTest, StartEndRangesBelongToTheProcess) {
  ThreadState *t = a_->acquire_thread(), *u = a_->acquire_thread();
  const std::uint64_t first = a_->start_process_region(t, region(0), ++now_);
  const std::uint64_t second = a_->start_process_region(nullptr, region(1), ++now_);
  ASSERT_NE(first, 0u);
  ASSERT_NE(second, 0u);
  EXPECT_EQ(raw(launch(u)), 2u);  // the one opened last
  const LaunchOwner own = push(t, 2);
  EXPECT_EQ(slot(own).parent, static_cast<InstanceId>(2));
  EXPECT_EQ(launch(t), own);
  EXPECT_EQ(launch(u), own);  // a thread's region comes before the process's
  EXPECT_TRUE(a_->end_process_region(second, ++now_));
  EXPECT_FALSE(a_->end_process_region(second, ++now_));
  pop(t);
  EXPECT_EQ(raw(launch(u)), 1u);
  EXPECT_TRUE(a_->end_process_region(first, ++now_));
  EXPECT_EQ(launch(u), LaunchOwner::kOutside);
  for (const std::uint64_t bad : {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}, first})
    EXPECT_FALSE(a_->end_process_region(bad, ++now_)) << bad;
}

TEST_F(AttributionTest, StartEndRangesCloseInAnyOrderAndHandlesAreNotReused) {
  std::vector<std::uint64_t> handles;
  for (std::uint32_t i = 0; i < Attribution::kMaxProcessRanges; ++i)
    handles.push_back(a_->start_process_region(nullptr, region(0), ++now_));
  EXPECT_EQ(a_->start_process_region(nullptr, region(0), ++now_), 0u);
  EXPECT_EQ(counters_.get(Counter::kNvtxRangesFull), 1u);
  const std::uint64_t old = handles[10];
  EXPECT_TRUE(a_->end_process_region(old, ++now_));
  const std::uint64_t again = a_->start_process_region(nullptr, region(0), ++now_);
  EXPECT_NE(again, 0u);
  EXPECT_NE(again, old);
  EXPECT_FALSE(a_->end_process_region(old, ++now_));
  EXPECT_TRUE(a_->end_process_region(again, ++now_));
}

TEST_F(AttributionTest, AThreadThatEndsClosesWhatItLeftOpen) {
  ThreadState *t = a_->acquire_thread(), *u = a_->acquire_thread();
  const LaunchOwner outer = push(t, 0), inner = push(t, 1);
  a_->release_thread(*t, 99);
  for (const LaunchOwner o : {outer, inner}) {
    EXPECT_EQ(slot(o).state.load(), InstanceSlot::kClosed);
    EXPECT_EQ(slot(o).close_ticks, 99);
  }
  EXPECT_EQ(launch(u), LaunchOwner::kOutside);
  ThreadState* next = a_->acquire_thread();
  EXPECT_EQ(next, t);  // the state is free again, and empty
  EXPECT_EQ(next->stack.depth(), 0u);
  EXPECT_EQ(launch(next), LaunchOwner::kOutside);
}

TEST_F(AttributionTest, BeyondTheThreadTableLaunchesAreAnonymousAndStillCount) {
  std::vector<ThreadState*> all;
  for (std::uint32_t i = 0; i < Attribution::kMaxThreads; ++i) all.push_back(a_->acquire_thread());
  for (ThreadState* t : all) ASSERT_NE(t, nullptr);
  EXPECT_EQ(a_->acquire_thread(), nullptr);
  EXPECT_EQ(counters_.get(Counter::kThreadsAnonymous), 1u);
  const LaunchOwner step = push(all.back(), 0);
  EXPECT_EQ(launch(nullptr), step);
  EXPECT_EQ(a_->launches_seen(), 1u);
  CorrelationId newest{};
  EXPECT_TRUE(a_->newest_correlation(newest));
  EXPECT_EQ(raw(newest), correlation_);
  a_->release_thread(*all[500], ++now_);
  EXPECT_EQ(a_->acquire_thread(), all[500]);
}

TEST_F(AttributionTest, FailedAndCapturedLaunchesAreTakenBackOnce) {
  ThreadState* t = a_->acquire_thread();
  push(t, 0);
  EXPECT_TRUE(a_->launch(*t, static_cast<CorrelationId>(1), kContext));
  EXPECT_FALSE(a_->launch(*t, static_cast<CorrelationId>(1), kContext));  // the driver's call inside the runtime's
  a_->launch_done(*t, static_cast<CorrelationId>(1), true);
  a_->launch_done(*t, static_cast<CorrelationId>(1), true);
  EXPECT_EQ(a_->launches_seen(), 0u);
  EXPECT_EQ(counters_.get(Counter::kLaunchesFailed), 1u);
  EXPECT_TRUE(a_->launch(*t, static_cast<CorrelationId>(2), kContext));
  a_->launch_captured(*t);
  a_->launch_captured(*t);
  a_->launch_done(*t, static_cast<CorrelationId>(2), false);
  EXPECT_EQ(a_->launches_seen(), 0u);
  EXPECT_EQ(counters_.get(Counter::kLaunchesCaptured), 1u);
  a_->launch_captured(*t);  // outside of any launch call: a node made by hand
  EXPECT_EQ(counters_.get(Counter::kLaunchesCaptured), 1u);
}

TEST_F(AttributionTest, WhatARegionLaunchesThatFoundNoRoomIsUnattributed) {
  ThreadState* t = a_->acquire_thread();
  for (std::uint32_t i = 0; i < InstanceTable::kCapacity; ++i) {  // closed, but the drain took none of them
    push(t, 1);
    pop(t);
  }
  push(t, 1);
  EXPECT_EQ(counters_.get(Counter::kInstancesFull), 1u);
  EXPECT_EQ(launch(t), LaunchOwner::kAmbiguous);
  EXPECT_EQ(launch(a_->acquire_thread()), LaunchOwner::kAmbiguous) << "a helper thread's owner is the same";
  pop(t);
  EXPECT_EQ(launch(t), LaunchOwner::kOutside);
}

TEST_F(AttributionTest, RangesBelowTheDeepestLevelOpenNothing) {
  ThreadState* t = a_->acquire_thread();
  const LaunchOwner outer = push(t, 0);
  for (std::uint32_t i = 1; i < RangeStack::kMaxDepth; ++i) a_->push(*t, kDomain);
  EXPECT_EQ(published().size(), 1u);
  for (int i = 0; i < 10; ++i) a_->push_region(*t, kDomain, region(1), ++now_);
  EXPECT_TRUE(published().empty());
  EXPECT_EQ(launch(t), outer);
  EXPECT_EQ(counters_.get(Counter::kNvtxTooDeep), 10u);
  for (std::uint32_t i = 0; i < RangeStack::kMaxDepth + 10; ++i) pop(t);
  EXPECT_EQ(launch(t), LaunchOwner::kOutside);
  EXPECT_EQ(counters_.get(Counter::kNvtxPopUnmatched), 0u);
}

/// Random programs: owners (each on one context, launching inside regions), helpers that own nothing, and the process.
TEST_F(AttributionTest, AgreesWithTheRulesOnRandomPrograms) {
  constexpr std::uint32_t kOwners = 5, kContexts = 3;
  struct Open {
    LaunchOwner instance;  ///< the innermost while it is on top
    std::uint16_t region;  ///< 0xFFFF: a plain range
  };
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    a_ = std::make_unique<Attribution>(counters_);
    chunks_.clear();
    chunks_seen_ = 0;
    std::vector<InstanceId> live;
    const auto follow = [&] {
      for (const InstanceId id : published()) live.push_back(id);
    };
    std::mt19937 rng(seed);
    std::vector<ThreadState*> owners;
    for (std::uint32_t i = 0; i < kOwners; ++i) owners.push_back(a_->acquire_thread());
    ThreadState* helper = a_->acquire_thread();
    std::vector<std::vector<Open>> stacks(kOwners);
    std::vector<std::uint64_t> last_launch(kOwners, 0);
    std::vector<std::pair<std::uint64_t, LaunchOwner>> process;
    std::uint64_t clock = 0;
    const auto innermost = [&](std::uint32_t o) {
      return stacks[o].empty() ? LaunchOwner::kOutside : stacks[o].back().instance;
    };
    /// The owner of a launch on `context` by a thread that has no region open.
    const auto owner_elsewhere = [&](std::uint32_t context) {
      LaunchOwner expected = process.empty() ? LaunchOwner::kOutside : process.back().second;
      std::vector<std::uint32_t> open;
      for (std::uint32_t i = 0; i < kOwners; ++i)
        if (innermost(i) != LaunchOwner::kOutside) open.push_back(i);
      if (open.size() == 1) return innermost(open[0]);
      if (open.size() > 1) {
        if (process.empty()) expected = LaunchOwner::kAmbiguous;
        std::uint64_t newest = 0;
        for (const std::uint32_t i : open) {
          if (1 + i % kContexts != context || last_launch[i] <= newest) continue;
          newest = last_launch[i];
          expected = innermost(i);
        }
      }
      return expected;
    };
    for (int step = 0; step < 500 && !HasFailure(); ++step) {
      const std::uint32_t o = rng() % kOwners;
      switch (rng() % 8) {
        case 0:
        case 1: {
          if (stacks[o].size() > 20) break;
          const auto r = static_cast<std::uint16_t>(rng() % 3);
          bool part = false;
          for (const Open& open : stacks[o]) part = part || open.region == r;
          const LaunchOwner before = innermost(o);
          const LaunchOwner around = owner_elsewhere(last_launch[o] != 0 ? 1 + o % kContexts : 0);
          const LaunchOwner opened = push(owners[o], r);
          if (!part && before == LaunchOwner::kOutside) {
            ASSERT_EQ(slot(opened).parent,
                      around == LaunchOwner::kAmbiguous ? InstanceId::kNone : static_cast<InstanceId>(around));
          }
          stacks[o].push_back({part ? before : opened, r});
          break;
        }
        case 2:
          a_->push(*owners[o], kDomain);
          stacks[o].push_back({innermost(o), 0xFFFF});
          break;
        case 3:
        case 4:
          if (stacks[o].empty()) break;
          pop(owners[o]);
          stacks[o].pop_back();
          break;
        case 5:
          if (innermost(o) == LaunchOwner::kOutside) break;
          ASSERT_EQ(launch(owners[o], 1 + o % kContexts), innermost(o));
          last_launch[o] = ++clock;
          break;
        case 6:
          if (rng() % 2 == 0 && process.size() < 4) {
            follow();
            const std::uint64_t handle = a_->start_process_region(nullptr, region(7), ++now_);
            follow();
            process.emplace_back(handle, static_cast<LaunchOwner>(raw(live.back())));
          } else if (!process.empty()) {
            const auto at = process.begin() + static_cast<std::ptrdiff_t>(rng() % process.size());
            ASSERT_TRUE(a_->end_process_region(at->first, ++now_));
            process.erase(at);
          }
          break;
        case 7: {
          const std::uint32_t context = 1 + rng() % kContexts;
          const LaunchOwner expected = owner_elsewhere(context);
          ASSERT_EQ(launch(rng() % 2 == 0 ? helper : nullptr, context), expected);
          break;
        }
      }
      follow();
      std::erase_if(live, [this](InstanceId id) {  // the drain, as it were
        InstanceSlot& s = a_->instances().slot(id);
        const bool over = s.state.load() == InstanceSlot::kClosed;
        if (over) a_->instances().release(s);
        return over;
      });
    }
  }
}

/// Launches of many threads while others open and close regions: every launch is counted, and owned by an instance that
/// existed. (Under TSan: and nothing races.)
TEST_F(AttributionTest, ManyThreadsAtOnce) {
  constexpr std::uint32_t kThreads = 4, kEach = 5000;
  std::vector<std::thread> threads;
  std::atomic<std::uint32_t> ids{1};
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ThreadState* state = a_->acquire_thread();
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const bool owns = t % 2 == 0 && i % 8 < 6;
        if (t % 2 == 0 && i % 8 == 0) a_->push_region(*state, kDomain, region(0), i);
        const auto id = static_cast<CorrelationId>(ids.fetch_add(1));
        a_->launch(*state, id, kContext);
        if (i % 16 == 3) a_->launch_captured(*state);
        a_->launch_done(*state, id, false);
        if (owns && i % 8 == 5) a_->pop(*state, kDomain, [i] { return static_cast<Ticks>(i); });
      }
      a_->release_thread(*state, kEach);
    });
  }
  std::set<InstanceId> all;
  std::vector<InstanceId> live;
  const auto drain = [&] {
    for (const InstanceId id : published()) {
      live.push_back(id);
      EXPECT_TRUE(all.insert(id).second);
    }
    std::erase_if(live, [this](InstanceId id) {
      InstanceSlot& s = a_->instances().slot(id);
      const bool over = s.state.load(std::memory_order_acquire) == InstanceSlot::kClosed;
      if (over) a_->instances().release(s);
      return over;
    });
  };
  for (int round = 0; round < 200; ++round) {
    drain();
    std::this_thread::yield();
  }
  for (std::thread& t : threads) t.join();
  drain();
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(all.size(), kThreads / 2 * kEach / 8);
  const std::uint64_t captured = counters_.get(Counter::kLaunchesCaptured);
  EXPECT_EQ(a_->launches_seen() + captured, std::uint64_t{kThreads} * kEach);
  for (std::uint32_t i = 1; i < ids.load(); ++i) {
    const auto found = a_->map().record(static_cast<CorrelationId>(i));
    ASSERT_EQ(found.result, CorrelationMap::Lookup::kFound);
    ASSERT_TRUE(all.contains(static_cast<InstanceId>(found.owner)) || is_outside(found.owner) ||
                found.owner == LaunchOwner::kAmbiguous || found.owner == LaunchOwner::kNotALaunch);
  }
}

/// Launches of one thread and the products that their records get.
class ProductsTest : public AttributionTest {
 protected:
  CorrelationId launch_kernel(bool kernel = true, bool failed = false) {
    const auto id = static_cast<CorrelationId>(++correlation_);
    EXPECT_TRUE(a_->launch(*thread_, id, kContext, {}, kernel));
    a_->launch_done(*thread_, id, failed);
    return id;
  }
  static ProductWords product(std::uint64_t m) {
    Product p;
    p.m = m, p.n = 10, p.k = 100;
    return ProductWords(p);
  }
  ProductId number(std::uint64_t m) { return a_->products().number_of(product(m)); }
  ProductTag tag_of(CorrelationId id) { return a_->map().record(id).product; }

  ThreadState* thread_ = a_->acquire_thread();
};

TEST_F(ProductsTest, OneKernelOfACallCarriesItAndTheOthersBelongToIt) {
  const CorrelationId before = launch_kernel();
  ASSERT_TRUE(a_->begin_product(*thread_, product(5)));
  const CorrelationId set = launch_kernel(false), first = launch_kernel(), second = launch_kernel();
  a_->end_product(*thread_, false);
  const CorrelationId after = launch_kernel();
  EXPECT_FALSE(tag_of(before));
  EXPECT_FALSE(tag_of(set));  // a copy or a set is no kernel
  EXPECT_EQ(tag_of(first).word(), ProductTag::first_of(number(5)).word());
  EXPECT_EQ(tag_of(second).word(), ProductTag::first_of(number(5)).further().word());
  EXPECT_FALSE(tag_of(after));
  EXPECT_EQ(thread_->flop_asked, 2.0 * 5 * 10 * 100);
}

TEST_F(ProductsTest, OfNestedCallsTheOutermostCounts) {
  ASSERT_TRUE(a_->begin_product(*thread_, product(5)));
  EXPECT_FALSE(a_->begin_product(*thread_, product(6)));
  EXPECT_EQ(tag_of(launch_kernel()).product(), number(5));
  a_->end_product(*thread_, false);
  ASSERT_TRUE(a_->begin_product(*thread_, product(6)));
  EXPECT_TRUE(tag_of(launch_kernel()).first());
  a_->end_product(*thread_, false);
  EXPECT_EQ(thread_->flop_asked, 2.0 * (5 + 6) * 10 * 100);
}

TEST_F(ProductsTest, AFailedCallCountsNothing) {
  ASSERT_TRUE(a_->begin_product(*thread_, product(5)));
  a_->end_product(*thread_, true);  // it launched nothing
  ASSERT_TRUE(a_->begin_product(*thread_, product(6)));
  const CorrelationId first = launch_kernel();
  a_->end_product(*thread_, true);
  EXPECT_EQ(tag_of(first).product(), ProductTable::kFull);  // of unknown size
  EXPECT_EQ(thread_->flop_asked, 0);
  ASSERT_TRUE(a_->begin_product(*thread_, product(7)));
  const CorrelationId failed = launch_kernel(true, true), good = launch_kernel();
  a_->end_product(*thread_, false);
  EXPECT_FALSE(tag_of(failed));
  EXPECT_EQ(tag_of(good).word(), ProductTag::first_of(number(7)).word());
  EXPECT_EQ(thread_->flop_asked, 2.0 * 7 * 10 * 100);
}

TEST_F(ProductsTest, AThreadThatTakesOverAStateIsInsideOfNoCall) {
  ASSERT_TRUE(a_->begin_product(*thread_, product(5)));
  a_->release_thread(*thread_, ++now_);
  thread_ = a_->acquire_thread();
  EXPECT_FALSE(tag_of(launch_kernel()));
}

}  // namespace
}  // namespace mfu

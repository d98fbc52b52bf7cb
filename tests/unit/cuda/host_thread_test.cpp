// Ranges that opened before the library was ready: regions where there was no CUDA before, and none where there was.
#include "cuda/host_thread.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace mfu {
namespace {

struct Links {
  std::vector<std::string> warnings;
  Counters counters;
  RegionRules rules{{}, {}, warnings};
  RuleCache names{rules};
  Attribution attribution{counters};
  HostLinks links{&attribution, &rules, &names, 0};
};

HostThread with_early(Ticks outer, Ticks inner) {
  HostThread thread;
  for (const auto& [name, opened] : {std::pair{"step", outer}, std::pair{"prefill", inner}}) {
    EarlyRange& range = thread.early[thread.early_depth++];
    range.opened = opened;
    std::strcpy(range.name, name);
  }
  return thread;
}

TEST(EarlyRanges, BeforeThereWasCuda) {
  const auto all = std::make_unique<Links>();
  HostThread thread = with_early(100, 200);
  adopt_early_ranges(thread, all->links);
  ASSERT_NE(thread.state, nullptr);
  EXPECT_EQ(thread.state->stack.depth(), 2u);
  EXPECT_NE(thread.state->innermost.load(), 0u);
}

TEST(EarlyRanges, BeforeALateStartWasReady) {
  const auto all = std::make_unique<Links>();
  all->links.ready = 150;
  HostThread thread = with_early(100, 120);
  adopt_early_ranges(thread, all->links);
  ASSERT_NE(thread.state, nullptr);
  EXPECT_EQ(thread.state->stack.depth(), 2u) << "their ends still come";
  EXPECT_EQ(thread.state->innermost.load(), 0u);
}

/// The inner one waited for the start: all that it launches is seen.
TEST(EarlyRanges, AfterALateStartWasReady) {
  const auto all = std::make_unique<Links>();
  all->links.ready = 150;
  HostThread thread = with_early(100, 160);
  adopt_early_ranges(thread, all->links);
  ASSERT_NE(thread.state, nullptr);
  const std::uint32_t inner = thread.state->innermost.load();
  EXPECT_NE(inner, 0u);
  all->attribution.pop(*thread.state, DomainId::kDefault, [] { return Ticks{300}; });
  EXPECT_EQ(thread.state->innermost.load(), 0u) << "nothing counts around it";
}

}  // namespace
}  // namespace mfu

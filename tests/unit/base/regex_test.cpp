#include "core/base/regex.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/edit_distance.h"

namespace mfu {
namespace {

TEST(NamePattern, FindsAnywhere) {
  auto pattern = NamePattern::compile("flash_(fwd|bwd)_v[23]$");
  ASSERT_TRUE(pattern.ok()) << pattern.error().message;
  EXPECT_TRUE(pattern->matches("void flash_fwd_v3"));
  EXPECT_FALSE(pattern->matches("void flash_fwd_v3<float>"));
  EXPECT_FALSE(pattern->matches(""));
}

TEST(NamePattern, AnErrorHasItsPlace) {
  const auto pattern = NamePattern::compile("a[b");
  ASSERT_FALSE(pattern.ok());
  EXPECT_EQ(pattern.error().message,
            "expected a regular expression, got \"a[b\": missing terminating ] for character class at character 3");
}

TEST(NamePattern, AnEndlessExpressionGivesUp) {
  auto pattern = NamePattern::compile("(a+)+$");
  ASSERT_TRUE(pattern.ok());
  EXPECT_FALSE(pattern->matches(std::string(60, 'a') + "b"));
  EXPECT_EQ(pattern->gave_up(), 1u);
}

TEST(EditDistance, CountsChangesAndSwaps) {
  EXPECT_EQ(edit_distance("forward", "forward"), 0u);
  EXPECT_EQ(edit_distance("forwrad", "forward"), 1u);
  EXPECT_EQ(edit_distance("forwar", "forward"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

}  // namespace
}  // namespace mfu

#include "core/base/edit_distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace mfu {
namespace {

/// By definition, from the last letters on.
std::size_t defined_distance(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::string a_shorter = a.substr(0, a.size() - 1), b_shorter = b.substr(0, b.size() - 1);
  std::size_t least = std::min({defined_distance(a_shorter, b) + 1, defined_distance(a, b_shorter) + 1,
                                defined_distance(a_shorter, b_shorter) + (a.back() == b.back() ? 0 : 1)});
  if (a.size() > 1 && b.size() > 1 && a.back() == b[b.size() - 2] && a[a.size() - 2] == b.back())
    least = std::min(least, defined_distance(a.substr(0, a.size() - 2), b.substr(0, b.size() - 2)) + 1);
  return least;
}

std::vector<std::string> short_words(const std::string& letters, std::size_t longest) {
  std::vector<std::string> all = {""};
  for (std::size_t i = 0; all[i].size() < longest; ++i)
    for (const char c : letters) all.push_back(all[i] + c);
  return all;
}

TEST(EditDistance, CountsInsertionsDeletionsChangesAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("interval", "interval"), 0u);
  EXPECT_EQ(edit_distance("intervall", "interval"), 1u);
  EXPECT_EQ(edit_distance("MFU_INTREVAL", "MFU_INTERVAL"), 1u);
  EXPECT_EQ(edit_distance("MFU_LOG", "MFU_LOG_RANKS"), 6u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("forward", "forward"), 0u);
  EXPECT_EQ(edit_distance("forwrad", "forward"), 1u);
  EXPECT_EQ(edit_distance("forwar", "forward"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

/// What two words begin and end with is cut off before: swaps across that edge must count as before.
TEST(EditDistance, IsThatOfTheDefinitionForAllShortWords) {
  for (const std::string& letters : {std::string("ab"), std::string("abc")}) {
    const std::vector<std::string> all = short_words(letters, letters.size() == 2 ? 5 : 4);
    for (const std::string& a : all)
      for (const std::string& b : all) ASSERT_EQ(edit_distance(a, b), defined_distance(a, b)) << a << " " << b;
  }
}

}  // namespace
}  // namespace mfu

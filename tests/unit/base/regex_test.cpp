#include "core/base/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

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

TEST(Regex, WholeMeansWhole) {
  const auto regex = Regex::compile("a|ab", Regex::Where::kWhole);
  ASSERT_TRUE(regex.ok());
  EXPECT_EQ(regex->match("ab", 1000), Regex::Outcome::kMatch);
  EXPECT_EQ(regex->match("abc", 1000), Regex::Outcome::kNoMatch);
  EXPECT_EQ(regex->match("", 1000), Regex::Outcome::kNoMatch);
  const auto dot = Regex::compile("a.*", Regex::Where::kWhole);
  EXPECT_EQ(dot->match("a\nb", 1000), Regex::Outcome::kMatch);
}

TEST(Regex, GroupsByNumberAndName) {
  const auto regex = Regex::compile(R"((?P<b>\d+)x(?P<s>\d+)(?: (?P<b>\d+))?)", Regex::Where::kWhole);
  ASSERT_TRUE(regex.ok()) << regex.error().message;
  ASSERT_EQ(regex->groups().size(), 3u);
  Regex::Groups texts;
  EXPECT_EQ(regex->match("8x512", 1000, &texts), Regex::Outcome::kMatch);
  EXPECT_EQ(texts[1], "8");
  EXPECT_EQ(texts[2], "512");
  EXPECT_EQ(texts[3].data(), nullptr) << "it took no part";
  EXPECT_EQ(texts[99], "");
}

TEST(Regex, GivesUpAfterItsSteps) {
  const auto regex = Regex::compile("(a+)+b", Regex::Where::kWhole);
  ASSERT_TRUE(regex.ok());
  const std::string name = std::string(200, 'a') + "b";  // without the b it is known at once that nothing matches
  EXPECT_EQ(regex->match(name + "x", 1000), Regex::Outcome::kGaveUp);
  EXPECT_EQ(regex->match(name, 100'000), Regex::Outcome::kMatch);
}

TEST(Regex, MoreGroupsThanThereIsRoomFor) {
  std::string expression, name;
  for (int i = 0; i < 60; ++i) expression += "(.)", name += static_cast<char>('A' + i);
  const auto regex = Regex::compile(expression, Regex::Where::kWhole);
  ASSERT_TRUE(regex.ok());
  Regex::Groups texts;
  EXPECT_EQ(regex->match(name, 1000, &texts), Regex::Outcome::kMatch);
  EXPECT_EQ(texts[0], name);
  EXPECT_EQ(texts[31], name.substr(30, 1));
  EXPECT_EQ(texts[32], "");
}

TEST(Regex, ManyThreadsAtOnce) {
  const auto regex = Regex::compile(R"(step (\d+))", Regex::Where::kWhole);
  std::vector<std::thread> threads;
  for (int t = 0; t < 24; ++t) {
    threads.emplace_back([&regex, t] {
      for (int i = 0; i < 500; ++i) {
        const std::string number = std::to_string(t * 1000 + i), name = "step " + number;
        Regex::Groups texts;
        ASSERT_EQ(regex->match(name, 1000, &texts), Regex::Outcome::kMatch);
        ASSERT_EQ(texts[1], number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mfu

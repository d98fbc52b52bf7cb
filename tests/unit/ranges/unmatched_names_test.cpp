#include "core/ranges/unmatched_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "core/ranges/rule_cache.h"

namespace mfu {
namespace {

RegionRule rule(const char* region, const char* match) {
  RegionRule r;
  r.region = region;
  r.match = match;
  return r;
}

TEST(UnmatchedNames, AProposedRuleMatchesTheNameItWasMadeFor) {
  for (const std::string name : {"forward tokens=4096", "my_decode_17", "Trainer.step #12", "a\"b\\c", "x", "17",
                                 "fwd(pass) 3", "gen{1}", "naïve", "Iteration 12", "a.b.c"}) {
    const auto entry = nlohmann::json::parse(proposed_rule(name));
    std::vector<std::string> warnings;
    const RegionRules rules(
        {rule(entry["region"].get<std::string>().c_str(), entry["match"].get<std::string>().c_str())}, {"generic"},
        warnings);
    EXPECT_EQ(warnings.size(), 0u) << name;
    EXPECT_NE(rules.match("", name), RuleId::kNone) << name << ": " << entry;
    EXPECT_TRUE(rules.is_of_config(rules.match("", name))) << name;
  }
}

TEST(UnmatchedNames, RegionsAreNamedAsTheCountsKnowThem) {
  EXPECT_EQ(proposed_rule("forward tokens=4096"), R"({"region": "forward", "match": "forward.*"})");
  EXPECT_EQ(proposed_rule("my_decode_17"), R"({"region": "decode", "match": "my_decode_.*"})");
  EXPECT_EQ(proposed_rule("TrainLoop"), R"({"region": "step", "match": "TrainLoop"})");
}

TEST(UnmatchedNames, TheNoticeNamesWhatWasSeenAndWhatMatchedNone) {
  std::vector<std::string> warnings;
  const std::vector<RegionRule> own{rule("forward", "fwd.*")};
  const RegionRules rules(own, {}, warnings);
  RuleCache names(rules);
  EXPECT_EQ(unmatched_notice(names.unmatched(), own), "");  // nothing seen
  EXPECT_EQ(names.kind_of(DomainId{}, "", "forward tokens=4096").rule, RuleId::kNone);
  for (int i = 0; i < 1000; ++i) (void)names.kind_of(DomainId{}, "", "forward tokens=" + std::to_string(i)).rule;
  EXPECT_EQ(
      unmatched_notice(names.unmatched(), own),
      "no rule of the config matches a range; seen: \"forward tokens=4096\"; not matched by \"fwd.*\"; try this in "
      "\"regions\": {\"region\": \"forward\", \"match\": \"forward.*\"}");
  EXPECT_NE(names.kind_of(DomainId{}, "", "step").rule,
            RuleId::kNone);  // a built-in rule: the config's own still matches none
  EXPECT_NE(unmatched_notice(names.unmatched(), own), "");
  EXPECT_EQ(unmatched_notice(names.unmatched(), {}), "");
  EXPECT_NE(names.kind_of(DomainId{}, "", "fwd 1").rule, RuleId::kNone);
  EXPECT_EQ(unmatched_notice(names.unmatched(), own), "");
}

TEST(UnmatchedNames, AnExecutableOfXlaIsARegionByItsFunction) {
  const std::string name = "XlaModule:#prefix=jit(loss_fn),hlo_module=jit_loss_fn,program_id=7#";
  EXPECT_EQ(proposed_rule(name), R"({"region": "loss_fn", "match": ".*hlo_module=jit_loss_fn,.*"})");
  std::vector<std::string> warnings;
  const RegionRules rules({rule("loss_fn", ".*hlo_module=jit_loss_fn,.*")}, {}, warnings);
  EXPECT_NE(rules.match("TSL", name), RuleId::kNone);
  RuleCache names(rules);
  for (const char* compiles : {"XlaMemoryScheduler:#module=jit_loss_fn,program_id=7#", "XlaEmitLlvmIr:#module=jit_f#"})
    (void)names.kind_of(DomainId{}, "TSL", compiles).rule;
  EXPECT_EQ(unmatched_notice(names.unmatched(), {}), "");
}

TEST(UnmatchedNames, RangesOfLibrariesAreNoMissingRule) {
  std::vector<std::string> warnings;
  const RegionRules rules({}, {}, warnings);
  RuleCache names(rules);
  EXPECT_EQ(names.kind_of(DomainId{7}, "NCCL", "ncclAllReduce").rule, RuleId::kNone);
  EXPECT_EQ(unmatched_notice(names.unmatched(), {}), "");
}

TEST(UnmatchedNames, ManyNamesFromManyThreadsStayBounded) {
  UnmatchedNames seen;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&seen, t] {
      for (int i = 0; i < 1000; ++i) seen.add("", std::string(200, static_cast<char>('a' + t)) + std::to_string(i));
    });
  for (std::thread& thread : threads) thread.join();
  const auto names = seen.names();
  EXPECT_GE(names.size(), 1u);
  EXPECT_LE(names.size(), UnmatchedNames::kKept);
  for (const std::string& name : names) EXPECT_EQ(name.size(), UnmatchedNames::kLength);
}

}  // namespace
}  // namespace mfu

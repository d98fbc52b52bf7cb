// Which names become which regions, with which numbers, and that no expression or name can hurt.
#include "core/ranges/region_rules.h"

#include <gtest/gtest.h>

#include <time.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>

#include "core/base/regex.h"
#include "core/config/config.h"
#include "core/ranges/digit_dependence.h"
#include "core/ranges/rule_cache.h"

namespace mfu {
namespace {

struct Rules {
  std::vector<std::string> warnings;
  RegionRules rules;
  explicit Rules(const std::vector<RegionRule>& own = {}, const std::vector<std::string>& presets = {})
      : rules(own, presets, warnings) {}

  /// Region of a range name; empty: none.
  std::string region(std::string_view name, std::string_view domain = "") const {
    const RuleId rule = rules.match(domain, name);
    return rule == RuleId::kNone ? "" : rules.regions()[raw(rules.open(rule, name, nullptr).region)].name;
  }
  Shape shape(std::string_view name, const double* payload = nullptr) const {
    const RuleId rule = rules.match("", name);
    EXPECT_NE(rule, RuleId::kNone) << name;
    return rule == RuleId::kNone ? Shape{} : rules.open(rule, name, payload).shape.to_shape();
  }
};

RegionRule rule(std::string region, std::string match) {
  RegionRule r;
  r.region = std::move(region);
  r.match = std::move(match);
  return r;
}

TEST(RegionRules, BuiltInNames) {
  const Rules r;
  EXPECT_TRUE(r.warnings.empty());
  const std::pair<const char*, const char*> kNames[] = {
      {"step", "step"},
      {"step 12", "step"},
      {"step_12", "step"},
      {"step#12", "step"},
      {"train_step", "step"},
      {"training_step", "step"},
      {"global_step 3", "step"},
      {"iteration", "step"},
      {"iteration 100", "step"},
      {"iter", "step"},
      {"train_iter", "step"},
      {"train_iteration 5", "step"},
      {"step batch=8 seq_len=4096", "step"},
      {"ProfilerStep#17", "step"},
      {"prefill", "prefill"},
      {"prefill batch=4 seq_len=2048", "prefill"},
      {"LLM@prefill", "prefill"},
      {"LLM@prefill tok=100", "prefill"},
      {"prefill_batch", "prefill"},
      {"Prefill", "prefill"},
      {"decode", "decode"},
      {"decode 7", "decode"},
      {"LLM@decode_all", "decode"},
      {"LLM@decode_step", "decode"},
      {"LLM@decode_step 9", "decode"},
      {"decode[bs=16]", "decode"},
      {"Decode", "decode"},
      {"mixed_batch", "mixed"},
      {"step[decode bs=32]", "decode"},
      {"step[prefill bs=2 toks=4096]", "prefill"},
      {"step[mixed bs=66 ext=2048 dec=64]", "mixed"},
      {"step[idle]", "idle_pass"},
      {"step[DECODE bs=64 g_sqsq=64 g_sqsk=100032 g_sk=100032]", "decode"},
      {"step[EXTEND bs=1 toks=1025 c_sqsq=1050625 c_sqsk=1050625 c_sk=1025]", "prefill"},
      {"step[MIXED bs=66]", "mixed"},
      {"step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2048 c_sqsq=9 c_sqsk=9 g_sq=64 g_sk=65600 g_sqsq=64 g_sqsk=65600]",
       "mixed"},
      {"step[TARGET_VERIFY bs=8]", "verification"},
      {"step[DRAFT_EXTEND bs=8]", "draft"},
      {"step[IDLE bs=0]", "idle_pass"},
      {"step[3]", "step"},
      {"execute_new_4_cached_0", "prefill"},
      {"execute_new_0_cached_32", "decode"},
      {"execute_new_1_cached_7", "mixed"},
      {"execute_context_1(888_788544)_generation_0(0)", "prefill"},
      {"execute_context_0(0)_generation_32(32)", "decode"},
      {"execute_context_2(4096)_generation_0(0)", "prefill"},
      {"execute_context_2(4096)_generation_30(30)", "mixed"},
      {"execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk3200sqsq32sqsk3200)", "decode"},
      {"execute_64_context_1(sq64sk64sqsq4096sqsk4096)_generation_0(sq0sk0sqsq0sqsk0)", "prefill"},
      {"execute_65_context_1(sq64sk64sqsq4096sqsk4096)_generation_1(sq1sk9sqsq1sqsk9)", "mixed"},
      {"[Executor] _forward_step 12: 3 ctx reqs, 0 gen reqs", "prefill"},
      {"[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs", "decode"},
      {"[Executor] _forward_step 12: 3 ctx reqs, 8 gen reqs", "mixed"},
      {"_forward_step 12: 3 ctx reqs, 512 ctx tokens, 8 gen reqs", "mixed"},
      {"executeStep: 1 ctx reqs, 0 gen reqs, 77 ctx tokens", "prefill"},
  };
  for (const auto& [name, region] : kNames) EXPECT_EQ(r.region(name), region) << name;
}

TEST(RegionRules, NamesThatOnlyLookLikeIt) {
  const Rules r;
  for (const char* name : {"",
                           " ",
                           "optimizer_step",
                           "decoder_layer",
                           "prefill_cache_init",
                           "stepper",
                           "step_size",
                           "steps",
                           "Step",
                           "STEP",
                           "my prefill",
                           "predecode",
                           "decoder",
                           "decode_attention",
                           "decode_allreduce",
                           "prefilled",
                           "iterator",
                           "iterations",
                           "LLM@prefill_cache",
                           "LLM@decode_stepper",
                           "LLM@",
                           "ProfilerStep",
                           "ProfilerStep#",
                           "ProfilerStep#x",
                           "lr_scheduler.step",
                           "DeepSpeedEngine.step",
                           "Prefilling",
                           "Decoder",
                           "execute_context_x(0)_generation_1(1)",
                           "execute_context_1_generation_1",
                           "_forward_step",
                           "[Executor] _forward_step x: 1 ctx reqs, 2 gen reqs",
                           "gpu_model_runner: forward",
                           "forward",
                           "backward",
                           "layer_3",
                           "ncclAllReduce",
                           "bookkeeping",
                           "mtp-spec-decoding/verify",
                           "aten::step"})
    EXPECT_EQ(r.region(name), "") << name;
}

TEST(RegionRules, ExecutablesOfXlaAreNamedByTheirFunction) {
  const Rules r;
  EXPECT_EQ(r.region("XlaModule:#hlo_module=jit_train_step,program_id=12#", "TSL"), "step");
  EXPECT_EQ(r.region("XlaModule:#prefix=jit(train_step)/jit(main),hlo_module=jit_train_step,program_id=3#"), "step");
  EXPECT_EQ(r.region("TSL:XlaModule:#hlo_module=pmap_update,program_id=3#"), "step");
  EXPECT_EQ(r.region("XlaModule:#hlo_module=jit_eval_step,program_id=4#"), "eval");
  EXPECT_EQ(r.rules.regions()[static_cast<std::size_t>(r.rules.detected().eval)].phase, Phase::kForward);
  EXPECT_EQ(r.region("XlaModule:#hlo_module=jit__prefill_jit,program_id=4#"), "prefill");
  EXPECT_EQ(r.region("XlaModule:#hlo_module=jit_decode_step,program_id=4#"), "decode");
  for (const char* none :
       {"XlaModule:#hlo_module=jit_convert_element_type,program_id=2#",
        "XlaModule:#hlo_module=jit_with_sharding_constraint,program_id=9#",
        "XlaModule:#hlo_module=jit_retrieval,program_id=9#", "XlaModule:#hlo_module=jit_train_step",
        "XlaCompile:#module=jit_train_step,program_id=2#", "XlaModule:#hlo_module=jit__threefry_split,program_id=2#"})
    EXPECT_EQ(r.region(none), "") << none;
}

TEST(RegionRules, NumbersInNamesAreShapes) {
  const Rules r;
  Shape s = r.shape("prefill batch=4 seq_len=2048");
  EXPECT_EQ(s.batch, 4);
  EXPECT_EQ(s.seq_len, 2048);
  EXPECT_FALSE(s.context || s.new_tokens || s.tokens);
  s = r.shape("decode b=2 ctx=100 n=3 tok=6");
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.context, 100);
  EXPECT_EQ(s.new_tokens, 3);
  EXPECT_EQ(s.tokens, 6);
  s = r.shape("step,bs=8,s=128");
  EXPECT_EQ(s.batch, 8);
  EXPECT_EQ(s.seq_len, 128);
  s = r.shape("decode[bs=16]");
  EXPECT_EQ(s.batch, 16);
  s = r.shape("execute_context_2(4096)_generation_30(31)");
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.tokens, 4096);
  EXPECT_EQ(s.gen_batch, 30);
  EXPECT_EQ(s.gen_tokens, 31);
  s = r.shape("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk3232sqsq32sqsk3232)");
  EXPECT_EQ(s.batch, 32);
  EXPECT_EQ(s.tokens, 32);
  EXPECT_EQ(s.context, 100);
  s = r.shape("execute_64_context_2(sq64sk264sqsq2048sqsk8448)_generation_0(sq0sk0sqsq0sqsk0)");
  EXPECT_EQ(s.tokens, 64);
  EXPECT_EQ(s.context, 100) << "of each sequence, chunks before it";
  s = r.shape("execute_65_context_1(sq64sk64sqsq4096sqsk4096)_generation_1(sq1sk9sqsq1sqsk9)");
  EXPECT_EQ(s.gen_batch, 1);
  EXPECT_EQ(s.context, 8) << "of those that decode";
  EXPECT_EQ(s.ctx_context, 0);
  s = r.shape("execute_96_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq96sk3296sqsq288sqsk9888)");
  EXPECT_EQ(s.batch, 32);
  EXPECT_EQ(s.gen_tokens, 96) << "drafted ones among them";
  EXPECT_EQ(s.context, 100);
  s = r.shape("step[DECODE bs=64 g_sqsq=64 g_sqsk=100032 g_sk=100032]");
  EXPECT_EQ(s.batch, 64);
  EXPECT_EQ(s.context, 1562) << "100032 / 64 keys, of which one is new";
  s = r.shape("step[EXTEND bs=2 toks=1000 c_sqsq=9 c_sqsk=9 c_sk=1400]");
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.tokens, 1000);
  EXPECT_EQ(s.context, 200);
  s = r.shape("step[mixed bs=66 ext=2048 dec=64]");
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.tokens, 2048);
  EXPECT_EQ(s.gen_batch, 64);
  s = r.shape("step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2448 c_sqsq=9 c_sqsk=9 g_sq=65 g_sk=65600 g_sqsq=64 g_sqsk=9]");
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.ctx_context, 200);
  EXPECT_EQ(s.context, 1024);
  EXPECT_EQ(s.gen_batch, 64);
  EXPECT_EQ(s.gen_tokens, 65);
  s = r.shape("execute_context_1(888_788544)_generation_0(0)");
  EXPECT_EQ(s.tokens, 888);
  s = r.shape("execute_new_0_cached_32");
  EXPECT_EQ(s.batch, 32);
  s = r.shape("execute_context_0(0)_generation_30(30)");
  EXPECT_EQ(s.batch, 30);
  EXPECT_EQ(s.tokens, 30);
  EXPECT_FALSE(s.gen_batch);
  s = r.shape("[Executor] _forward_step 12: 3 ctx reqs, 512 ctx tokens, 8 gen reqs");
  EXPECT_EQ(s.batch, 3);
  EXPECT_EQ(s.tokens, 512);
  EXPECT_EQ(s.gen_batch, 8);
}

TEST(RegionRules, WordsThatAreNoNumbersAreLeftAlone) {
  const Rules r;
  for (const char* name :
       {"prefill batch=", "prefill batch=x", "prefill batch=-4", "prefill =4", "prefill rebatch=4", "prefill Batch=4",
        "prefill batch= 4", "prefill batch=99999999999999999999", "prefill batch"})
    EXPECT_FALSE(r.shape(name).batch) << name;
  EXPECT_EQ(r.shape("prefill batch=4 batch=9").batch, 4);  // the first one counts
  EXPECT_EQ(r.shape("prefill batch=4.5").batch, 4);
}

TEST(RegionRules, OwnRulesComeFirstInTheirOrder) {
  const Rules r({rule("warmup", "step [0-4]"), rule("late", "step.*")});
  EXPECT_EQ(r.region("step 3"), "warmup");
  EXPECT_EQ(r.region("step 30"), "late");
  EXPECT_EQ(r.region("prefill"), "prefill");
}

TEST(RegionRules, NamedGroupsAndConstants) {
  RegionRule own = rule("decode", R"(gen (?P<b>\d+)x(?P<context>\d+)(?: of (?P<nobody>\d+))?)");
  own.constants.new_tokens = 5;
  const Rules r({own});
  const Shape s = r.shape("gen 3x400 of 9");
  EXPECT_EQ(s.batch, 3);
  EXPECT_EQ(s.context, 400);
  EXPECT_FALSE(s.new_tokens);  // a constant is no word of the name
  EXPECT_EQ(r.rules.constants(r.rules.match("", "gen 3x400")).new_tokens, 5);
  EXPECT_FALSE(r.rules.constants(r.rules.match("", "step")).new_tokens);
}

TEST(RegionRules, PayloadIsTokensUnlessTheRuleNamesAnother) {
  RegionRule own = rule("decode", "gen.*");
  own.payload = "context";
  const Rules r({own});
  const double hundred = 100, negative = -1, huge = 1e30, none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(r.shape("gen", &hundred).context, 100);
  EXPECT_EQ(r.shape("prefill", &hundred).tokens, 100);
  EXPECT_EQ(r.shape("prefill tokens=7", &hundred).tokens, 7);  // the name was first
  for (const double* bad : {&negative, &huge, &none}) EXPECT_FALSE(r.shape("prefill", bad).tokens) << *bad;
}

TEST(RegionRules, DomainsRestrict) {
  RegionRule own = rule("gen", "go");
  own.domain = "LLM";
  const Rules r({own});
  EXPECT_EQ(r.region("go", "LLM"), "gen");
  EXPECT_EQ(r.region("go", ""), "");
  EXPECT_EQ(r.region("go", "LLM2"), "");
  EXPECT_EQ(r.region("step", "anything"), "step");  // built-in rules hold in every domain
}

TEST(RegionRules, PresetsChooseAmongThePacks) {
  const Rules r({}, {"pytorch"});
  EXPECT_EQ(r.region("ProfilerStep#3"), "step");
  EXPECT_EQ(r.region("prefill"), "prefill");  // generic is always there
  EXPECT_EQ(r.region("Prefill"), "");
  for (const auto& [name, region] : {std::pair{"DeepSpeedEngine.forward", "forward"},
                                     {"DeepSpeedEngine.backward", "backward"},
                                     {"DeepSpeedEngine.step", "optimizer"}}) {
    EXPECT_EQ(Rules().region(name), "") << name;
    EXPECT_EQ(Rules({}, {"deepspeed"}).region(name), region) << name;
  }
  const Rules odd({}, {"pytorsh"});
  ASSERT_EQ(odd.warnings.size(), 1u);
  EXPECT_EQ(odd.warnings[0],
            "presets: expected generic, pytorch, vllm, sglang, tensorrt_llm, megatron, deepspeed or jax, got "
            "\"pytorsh\"; ignored");
}

TEST(RegionRules, AnUnusableRuleIsNamedAndTheOthersWork) {
  RegionRule odd_payload = rule("x", "x");
  odd_payload.payload = "contxt";
  const Rules r({rule("bad", "step("), odd_payload, rule("good", "fine")});
  ASSERT_EQ(r.warnings.size(), 2u);
  EXPECT_EQ(
      r.warnings[0],
      "regions[0]: expected a regular expression, got \"step(\": missing closing parenthesis at character 5; this "
      "rule is left out");
  EXPECT_EQ(
      r.warnings[1],
      "regions[1]: payload: expected batch, seq_len, context, new_tokens or tokens, got \"contxt\"; this rule is left "
      "out");
  EXPECT_EQ(r.region("fine"), "good");
}

TEST(RegionRules, MoreThan256RulesAreLeftOut) {
  std::vector<RegionRule> many;
  for (int i = 0; i < 300; ++i) many.push_back(rule("r" + std::to_string(i), "name" + std::to_string(i)));
  const Rules r(many);
  EXPECT_EQ(r.region("name255"), "r255");
  EXPECT_EQ(r.region("name256"), "");
  EXPECT_GE(r.warnings.size(), 44u);
}

TEST(RegionRules, AnExpressionThatExplodesGivesUpInTime) {
  const Rules r({rule("bad", "(a+)+b"), rule("worse", "(?:(?:x*)*)*y")});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(r.region(std::string(RuleCache::kMaxLength, 'a')), "");
  EXPECT_EQ(r.region(std::string(RuleCache::kMaxLength, 'x')), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));  // for ever, without a limit
}

TEST(RegionRules, ManyThatExplodeShareOneBudget) {
  std::vector<RegionRule> many;
  for (int i = 0; i < 254; ++i) many.push_back(rule("bad" + std::to_string(i), "((a|aa)+)+c"));
  many.push_back(rule("good", "a+cx"));
  Rules r(many);
  const auto cpu = [] {
    ::timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  };
  const double begin = cpu();
  EXPECT_EQ(r.region(std::string(200, 'a') + "cx"), "good");
  EXPECT_LT(cpu() - begin, 20) << "ms; 56 ms and more where each rule has 20,000 steps of its own";
  EXPECT_TRUE(r.rules.take_dropped().empty()) << "once is no reason";
  for (int i = 1; i < 5; ++i) EXPECT_EQ(r.region(std::string(200 + i, 'a') + "cx"), "good");
  const auto dropped = r.rules.take_dropped();
  ASSERT_EQ(dropped.size(), 254u);
  EXPECT_EQ(dropped[0], "regions[0]: \"((a|aa)+)+c\" takes too many steps on the names it meets; this rule is dropped");
  EXPECT_TRUE(r.rules.take_dropped().empty()) << "said once";
  EXPECT_EQ(r.region("step"), "step") << "the others go on";
}

TEST(RegionRules, AnHonestExpressionMayTakeManySteps) {
  const Rules r({rule("mine", R"((?:\w+[ .:/-]?)*batch=(?P<batch>\d+).*)")});
  EXPECT_EQ(r.region("model.layers.31/self_attn:forward batch=8 of the run"), "mine");
}

TEST(RegionRules, NamesOfAnyLengthAndBytes) {
  const Rules r;
  EXPECT_EQ(r.region("step " + std::string(64 << 10, 'x')), "step");
  EXPECT_EQ(r.region(std::string(64 << 10, 's')), "");
  EXPECT_EQ(r.region("step \xff\xfe\x80 batch=3"), "step");
  EXPECT_EQ(r.shape("step \xff\xfe\x80 batch=3").batch, 3);
  EXPECT_EQ(r.region("\xc3"), "");
  EXPECT_EQ(r.region(std::string_view("step\0hidden", 11)), "");
}

TEST(RuleCache, CutsLongNamesAndSurvivesUnterminatedOnes) {
  const std::string longest(64 << 10, 'p');
  EXPECT_EQ(RuleCache::cut(longest.c_str()).size(), RuleCache::kMaxLength);
  EXPECT_EQ(RuleCache::cut(std::string().c_str()).size(), 0u);
  EXPECT_EQ(RuleCache::cut(std::string("decode").c_str()).size(), 6u);
}

TEST(RuleCache, AnswersAsTheRulesDoWhateverIsCached) {
  const Rules r({rule("first", "layer [0-3]"), rule("odd", R"(lane \d*[13579])")});
  RuleCache names(r.rules);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 40'000; i += 7) {  // more names than entries: they push each other out
      for (const std::string& name : {"layer " + std::to_string(i % 50), "lane " + std::to_string(i),
                                      "step " + std::to_string(i), "x" + std::to_string(i)}) {
        ASSERT_EQ(raw(names.kind_of(DomainId::kDefault, "", name).rule), raw(r.rules.match("", name))) << name;
      }
    }
  }
}

/// A range without a shape, as the cache says, has none where its name is read; it says so of the usual names.
TEST(RuleCache, KnowsNamesThatGiveNoShape) {
  RegionRule grouped = rule("grouped", R"(run (?P<batch>\d+))");
  const Rules r({grouped, rule("plain", "walk.*")});
  RuleCache names(r.rules);
  for (int round = 0; round < 2; ++round) {
    for (const std::string name : {"step", "decode", "decode batch=8 context=4096", "prefill tokens=7", "forward",
                                   "run 3", "walk", "walk =", "walk batch=2", "execute_context_2(7)_generation_3(3)",
                                   "execute_new_1_cached_2", "ProfilerStep#5", "decode[bs=4]", "x=1"}) {
      const MatchedRange kind = names.kind_of(DomainId::kDefault, "", name);
      if (kind.rule == RuleId::kNone) continue;
      EXPECT_EQ(MatchedRange::of(kind.word()).without_shape, kind.without_shape);
      const RegionOpening opening = r.rules.open(kind.rule, name, nullptr);
      EXPECT_EQ(kind.without_shape, opening.shape.given == 0 && name.find('=') == std::string::npos) << name;
      if (!kind.without_shape) continue;
      EXPECT_EQ(r.rules.region_of(kind.rule), opening.region) << name;
    }
  }
}

TEST(RuleCache, KeepsDomainsApart) {
  RegionRule own = rule("gen", "go");
  own.domain = "LLM";
  const Rules r({own});
  RuleCache names(r.rules);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(names.kind_of(static_cast<DomainId>(1), "LLM", "go").rule, RuleId::kNone);
    EXPECT_EQ(names.kind_of(static_cast<DomainId>(2), "other", "go").rule, RuleId::kNone);
    EXPECT_EQ(names.kind_of(DomainId::kDefault, "", "go").rule, RuleId::kNone);
  }
}

/// Names that differ in their digits only may share an answer: never where the rules tell them apart.
TEST(RuleCache, DigitsMatterWhereARuleLooksAtThem) {
  const char* kSensitive[] = {"step 1.*",
                              R"(step \d)",
                              R"(step \d{2})",
                              "step .",
                              R"(step \w)",
                              "step [[:digit:]]",
                              R"(step \d+\d+)",
                              "step [1-9]+",
                              "step [^a]",
                              R"(step \d*\d+)",
                              "step [!-z]",
                              R"(step \d+5?)",
                              R"(step (\d)+\d)",
                              R"(step .+.+)",
                              R"((?!step 1)step \d+)",
                              R"(step \d?)",
                              R"(step \x31)",
                              R"(step (?:a|\d)(?:\d+)?)",
                              R"(step \d+(?:x)?\d+)"};
  for (const char* expression : kSensitive) {
    const Rules r({rule("own", expression)});
    ASSERT_TRUE(r.warnings.empty()) << expression;
    RuleCache names(r.rules);
    for (const char* name : {"step 2", "step 1", "step 15", "step 215", "step 33x", "step 7"})
      EXPECT_EQ(raw(names.kind_of(DomainId::kDefault, "", name).rule), raw(r.rules.match("", name)))
          << expression << " on " << name;
  }
  EXPECT_TRUE(Rules().rules.digits_do_not_matter());
  for (const char* expression :
       {"LLM@decode.*", R"(batch \d+)", R"(b\d+_s\d+.*)", R"((?P<b>\d+) of [0-9]+ x \d+)", "a|b"})
    EXPECT_TRUE(Rules({rule("own", expression)}).rules.digits_do_not_matter()) << expression;
}

/// Expressions made of random pieces: one that is said not to depend on digits treats all runs of them alike.
TEST(DigitDependence, NeverDeniedWhereThereIsOne) {
  for (const char* expression : {R"((?:\d+a\d+)+)", R"((?:\d+a\d+)*)", R"(\d+a?\d+)", R"((?:a|\d+)\d+)", R"(\d{1,}a)"})
    EXPECT_TRUE(depends_on_digits(expression)) << expression;
  constexpr const char* kPieces[] = {R"(\d+)", R"(\d+)", "[0-9]+", "a",      "b",     "-",     " ",      R"(\()",
                                     R"(\.)",  "(",      "(?:",    "(?P<n>", ")",     ")?",    ")*",     ")+",
                                     "|",      "?",      "*",      "+",      ".*",    ".",     "[ab]",   "[]a",
                                     "[",      "]",      "[!-z]",  "[^a]",   "1",     "{2}",   R"(\d)",  R"(\w)",
                                     R"(\b)",  "^",      "$",      "(?=",    "(?<!a", R"(\1)", "(?P=n)", "a*"};
  constexpr const char* kNames[] = {"#", "a#", "#a", "#b#", "a#b", "#a#a", "#-#", "# #", "#(#", "a#a#", "#.#", "#ab#"};
  std::mt19937 random(20);
  int independent = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string expression;
    for (unsigned n = 1 + random() % 6; n > 0; --n) expression += kPieces[random() % std::size(kPieces)];
    if (depends_on_digits(expression)) continue;
    const auto regex = Regex::compile(expression, Regex::Where::kWhole);
    if (!regex) continue;
    ++independent;
    for (const std::string_view name : kNames) {
      std::optional<Regex::Outcome> first;
      for (const char* digits : {"1", "0", "42", "777"}) {
        std::string filled;
        for (const char c : name) filled += c == '#' ? digits : std::string(1, c);
        const Regex::Outcome outcome = regex->match(filled, 20'000);
        EXPECT_EQ(outcome, first.value_or(outcome)) << expression << " on " << filled;
        first = outcome;
      }
    }
  }
  EXPECT_GT(independent, 3000);
}

}  // namespace
}  // namespace mfu

// Executed FLOP, shapes that products give away, bounds, components and findings: against a made transformer, whose
// FLOP are counted by hand, and against brute-force sums.
#include "core/account/executed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "core/account/ledger.h"
#include "core/config/config.h"
#include "core/rows/region_totals.h"
#include "made_transformer.h"
#include "tests/unit/account/made_windows.h"

namespace mfu {
namespace {

constexpr double kPeak = 1e15;

class Executed : public testing::Test {
 protected:
  void SetUp() override { start(MadeTransformer::config()); }

  /// \param window_ns so long by default that there is one.
  void start(const std::string& config, DurationNs window_ns = 1000 * kNsPerSecond, bool watched = true) {
    windows_.clear();
    auto read = load_config_file(config, [](const char*) -> const char* { return nullptr; });
    ASSERT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message);
    config_ = std::make_unique<Config>(*read);
    names_ = std::make_unique<KernelNames>(counters_);
    products_ = std::make_unique<ProductTable>();
    std::vector<std::string> warnings;
    rules_ = std::make_unique<RegionRules>(config_->regions, std::vector<std::string>{}, warnings);
    LedgerOptions options;
    options.origin_ns = kOrigin;
    options.window_ns = window_ns;
    ledger_ = std::make_unique<Ledger>(*rules_, config_->flops_model(), config_->workload, *names_, counters_, options,
                                       [this](WindowSummary&& w) { windows_.push_back(std::move(w)); });
    if (watched) ledger_->watch_products(*products_);
    peak_ = Peak{};
    peak_.flop_per_s = kPeak;
    peak_.bytes_per_s = 3e12;
    peak_.by_dtype.fill(kPeak);
    ledger_->set_peak(0, peak_);
    made_ = MadeTransformer{};
    made_.products = products_.get();
    made_.names = names_.get();
    made_.at = kOrigin + 1000;
    made_.give = [this](const ActivityRecord& r) { ledger_->add(r, owner_, true); };
  }
  /// A range of this name around the work.
  template <typename Work>
  void in_range(const std::string& name, Work work) {
    InstanceSlot slot;
    slot.id = static_cast<InstanceId>(++ids_);
    slot.kind = kind_;
    slot.opener = static_cast<ThreadSerial>(1);
    const RegionOpening opening = rules_->open(rules_->match("", name), name, nullptr);
    slot.region = opening.region;
    slot.rule = opening.rule;
    slot.shape = opening.shape;
    ledger_->open(slot, made_.at, work_);
    // The CPU is ahead: the range is over before the work is.
    ledger_->close(slot, made_.at + 10, 0);
    owner_ = slot.id;
    work();
    owner_ = InstanceId::kNone;
    made_.at += 500;
  }
  RegionSummary finish(const std::string& region = "step") {
    ledger_->finish(made_.at);
    for (const RegionSummary& r : windows_.back().regions)
      if (r.region == region) return r;
    ADD_FAILURE() << "no region " << region;
    return {};
  }
  static const Component* find(const RegionSummary& r, const std::string& name, const std::string& pass) {
    for (const Component& c : r.components)
      if (c.name == name && c.pass == pass) return &c;
    return nullptr;
  }
  static std::string finding(const RegionSummary& r, const std::string& kind) {
    for (const Finding& f : r.findings)
      if (f.kind == kind) return f.text;
    return "";
  }

  Counters counters_;
  std::unique_ptr<Config> config_;
  std::unique_ptr<KernelNames> names_;
  std::unique_ptr<ProductTable> products_;
  std::unique_ptr<RegionRules> rules_;
  std::unique_ptr<Ledger> ledger_;
  std::vector<WindowSummary> windows_;
  Peak peak_;
  MadeTransformer made_;
  InstanceId owner_ = InstanceId::kNone;
  std::uint32_t ids_ = 0;
  InstanceKind kind_ = InstanceKind::kThread;
  const DetectedWork* work_ = nullptr;
};

TEST_F(Executed, AStepWithoutAShapeIsCountedExactlyByItsProducts) {
  for (const auto attention : {MadeTransformer::Attention::kFlash2, MadeTransformer::Attention::kFlash3,
                               MadeTransformer::Attention::kBatched}) {
    for (const int passes : {1, 3}) {
      start(MadeTransformer::config());
      made_.attention = attention;
      for (int i = 0; i < 3; ++i) in_range("step", [&] { made_.step(4, 256, passes); });
      const double by_hand = 3 * made_.step_flop(4, 256, passes);
      const RegionSummary r = finish();
      ASSERT_TRUE(r.flop);
      EXPECT_NEAR(*r.flop, by_hand, 1e-9 * by_hand);
      EXPECT_EQ(r.flop_source, FlopSource::kDetected);
      EXPECT_EQ(r.tokens, 3 * 4 * 256 * passes);
      EXPECT_NEAR(*r.mfu, by_hand / (kPeak * seconds(r.elapsed_ns)), 1e-12);
      EXPECT_FALSE(r.mfu_lower);
      ASSERT_TRUE(r.executed);
      EXPECT_NEAR(r.executed->flop, made_.product_flop + made_.attention_flop, 1e-6 * r.executed->flop);
      EXPECT_EQ(r.executed->matmul_ns, static_cast<DurationNs>(made_.gemm_ns + made_.attention_ns));
      EXPECT_DOUBLE_EQ(r.executed->coverage(), 1);
      // The ideal time is in whole ns.
      EXPECT_NEAR(*r.hfu, r.executed->flop / (kPeak * seconds(r.elapsed_ns)), 1.0 / static_cast<double>(r.elapsed_ns));
      EXPECT_TRUE(ledger_->take_notices().empty());
      EXPECT_TRUE(r.suspect.empty()) << r.suspect;
      EXPECT_TRUE(r.findings.empty()) << r.findings.front().text;
    }
  }
}

TEST_F(Executed, WhatARangeOrTheConfigSaysComesFirst) {
  in_range("step batch=2 seq_len=128", [&] { made_.step(4, 256); });
  EXPECT_NEAR(*finish().flop, made_.step_flop(2, 128), 1);
  EXPECT_EQ(windows_.back().regions.front().flop_source, FlopSource::kShape);
  start(MadeTransformer::config(R"("workload": {"batch": 4, "seq_len": 256})"));
  in_range("step", [&] { made_.step(4, 256); });
  const RegionSummary r = finish();
  EXPECT_NEAR(*r.flop, made_.step_flop(4, 256), 1);
  EXPECT_EQ(r.flop_source, FlopSource::kConfig);
}

/// The micro-batch is in the config, and the passes are not: products say how many.
/// torch.profiler calls each turn of its schedule a step, whether it trains or not.
TEST_F(Executed, AProfiledTurnWithoutABackwardPassIsAForwardPass) {
  for (const auto attention : {MadeTransformer::Attention::kFlash2, MadeTransformer::Attention::kBatched}) {
    for (const char* range : {"ProfilerStep#3", "step"}) {
      start(MadeTransformer::config());
      made_.attention = attention;
      for (int turn = 0; turn < 2; ++turn) in_range(range, [&] { made_.pass_forward(4, 256, 4 * 256); });
      // A step of a whole training pass is three times as much (backward twice the forward).
      const double forward = 2 * made_.step_flop(4, 256) / 3;
      const bool profiled = std::string(range) != "step";
      EXPECT_NEAR(*finish().flop, profiled ? forward : 3 * forward, 1e-9 * forward) << range;
      const std::vector<std::string> notices = ledger_->take_notices();
      ASSERT_EQ(notices.size(), profiled ? 1u : 0u);
      if (!profiled) continue;
      EXPECT_NE(notices[0].find("no backward pass ran"), std::string::npos) << notices[0];
    }
  }
  start(MadeTransformer::config());
  in_range("ProfilerStep#3", [&] { made_.step(4, 256); });
  EXPECT_NEAR(*finish().flop, made_.step_flop(4, 256), 1e-9 * made_.step_flop(4, 256));
}

TEST_F(Executed, PassesOfAStepAreSeen) {
  start(MadeTransformer::config(R"("workload": {"batch": 4, "seq_len": 256})"));
  in_range("step", [&] { made_.step(4, 256, 4); });
  EXPECT_NEAR(*finish().flop, made_.step_flop(4, 256, 4), 1);
  // Here the config counts all of them.
  start(MadeTransformer::config(R"("workload": {"batch": 16, "seq_len": 256})"));
  in_range("step", [&] { made_.step(4, 256, 4); });
  EXPECT_NEAR(*finish().flop, made_.step_flop(16, 256), 1);
}

TEST_F(Executed, WithoutALengthThereIsABound) {
  made_.attention = MadeTransformer::Attention::kCudnn;
  in_range("step", [&] { made_.step(4, 256); });
  const RegionSummary r = finish();
  EXPECT_FALSE(r.mfu);
  ASSERT_TRUE(r.mfu_lower);
  const double without_attention = made_.step_flop(4, 256) - 3.0 * 4 * made_.core(4, 256);
  EXPECT_NEAR(*r.mfu_lower, without_attention / (kPeak * seconds(r.elapsed_ns)), 1e-9);
  EXPECT_EQ(r.flop_source, FlopSource::kLowerBound);
  EXPECT_EQ(r.tokens, 1024);
  const std::vector<std::string> notices = ledger_->take_notices();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].find("no MFU"), std::string::npos) << notices[0];
  EXPECT_NE(notices[0].find("bound"), std::string::npos) << notices[0];
  // Attention's FLOP are not known, so its time is not covered.
  EXPECT_NEAR(r.executed->coverage(), made_.gemm_ns / (made_.gemm_ns + made_.attention_ns), 1e-9);
}

TEST_F(Executed, WithoutAConfigHfuAndABound) {
  for (const bool recompute : {false, true}) {
    start(R"({"workload": {"phase": "train"}})");
    made_.attention = MadeTransformer::Attention::kBatched;
    made_.recompute = recompute;
    in_range("step", [&] { made_.step(4, 256); });
    const RegionSummary r = finish();
    EXPECT_FALSE(r.mfu);
    ASSERT_TRUE(r.executed && r.hfu && r.mfu_lower);
    EXPECT_DOUBLE_EQ(r.executed->coverage(), 1);
    EXPECT_NEAR(r.executed->flop, made_.product_flop, 1);
    EXPECT_NEAR(*r.hfu, made_.product_flop / (kPeak * seconds(r.elapsed_ns)), 1.0 / static_cast<double>(r.elapsed_ns));
    // Recomputation does not count, attention neither.
    const double once = made_.step_flop(4, 256) - 3.0 * 4 * made_.core(4, 256);
    EXPECT_NEAR(*r.mfu_lower * kPeak * seconds(r.elapsed_ns), once, 1e-6 * once);
    EXPECT_EQ(r.flop_source, FlopSource::kLowerBound);
    EXPECT_NE(find(r, "512x1536", "fwd"), nullptr);
  }
}

/// Queries, keys, heads and their width are in names and grids; where they are not for sure, attention is not seen.
/// Muon multiplies matrices. A range of that name may hold anything.
TEST_F(Executed, ProductsOfAnUpdateAreNoModelFlop) {
  DetectedWork reported;
  reported.by_interpreter = true;
  for (const bool interpreter : {true, false}) {
    start(R"({"workload": {"phase": "train"}, "regions": [{"region": "optimizer", "match": "optimizer"}]})");
    made_.attention = MadeTransformer::Attention::kBatched;
    kind_ = interpreter ? InstanceKind::kDetected : InstanceKind::kThread;
    work_ = interpreter ? &reported : nullptr;
    in_range("optimizer", [&] { made_.step(4, 256); });
    const RegionSummary r = finish("optimizer");
    ASSERT_TRUE(r.hfu);
    EXPECT_EQ(r.mfu_lower.has_value(), !interpreter);
    EXPECT_EQ(r.flop_source, interpreter ? FlopSource::kExecuted : FlopSource::kLowerBound);
  }
}

TEST_F(Executed, WithoutAConfigAttentionIsCountedByItsGrids) {
  for (const bool causal : {true, false}) {
    for (const std::uint64_t seq : {256, 250}) {  // 250 is no whole number of blocks: rows / sequences
      SCOPED_TRACE(seq);
      start(R"({"workload": {"phase": "train"}})");
      made_.causal = causal;
      made_.recompute = seq == 250;
      for (int i = 0; i < 2; ++i) in_range("step", [&] { made_.step(4, seq); });
      const RegionSummary r = finish();
      ASSERT_TRUE(r.executed && r.hfu && r.mfu_lower);
      EXPECT_NEAR(*r.mfu_lower * kPeak * seconds(r.elapsed_ns) / (2 * made_.step_flop(4, seq)), 1, 1e-9);
      EXPECT_NEAR(r.executed->flop, made_.product_flop + made_.attention_flop, 1e-9 * r.executed->flop);
      EXPECT_DOUBLE_EQ(r.executed->coverage(), 1);
      const Component* backward = find(r, "attention", "bwd");
      ASSERT_TRUE(backward != nullptr && backward->flop);
      EXPECT_NEAR(*backward->flop, 2 * 4 * 2.5 * made_.core(4, seq), 1e-9 * *backward->flop);
    }
  }
}

TEST_F(Executed, WithoutAConfigAttentionIsNotSeenWhereNothingSaysHowLongItIs) {
  const auto coverage = [&](const auto& work) {
    work();
    const RegionSummary r = finish();
    EXPECT_NEAR(r.executed->flop, made_.product_flop, 1e-9 * r.executed->flop);
    EXPECT_NEAR(r.executed->coverage(), made_.gemm_ns / (made_.gemm_ns + made_.attention_ns), 1e-9);
  };
  const auto again = [&] { start(R"({"workload": {"phase": "train"}})"); };
  for (const auto attention : {MadeTransformer::Attention::kFlash3, MadeTransformer::Attention::kCudnn}) {
    again();
    made_.attention = attention;
    coverage([&] { in_range("step", [&] { made_.step(4, 256); }); });
  }
  again();  // the backward grid counts processors
  made_.deterministic = true;
  coverage([&] { in_range("step", [&] { made_.step(4, 1024); }); });
  again();  // a prompt behind a cache has more keys than queries
  coverage([&] { in_range("step", [&] { made_.pass_forward(4, 256, 4); }); });
  again();  // forward of one length, backward of another
  coverage([&] {
    in_range("step", [&] {
      made_.pass_forward(4, 512, 4);
      for (std::uint64_t l = 0; l < made_.layers; ++l) made_.layer_backward(4, 256);
    });
  });
}

TEST_F(Executed, EachLengthOfAStepIsCounted) {
  start(R"({"workload": {"phase": "train"}})");
  in_range("step", [&] {
    for (const std::uint64_t seq : {128, 384, 1024}) {
      made_.pass_forward(4, seq, 0);
      for (std::uint64_t l = 0; l < made_.layers; ++l) made_.layer_backward(4, seq);
    }
  });
  const RegionSummary r = finish();
  EXPECT_NEAR(r.executed->flop, made_.product_flop + made_.attention_flop, 1e-9 * r.executed->flop);
  EXPECT_DOUBLE_EQ(r.executed->coverage(), 1);
}

TEST_F(Executed, LittleCoverageHasNoHfu) {
  start(R"({"workload": {"phase": "train"}})");
  in_range("step", [&] {
    made_.forward(1536, 512, 1024);
    made_.kernel("triton_mm_gemm_kernel", 1000);
  });
  const RegionSummary r = finish();
  ASSERT_TRUE(r.executed);
  EXPECT_FALSE(r.hfu);
  EXPECT_NEAR(r.executed->coverage(), made_.gemm_ns / (made_.gemm_ns + 1000), 1e-9);
  ASSERT_NE(find(r, "not seen", ""), nullptr);
  EXPECT_EQ(find(r, "not seen", "")->time_ns, 1000);
  EXPECT_FALSE(find(r, "not seen", "")->flop);
}

/// Nothing covers matmuls whose calls nobody saw, and that is said; what is no matmul needs none.
TEST_F(Executed, MatmulsOfNoCallAreNotCovered) {
  for (const bool shaped : {false, true}) {
    start(shaped ? MadeTransformer::config() : R"({"workload": {"phase": "train"}})");
    in_range(shaped ? "step batch=1 seq_len=16" : "step", [&] {
      made_.kernel("triton_mm_gemm_kernel", 3000);
      made_.kernel("void vectorized_elementwise_kernel<4, Add>(...)", 400);
    });
    const RegionSummary r = finish();
    ASSERT_TRUE(r.executed);
    EXPECT_EQ(r.executed->flop, 0);
    EXPECT_EQ(r.executed->covered_ns, 0);
    EXPECT_EQ(r.executed->matmul_ns, 3000);
    EXPECT_EQ(r.mfu.has_value(), shaped);
    EXPECT_EQ(r.hfu.has_value(), shaped);  // of the model's FLOP
    EXPECT_EQ(r.flop_source, shaped ? FlopSource::kShape : FlopSource::kNone);
    ASSERT_EQ(r.components.size(), 1u);
    EXPECT_EQ(r.components.front().name, "not seen");
    EXPECT_EQ(finding(r, "not_seen"),
              shaped ? ""
                     : "100.0 % of the matmul time: no call to cuBLAS was seen (Triton, CUTLASS, linked in, or looked "
                       "up too early)");
  }
  start(R"({"workload": {"phase": "train"}})");
  in_range("step", [&] { made_.kernel("void vectorized_elementwise_kernel<4, Add>(...)", 400); });
  const RegionSummary r = finish();
  EXPECT_FALSE(r.executed);
  EXPECT_TRUE(r.components.empty());
  EXPECT_TRUE(r.findings.empty());
}

/// A range without a batch is one sequence; what the detector found may be any number.
TEST_F(Executed, FoundPassesWithoutABatchCountNoTokens) {
  for (const InstanceKind kind : {InstanceKind::kThread, InstanceKind::kDetected}) {
    start(R"({"workload": {"phase": "decode"}})");
    kind_ = kind;
    for (int i = 0; i < 3; ++i) in_range("decode", [&] { made_.forward(1536, 512, 8); });
    EXPECT_EQ(finish("decode").tokens, kind == InstanceKind::kThread ? 3 : 0);
  }
}

TEST_F(Executed, NobodyLookedIsNull) {
  start(MadeTransformer::config(), 1000 * kNsPerSecond, false);
  in_range("step batch=4 seq_len=256", [&] { made_.step(4, 256); });
  const RegionSummary r = finish();
  EXPECT_FALSE(r.executed);
  EXPECT_TRUE(r.components.empty());
  EXPECT_NEAR(*r.hfu, *r.mfu, 1e-12);
}

TEST_F(Executed, ComponentsHaveTheirNamesAndAddUp) {
  in_range("step", [&] { made_.step(4, 256); });
  const RegionSummary r = finish();
  std::set<std::string> names;
  DurationNs time = 0;
  std::uint64_t calls = 0;
  double flop = 0;
  for (const Component& c : r.components) {
    names.insert(c.name + " " + c.pass);
    time += c.time_ns;
    flop += c.flop.value_or(0);
    if (c.name != "attention") calls += c.calls;
    ASSERT_TRUE(c.of_peak && c.flop_per_s) << c.name;
    EXPECT_NEAR(*c.of_peak, *c.flop_per_s / kPeak, 1e-6);
  }
  EXPECT_EQ(names, (std::set<std::string>{"q fwd",        "q dgrad",      "q wgrad",       "k+v fwd",
                                          "k+v dgrad",    "k+v wgrad",    "o fwd",         "o dgrad",
                                          "o wgrad",      "gate+up fwd",  "gate+up dgrad", "gate+up wgrad",
                                          "down fwd",     "down dgrad",   "down wgrad",    "logits fwd",
                                          "logits dgrad", "logits wgrad", "attention fwd", "attention bwd"}));
  EXPECT_EQ(time, r.executed->matmul_ns);
  EXPECT_EQ(calls, made_.calls);
  EXPECT_NEAR(flop, r.executed->flop, 1e-6 * flop);
  EXPECT_EQ(find(r, "o", "fwd")->calls, 4u);
  EXPECT_EQ(find(r, "k+v", "wgrad")->calls, 8u);
  EXPECT_EQ(find(r, "attention", "fwd")->calls, 4u);
  EXPECT_EQ(find(r, "attention", "bwd")->calls, 4u);
}

TEST_F(Executed, WindowsAddUpToTheRun) {
  start(MadeTransformer::config(), 100'000);
  made_.attention = MadeTransformer::Attention::kBatched;  // fused kernels get their FLOP when their step is over
  for (int i = 0; i < 20; ++i) {
    in_range("step", [&] { made_.step(4, 256); });
    ledger_->advance(made_.at - 200);
  }
  ledger_->finish(made_.at);
  ASSERT_GT(windows_.size(), 10u);
  RegionTotals totals;
  double flop = 0;
  for (const WindowSummary& w : windows_) {
    if (w.final_run) continue;
    for (const RegionSummary& r : w.regions) {
      if (r.region != "step") continue;
      totals.add(r, {kPeak, 3e12});
      if (r.executed) flop += r.executed->flop;
      EXPECT_LE(r.components.size(), kComponentsOfWindow + 1);
    }
  }
  const RegionSummary* whole = nullptr;
  for (const RegionSummary& r : windows_.back().regions)
    if (r.region == "step") whole = &r;
  ASSERT_NE(whole, nullptr);
  EXPECT_NEAR(flop, whole->executed->flop, 1e-6 * flop);
  const RegionSummary sum = totals.summed().sum;
  EXPECT_NEAR(sum.executed->flop, whole->executed->flop, 1e-6 * flop);
  EXPECT_EQ(sum.executed->matmul_ns, whole->executed->matmul_ns);
  ASSERT_TRUE(sum.hfu && whole->hfu);
  EXPECT_NEAR(*sum.hfu, *whole->hfu, 1e-3 * *whole->hfu);
  DurationNs in_sum = 0, in_run = 0;
  for (const Component& c : sum.components) in_sum += c.time_ns;
  for (const Component& c : whole->components) in_run += c.time_ns;
  EXPECT_EQ(in_sum, in_run);
}

TEST_F(Executed, RecomputationIsFoundAndRaisesHfuAlone) {
  in_range("step", [&] { made_.step(4, 256); });
  const RegionSummary plain = finish();
  const double plain_flop = made_.product_flop + made_.attention_flop;
  start(MadeTransformer::config());
  made_.recompute = true;
  in_range("step", [&] { made_.step(4, 256); });
  const RegionSummary r = finish();
  EXPECT_DOUBLE_EQ(*r.flop, *plain.flop);
  EXPECT_NEAR(r.executed->flop / plain_flop, (made_.product_flop + made_.attention_flop) / plain_flop, 1e-6);
  EXPECT_GT(r.executed->flop, 1.2 * plain_flop);
  EXPECT_EQ(finding(plain, "recomputation"), "");
  EXPECT_NE(finding(r, "recomputation"), "");
  EXPECT_EQ(r.tokens, 1024);
}

TEST_F(Executed, APassWithoutABackwardPassIsNoRecomputation) {
  for (const bool recompute : {false, true}) {
    start(MadeTransformer::config());
    made_.recompute = recompute;
    in_range("step", [&] {
      for (int micro_step = 0; micro_step < 3; ++micro_step) {
        made_.pass_forward(4, 256, 4 * 256);  // a teacher of the same sizes
        made_.step(4, 256);
      }
    });
    EXPECT_EQ(finding(finish(), "recomputation").empty(), !recompute);
  }
}

TEST_F(Executed, PaddingWastedLogitsAndAnotherModelAreFound) {
  start(MadeTransformer::config(R"("workload": {"phase": "prefill"})"));
  in_range("prefill batch=4 seq_len=200", [&] { made_.pass_forward(4, 256, 4 * 256); });
  RegionSummary r = finish("prefill");
  EXPECT_NE(finding(r, "padding").find("128 rows for every 100 tokens"), std::string::npos) << finding(r, "padding");
  EXPECT_NE(finding(r, "logits").find("1.02k positions were computed for 4 sequences"), std::string::npos)
      << finding(r, "logits");
  EXPECT_EQ(finding(r, "config"), "");

  start(MadeTransformer::config());
  made_.f = 1024;  // the config says 1536
  in_range("step batch=4 seq_len=256", [&] { made_.step(4, 256); });
  r = finish();
  EXPECT_TRUE(r.suspect.starts_with("config_is_not_the_model")) << r.suspect;
  EXPECT_NE(finding(r, "config").find("512x1024"), std::string::npos) << finding(r, "config");
  EXPECT_NE(finding(r, "config").find("512x1536"), std::string::npos) << finding(r, "config");
}

TEST_F(Executed, AnExactMultipleIsNoPadding) {
  in_range("step batch=1 seq_len=256", [&] { made_.step(4, 256); });
  RegionSummary r = finish();
  EXPECT_EQ(finding(r, "padding"), "");
  EXPECT_NE(finding(r, "batch").find("4 times"), std::string::npos) << finding(r, "batch");
  EXPECT_NE(finding(r, "batch").find("workload.grad_accum to 4"), std::string::npos) << finding(r, "batch");

  start(MadeTransformer::config(R"("parallel": {"dp": 4})"));
  in_range("step batch=4 seq_len=256", [&] { made_.step(4, 256); });
  r = finish();
  EXPECT_EQ(finding(r, "padding"), "");
  EXPECT_NE(finding(r, "batch").find("parallel.dp is 4: leave it out"), std::string::npos) << finding(r, "batch");

  start(MadeTransformer::config());
  in_range("step batch=16 seq_len=256", [&] { made_.step(4, 256); });
  r = finish();
  EXPECT_NE(finding(r, "batch").find("1/4"), std::string::npos) << finding(r, "batch");
  EXPECT_NE(finding(r, "batch").find("parallel.dp to 4"), std::string::npos) << finding(r, "batch");

  start(MadeTransformer::config());
  in_range("step batch=4 seq_len=256", [&] { made_.step(4, 256); });
  EXPECT_EQ(finding(finish(), "batch"), "");
}

TEST_F(Executed, SizesThatAreDividedNameTensorParallelism) {
  // Eight ranks, but two heads of keys: each of them is on four ranks, and no one number divides all matrices.
  for (const int ranks : {2, 8}) {
    for (const int said : {1, 4}) {
      start(MadeTransformer::config(fmt::format(R"("parallel": {{"tp": {}}})", said)));
      made_.heads /= ranks;
      made_.kv_heads = std::max<decltype(made_.kv_heads)>(1, made_.kv_heads / ranks);
      made_.f /= ranks;
      made_.vocab /= ranks;
      in_range("step batch=16 seq_len=256", [&] { made_.step(4, 256); });
      const RegionSummary r = finish();
      EXPECT_NE(r.suspect.find(fmt::format("set parallel.tp to {}", ranks)), std::string::npos)
          << said << ": " << r.suspect;
    }
  }
  // Half of the MLP is another model, not one of two ranks: the projections have their full size.
  start(MadeTransformer::config());
  made_.f /= 2;
  in_range("step batch=4 seq_len=256", [&] { made_.step(4, 256); });
  const RegionSummary r = finish();
  EXPECT_TRUE(r.suspect.starts_with("config_is_not_the_model")) << r.suspect;
  EXPECT_EQ(r.suspect.find("parallel.tp"), std::string::npos) << r.suspect;
}

TEST_F(Executed, ALowFigureIsNoMistakeWhereAsMuchRan) {
  for (const bool watched : {true, false})
    for (const char* name : {"step batch=4 seq_len=256", "step batch=1 seq_len=8"}) {
      start(MadeTransformer::config(), 1000 * kNsPerSecond, watched);
      made_.flop_per_ns = 400;
      in_range(name, [&] { made_.step(4, 256); });
      const bool right = std::string(name).ends_with("256");
      const std::string doubt = finish().suspect;
      EXPECT_EQ(doubt.starts_with("mfu_below_0.1"), !(right && watched)) << name << ": " << doubt;
    }
}

TEST_F(Executed, ABoundIsNotAboveTheTimeInWhichKernelsRan) {
  for (const double peak : {kPeak, kPeak / 1e6}) {
    start(MadeTransformer::config(R"("workload": {"phase": "prefill"})"));
    peak_.flop_per_s = peak;
    peak_.by_dtype.fill(peak);
    ledger_->set_peak(0, peak_);
    made_.attention = MadeTransformer::Attention::kFlash3;
    in_range("prefill", [&] { made_.pass_forward(4, 256, 4); });
    const RegionSummary r = finish("prefill");
    ASSERT_TRUE(r.mfu_lower.has_value());
    EXPECT_EQ(r.suspect.starts_with("bound_exceeds_busy_time"), peak != kPeak) << r.suspect << " " << *r.mfu_lower;
  }
}

/// FLOP of a step across an edge are divided by time, its products lie where they ran: neither is held against the
/// other.
TEST_F(Executed, WindowsAndRunsAccuseNothingOfAPartOfAStep) {
  constexpr DurationNs kWindow = 400'000;
  for (int only = -1; only < 5; ++only) {  // the one window that is measured: the run has parts of its steps
    start(MadeTransformer::config(), kWindow);
    if (only >= 0) {
      const TimeNs begin = ledger_->origin() + only * kWindow;
      ledger_->not_measured_from(ledger_->origin());
      ledger_->measured_again(begin);
      ledger_->not_measured_from(begin + kWindow);
    }
    for (int i = 0; i < 12; ++i) {
      in_range("step batch=4 seq_len=256", [&] {
        made_.step(4, 256);
        made_.at += 90'000 * (i % 3);  // a pause, in some
      });
    }
    ledger_->finish(made_.at);
    ASSERT_GT(windows_.size(), 4u);
    for (const WindowSummary& window : windows_)
      for (const RegionSummary& r : window.regions)
        EXPECT_EQ(r.suspect.find("config_is_not"), std::string::npos) << only << ": " << r.suspect;
  }
}

TEST_F(Executed, ThePeakIsThatOfTheOperands) {
  peak_.by_dtype[static_cast<std::size_t>(DType::kTf32)] = kPeak / 2;
  ledger_->set_peak(0, peak_);
  made_.attention = MadeTransformer::Attention::kBatched;
  made_.dtype = DType::kTf32;
  in_range("step", [&] { made_.step(4, 256); });
  const RegionSummary r = finish();
  EXPECT_NEAR(*r.hfu, made_.product_flop / (kPeak / 2 * seconds(r.elapsed_ns)),
              1.0 / static_cast<double>(r.elapsed_ns));
  EXPECT_NE(finding(r, "peak_dtype").find("100.0 % in tf32"), std::string::npos) << finding(r, "peak_dtype");
  ASSERT_TRUE(r.mfu && r.mfu_mixed);
  EXPECT_NEAR(*r.mfu_mixed / *r.mfu, 2, 1e-6);
}

/// Of a part that is small nothing is said about dtypes.
TEST_F(Executed, DtypesAreSaidOfWhatIsSeenAlone) {
  peak_.by_dtype[static_cast<std::size_t>(DType::kTf32)] = kPeak / 2;
  ledger_->set_peak(0, peak_);
  made_.dtype = DType::kTf32;
  in_range("step", [&] {
    made_.step(4, 256);
    made_.kernel("triton_tem_fused_mm_0", 100'000'000);  // whose product nothing says
  });
  const RegionSummary r = finish();
  EXPECT_LT(r.executed->coverage(), 0.9);
  EXPECT_EQ(finding(r, "peak_dtype"), "");
  EXPECT_FALSE(r.mfu_mixed);
}

TEST_F(Executed, ServingHasBoundsWithoutAnyShape) {
  start(MadeTransformer::config(R"("workload": {"phase": "prefill"})"));
  made_.attention = MadeTransformer::Attention::kFlash3;
  in_range("prefill", [&] { made_.pass_forward(4, 256, 4); });
  in_range("decode", [&] { made_.pass_forward(4, 1, 4); });
  ledger_->finish(made_.at);
  for (const RegionSummary& r : windows_.back().regions) {
    if (r.region == "total") continue;
    SCOPED_TRACE(r.region);
    EXPECT_FALSE(r.mfu);
    ASSERT_TRUE(r.mfu_lower && r.mbu_lower);
    EXPECT_EQ(r.tokens, r.region == "decode" ? 4 : 1024);
    const double matrices = 4.0 * (2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1536);
    const double tokens = r.region == "decode" ? 4 : 1024;
    const double least = 2 * matrices * tokens + 2.0 * 512 * 4096 * (r.region == "decode" ? 4 : 1);
    EXPECT_NEAR(*r.mfu_lower * kPeak * seconds(r.elapsed_ns) / least, 1, 0.002);
    EXPECT_GE(*r.mbu_lower * 3e12 * seconds(r.elapsed_ns), 2 * matrices);
  }
}

/// Batches of products give the length of prompt and cache away: nothing is missing.
TEST_F(Executed, GenerationWithBatchedAttentionIsExact) {
  made_.attention = MadeTransformer::Attention::kBatched;
  in_range("prefill", [&] { made_.pass_forward(4, 256, 4); });
  in_range("decode", [&] {
    const std::uint64_t keys = 300;
    for (std::uint64_t l = 0; l < made_.layers; ++l) {
      made_.forward(512, 512, 4);
      made_.forward(128, 512, 4);
      made_.forward(128, 512, 4);
      made_.product(keys, 1, 64, true, false, 32);
      made_.product(64, 1, keys, false, false, 32);
      made_.forward(512, 512, 4);
      made_.forward(1536, 512, 4);
      made_.forward(1536, 512, 4);
      made_.forward(512, 1536, 4);
    }
    made_.forward(4096, 512, 4);
  });
  ledger_->finish(made_.at);
  for (const RegionSummary& r : windows_.back().regions) {
    if (r.region == "total") continue;
    SCOPED_TRACE(r.region);
    Shape shape;
    shape.batch = 4;
    if (r.region == "decode")
      shape.context = 299;
    else
      shape.seq_len = 256;
    const Work work = config_->flops_model()->work(r.region == "decode" ? Phase::kDecode : Phase::kPrefill, shape);
    ASSERT_TRUE(r.flop && r.bytes);
    EXPECT_DOUBLE_EQ(*r.flop, work.flop);
    EXPECT_DOUBLE_EQ(*r.bytes, work.bytes);
  }
}

/// Anything at all, against sums over the list.
TEST_F(Executed, RandomProductsAddUpAsBruteForceHasThem) {
  std::mt19937 random(7);
  const auto pick = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 20; ++round) {
    start(R"({"workload": {"phase": "train"}})", 20'000 + static_cast<DurationNs>(pick(100'000)));
    std::map<std::string, double> flop, time;
    std::map<std::string, std::uint64_t> calls;
    double all = 0, matmul = 0, covered = 0;
    for (int i = 0; i < 6; ++i) {
      in_range("step", [&] {
        for (std::uint64_t n = pick(60); n > 0; --n) {
          Product p;
          p.m = 64 * (1 + pick(3));
          p.n = 64 * (1 + pick(3));
          p.k = 64 * (1 + pick(3));
          p.transpose_a = pick(2) == 0;
          p.transpose_b = !p.transpose_a && pick(2) == 0;
          p.kind = pick(8) == 0 ? Product::Kind::kUnsized : Product::Kind::kSized;
          p.operands = DType::kBf16;
          const std::uint64_t kernels = 1 + pick(3);
          const std::string of = p.kind == Product::Kind::kUnsized ? "unsized"
                                 : p.transpose_a                   ? std::to_string(p.k) + "x" + std::to_string(p.m)
                                 : p.transpose_b                   ? std::to_string(p.m) + "x" + std::to_string(p.n)
                                                                   : std::to_string(p.m) + "x" + std::to_string(p.k);
          for (std::uint64_t k = 0; k < kernels; ++k) {
            const auto length = static_cast<std::int64_t>(1 + pick(2000));
            const bool gemm = k == 0 || pick(2) == 0;
            made_.kernel(gemm ? "sm80_xmma_gemm_bf16bf16" : "epilogue_of_a_library", length, &p, k == 0);
            time[of] += static_cast<double>(length);
            if (gemm) matmul += static_cast<double>(length);
            if (gemm && p.kind == Product::Kind::kSized) covered += static_cast<double>(length);
          }
          ++calls[of];
          flop[of] += p.flop();
          all += p.flop();
          if (pick(5) == 0) {
            made_.kernel("triton_gemm", 700);
            matmul += 700;
          }
        }
      });
      ledger_->advance(made_.at - 100);
    }
    const RegionSummary r = finish();
    ASSERT_TRUE(r.executed);
    EXPECT_DOUBLE_EQ(r.executed->flop, all);
    EXPECT_EQ(r.executed->matmul_ns, static_cast<DurationNs>(matmul));
    EXPECT_EQ(r.executed->covered_ns, static_cast<DurationNs>(covered));
    std::map<std::string, double> got_flop, got_time;
    std::map<std::string, std::uint64_t> got_calls;
    for (const Component& c : r.components) {
      if (c.name == "not seen") continue;
      ASSERT_NE(c.name, "other");
      got_flop[c.name] += c.flop.value_or(0);
      got_time[c.name] += static_cast<double>(c.time_ns);
      got_calls[c.name] += c.calls;
    }
    EXPECT_EQ(got_calls, calls);
    EXPECT_EQ(got_time, time);
    for (const auto& [name, value] : flop) EXPECT_DOUBLE_EQ(got_flop[name], value) << name;
  }
}

TEST_F(Executed, ManySizesAreBounded) {
  start(R"({"workload": {"phase": "train"}})");
  double all = 0;
  in_range("step", [&] {
    for (std::uint64_t i = 1; i <= ProductStats::kMost + 500; ++i) {
      made_.forward(64, 64, i);
      all = made_.product_flop;
    }
  });
  const RegionSummary r = finish();
  EXPECT_LE(r.components.size(), kComponentsOfRun + 1);
  EXPECT_LT(r.executed->flop, all);  // the rest is of unknown size, and not covered
  EXPECT_LT(r.executed->coverage(), 1);
  EXPECT_EQ(r.executed->matmul_ns, static_cast<DurationNs>(made_.gemm_ns));
}

}  // namespace
}  // namespace mfu

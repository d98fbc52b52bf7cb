// Instances that no range named, against ranges drawn by hand around the same work; and that whatever the detector
// thinks, no record is lost, counted twice or held for ever.
#include "core/drain/detected_regions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "tests/unit/drain/made_windows.h"

namespace mfu {
namespace {

constexpr std::uint32_t kForwardThread = 1, kBackwardThread = 2;

struct Work {
  ActivityRecord record;
  std::uint32_t thread = kForwardThread;
  std::size_t step = 0;  ///< it belongs to; counted from 1, 0: to none
};

/// A Ledger with what it gave out.
struct Account {
  explicit Account(const Config& settings, bool detect, bool whole_trace = false, std::uint32_t most_explained = 0)
      : config(settings) {
    ledger = std::make_unique<Ledger>(rules, config.flops_model(), config.workload, names, counters,
                                      LedgerOptions{kOrigin, kWindow, false}, [this](WindowSummary&& w) {
                                        if (detected) detected->describe(w);
                                        windows.push_back(std::move(w));
                                      });
    Peak peak;
    peak.flop_per_s = 1e12;
    ledger->set_peak(0, peak);
    if (detect)
      detected = std::make_unique<DetectedRegions>(
          *ledger, rules, names, DetectionOptions{.whole_trace = whole_trace, .most_explained = most_explained});
  }
  [[nodiscard]] const RegionSummary* region(const std::string& name, std::uint32_t device = 0) const {
    for (const RegionSummary& r : windows.back().regions)
      if (r.region == name && (!r.device || *r.device == device)) return &r;
    return nullptr;
  }

  Config config;
  std::vector<std::string> warnings;
  RegionRules rules{{}, {}, warnings};
  Counters counters;
  KernelNames names{counters};
  std::vector<WindowSummary> windows;
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<DetectedRegions> detected;
};

/// A program's work in the order of its launches, one stream, with pauses.
class Program {
 public:
  explicit Program(Account& account, std::uint64_t seed = 1) : names_(account.names), rng_(seed) {}

  void kernel(const std::string& name, std::uint32_t thread = kForwardThread, std::uint32_t device = 0) {
    ActivityRecord record;
    record.name = names_.intern(name.c_str());
    add(record, thread, device);
  }
  void copy(CopyDirection direction, std::uint32_t device = 0) {
    ActivityRecord record;
    record.kind = ActivityKind::kMemcpy;
    record.direction = direction;
    add(record, kForwardThread, device);
  }
  /// Forward, backward and optimizer of a network of `layers`, five launches a layer and direction.
  void step(int layers, std::uint32_t device = 0) {
    ++step_;
    in_step_ = true;
    copy(CopyDirection::kToDevice, device);
    kernel("embedding_kernel", kForwardThread, device);
    for (int l = 0; l < layers; ++l)
      for (const char* name : {"layer_norm_kernel", "ampere_bf16_gemm_qkv", "flash_fwd_kernel", "ampere_bf16_gemm_out",
                               "elementwise_gelu"})
        kernel(name, kForwardThread, device);
    kernel("nll_loss_forward", kForwardThread, device);
    for (int l = 0; l < layers; ++l)
      for (const char* name : {"elementwise_gelu_backward", "ampere_bf16_gemm_wgrad", "flash_bwd_kernel",
                               "ampere_bf16_gemm_dgrad", "layer_norm_grad_input_kernel_backward"})
        kernel(name, kBackwardThread, device);
    for (int i = 0; i < 9; ++i)
      kernel("multi_tensor_apply_kernel<adam_" + std::to_string(i) + ">", kForwardThread, device);
    in_step_ = false;
  }
  /// A pass of a server over `layers`, and the sample that goes to the host.
  void iteration(int layers, bool prefill) {
    copy(CopyDirection::kToDevice);
    kernel("embedding_kernel");
    for (int l = 0; l < layers; ++l)
      for (const char* name :
           {"vllm::rms_norm_kernel", "nvjet_qkv", "vllm::rotary_embedding_kernel",
            "vllm::reshape_and_cache_flash_kernel",
            prefill ? "flash_fwd_kernel<PagedKv, Causal, VarSeq>" : "vllm::paged_attention_v1_kernel", "nvjet_out"})
        kernel(name);
    kernel("at::native::reduce_kernel<ArgMaxOps>");
    copy(CopyDirection::kToHost);
  }
  /// The same as one graph that samples.
  void graph_iteration(int nodes) {
    const std::uint32_t launch = next_;
    for (int i = 0; i < nodes; ++i) {
      kernel(i + 1 < nodes ? "nvjet_qkv" : "at::native::reduce_kernel<ArgMaxOps>");
      work.back().record.correlation = static_cast<CorrelationId>(launch);
      work.back().record.graph = static_cast<GraphId>(7);
    }
    copy(CopyDirection::kToHost);
  }
  void pause(DurationNs length) { now_ += length; }
  [[nodiscard]] TimeNs now() const { return now_; }
  std::vector<Work> work;

 private:
  void add(ActivityRecord& record, std::uint32_t thread, std::uint32_t device) {
    now_ += static_cast<DurationNs>(1000 + rng_() % 3000);
    record.begin_ns = now_;
    now_ += static_cast<DurationNs>(5000 + rng_() % 50'000);
    record.end_ns = now_;
    record.device = DeviceId{device};
    record.correlation = static_cast<CorrelationId>(next_);
    next_ += 1 + static_cast<std::uint32_t>(rng_() % 4);
    work.push_back({record, thread, in_step_ ? step_ : 0});
  }

  KernelNames& names_;
  std::mt19937_64 rng_;
  TimeNs now_ = kOrigin + 1000;
  std::uint32_t next_ = 0xFFFF'F000u;  // wraps on the way
  std::size_t step_ = 0;
  bool in_step_ = false;
};

/// Everything at once through the detector, in ticks of 100 ms of device time; records of a tick in any order.
void play(Account& account, const std::vector<Work>& work, std::uint64_t seed = 7) {
  std::mt19937_64 rng(seed);
  std::size_t done = 0;
  for (TimeNs tick = kOrigin; done < work.size();) {
    tick += kNsPerSecond / 10;
    std::size_t end = done;
    while (end < work.size() && work[end].record.begin_ns < tick) ++end;
    std::vector<Work> flushed(work.begin() + static_cast<std::ptrdiff_t>(done),
                              work.begin() + static_cast<std::ptrdiff_t>(end));
    std::shuffle(flushed.begin(), flushed.end(), rng);
    for (const Work& w : flushed) account.detected->add(w.record, true, w.thread);
    if (end != 0) account.ledger->advance(account.detected->settle(work[end - 1].record.correlation, tick));
    ASSERT_LE(account.detected->held_records(), DetectedRegions::kMostHeldOfTrace);
    done = end;
  }
  account.detected->finish();
  account.ledger->finish(work.back().record.end_ns);
}

/// Ranges by hand: from each step's first activity to the next step's, on one thread.
void draw_by_hand(Account& account, const std::vector<Work>& work, std::size_t first, std::size_t last) {
  std::vector<std::size_t> begins(last + 2, work.size());
  for (std::size_t i = work.size(); i-- > 0;)
    if (work[i].step != 0 && work[i].step < begins.size()) begins[work[i].step] = i;
  std::size_t at = 0;
  const auto give = [&](std::size_t end, InstanceId owner) {
    for (; at < end; ++at) account.ledger->add(work[at].record, owner, true);
  };
  for (std::size_t step = first; step <= last; ++step) {
    give(begins[step], InstanceId::kNone);
    InstanceSlot slot;
    slot.id = static_cast<InstanceId>(step);
    slot.opener = ThreadSerial{1};
    slot.region = account.rules.detected().step;
    account.ledger->open(slot, work[begins[step]].record.begin_ns);
    const std::size_t end = begins[step + 1];
    give(end, slot.id);
    account.ledger->close(slot, end == work.size() ? work.back().record.end_ns : work[end].record.begin_ns, 0);
  }
  give(work.size(), InstanceId::kNone);
  account.ledger->finish(work.back().record.end_ns);
}

void expect_same(const RegionSummary& a, const RegionSummary& b) {
  EXPECT_EQ(a.instances, b.instances);
  EXPECT_EQ(a.elapsed_ns, b.elapsed_ns);
  EXPECT_EQ(a.busy_ns, b.busy_ns);
  EXPECT_EQ(a.kernel_sum_ns, b.kernel_sum_ns);
  EXPECT_EQ(a.kernels, b.kernels);
  EXPECT_EQ(a.launches, b.launches);
  EXPECT_EQ(a.time_ns, b.time_ns);
}

TEST(DetectedRegionsTest, StepsAreAccountedAsIfRangesHadBeenDrawnAroundThem) {
  Account detected({}, true, /*whole_trace=*/true), drawn({}, false);
  Program program(detected), same(drawn);
  for (Program* p : {&program, &same})
    for (int i = 0; i < 12; ++i) {
      p->step(24);
      p->pause(200'000);
    }
  play(detected, program.work);
  const RegionSummary* steps = detected.region("step");
  ASSERT_NE(steps, nullptr);
  // The first begins where nothing was before: it is not sure.
  ASSERT_GE(steps->instances, 9u);
  draw_by_hand(drawn, same.work, 13 - steps->instances, 12);
  expect_same(*steps, *drawn.region("step"));
  expect_same(*detected.region("total"), *drawn.region("total"));
  EXPECT_EQ(steps->named_by, NamedBy::kDetector);
  EXPECT_EQ(drawn.region("step")->named_by, NamedBy::kRange);
  ASSERT_TRUE(steps->detected);
  EXPECT_EQ(steps->detected->kind, "step");
  EXPECT_EQ(steps->detected->period_launches, 2u + 24 * 10 + 1 + 9);
  EXPECT_EQ(detected.detected->attributed(), steps->launches);
}

TEST(DetectedRegionsTest, PhasesLieInsideTheirStep) {
  Account account({}, true, true);
  Program program(account);
  for (int i = 0; i < 10; ++i) program.step(24);
  play(account, program.work);
  const RegionSummary *step = account.region("step"), *forward = account.region("forward"),
                      *backward = account.region("backward"), *optimizer = account.region("optimizer");
  ASSERT_TRUE(step != nullptr && forward != nullptr && backward != nullptr && optimizer != nullptr);
  const std::uint64_t n = step->instances;
  EXPECT_EQ(forward->instances, n);
  EXPECT_EQ(backward->instances, n);
  EXPECT_EQ(optimizer->instances, n);
  EXPECT_EQ(forward->launches, n * (2 + 24 * 5 + 1));
  EXPECT_EQ(backward->launches, n * 24 * 5);
  EXPECT_EQ(optimizer->launches, n * 9);
  EXPECT_EQ(forward->busy_ns + backward->busy_ns + optimizer->busy_ns, step->busy_ns);
  EXPECT_LE(forward->elapsed_ns + backward->elapsed_ns + optimizer->elapsed_ns, step->elapsed_ns);
  EXPECT_EQ(account.region("total")->instances, n);  // parts of a step are not work of their own
}

TEST(DetectedRegionsTest, StepsOfAnotherLengthAreSaidAgain) {
  Account account({}, true);
  Program program(account);
  for (const int layers : {8, 24})
    for (int i = 0; i < 20; ++i) {
      program.step(layers);
      program.pause(200'000'000);
    }
  play(account, program.work);
  const std::vector<std::string> notices = account.detected->take_notices();
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[0].find("no range names a region: training step every 92 launches"), 0u) << notices[0];
  EXPECT_EQ(notices[1].find("no range names a region, and steps are others now: "), 0u) << notices[1];
  EXPECT_NE(notices[1].find(" every 252 launches"), std::string::npos) << notices[1];
}

TEST(DetectedRegionsTest, LiveFindsStandASecondAndNothingIsLost) {
  Account live({}, true), straight({}, false);
  Program program(live), same(straight);
  for (Program* p : {&program, &same})
    for (int i = 0; i < 600; ++i) p->step(24);
  ASSERT_GT(program.now() - kOrigin, 4 * kNsPerSecond);
  play(live, program.work);
  for (const Work& w : same.work) straight.ledger->add(w.record, InstanceId::kNone, true);
  straight.ledger->finish(same.work.back().record.end_ns);
  const RegionSummary* steps = live.region("step");
  ASSERT_NE(steps, nullptr);
  EXPECT_GE(steps->instances, 595u);  // all that were found late are in it
  EXPECT_EQ(live.counters.get(Counter::kRecordsLate), 0u);
  RegionSummary with = *live.region("total");
  EXPECT_EQ(with.instances, steps->instances);
  with.instances = straight.region("total")->instances;
  expect_same(with, *straight.region("total"));
  const std::vector<std::string> notices = live.detected->take_notices();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("training step every 252 launches"), std::string::npos) << notices[0];
}

/// What a detector says of launches that it gets alone.
class Said final : public StepListener, public DetectionLog {
 public:
  void on_boundary(const StepBoundary&) override {}
  void say(LaunchPosition at, std::string_view text) override {
    lines.push_back("gpu0 launch " + std::to_string(at) + ": " + std::string(text));
  }
  std::vector<std::string> lines;
};

TEST(DetectedRegionsTest, ExplainsWithTheWordsOfTheDetector) {
  Account account({}, true, false, DetectedRegions::kMostExplained), silent({}, true);
  Program program(account), same(silent);
  for (Program* p : {&program, &same})
    for (int i = 0; i < 40; ++i) p->step(24);
  Said alone;
  StepDetector detector(alone, 0, &alone);
  for (const Work& w : program.work) {
    Launch launch;
    launch.traits = traits_of(w.record);
    launch.name = static_cast<std::uint32_t>(launch.traits.role);
    if (w.record.kind == ActivityKind::kKernel) {
      launch.traits = role_of_kernel(std::string(account.names.raw_name(w.record.name)));
      launch.name = Launch::kFirstKernel + raw(w.record.name);
    }
    launch.thread = w.thread;
    launch.begin_ns = w.record.begin_ns;
    detector.add(launch);
  }
  detector.finish();
  play(account, program.work);
  play(silent, same.work);
  const std::vector<std::string> lines = account.detected->take_explained();
  EXPECT_EQ(lines, alone.lines);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find(": taken: training steps, by the updates of a named optimizer") != std::string::npos;
  }));
  EXPECT_TRUE(account.detected->take_explained().empty());
  EXPECT_TRUE(silent.detected->take_explained().empty());
}

/// Whatever is considered, no more is said than was asked for: of each device.
TEST(DetectedRegionsTest, ExplanationsEnd) {
  Account all({}, true, false, DetectedRegions::kMostExplained), few({}, true, false, 1);
  Program program(all), same(few);
  for (Program* p : {&program, &same})
    for (int i = 0; i < 40; ++i) {
      p->step(24, 0);
      p->step(9, 1);
    }
  play(all, program.work);
  play(few, same.work);
  const std::vector<std::string> whole = all.detected->take_explained(), said = few.detected->take_explained();
  for (const std::string device : {"gpu0 ", "gpu1 "}) {
    const auto of_device = [&](const std::vector<std::string>& lines) {
      std::vector<std::string> out;
      std::copy_if(lines.begin(), lines.end(), std::back_inserter(out),
                   [&](const std::string& line) { return line.rfind(device, 0) == 0; });
      return out;
    };
    const std::vector<std::string> here = of_device(said), there = of_device(whole);
    ASSERT_GT(there.size(), 2u);
    ASSERT_EQ(here.size(), 2u);
    EXPECT_EQ(here[0], there[0]);
    EXPECT_NE(here[1].find("no more is explained"), std::string::npos) << here[1];
  }
}

TEST(DetectedRegionsTest, WorkBetweenStepsIsNobodys) {
  Account account({}, true, true);
  Program program(account);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 8; ++i) program.step(24);
    for (int i = 0; i < 400; ++i) program.kernel("evaluation_" + std::to_string(i % 37));
  }
  play(account, program.work);
  const RegionSummary* step = account.region("step");
  ASSERT_NE(step, nullptr);
  EXPECT_GE(step->instances, 18u);
  EXPECT_LE(step->instances, 24u);
  // Each has exactly the launches of a step: none took evaluation along.
  EXPECT_EQ(step->launches, step->instances * 252);
}

TEST(DetectedRegionsTest, WaitingForARequestIsNoTimePerToken) {
  constexpr DurationNs kStall = 400'000'000, kQuiet = 700'000'000;
  Account account({}, true, true);
  Program program(account);
  for (int request = 0; request < 10; ++request) {
    program.iteration(12, true);
    for (int token = 0; token < 20; ++token) {
      if (request == 5 && token == 10) program.pause(kStall);  // somebody waits for this token
      program.iteration(12, false);
    }
    program.pause(kQuiet);  // nobody waits for anything
  }
  play(account, program.work);
  const RegionSummary *decode = account.region("decode"), *prefill = account.region("prefill_or_mixed");
  ASSERT_TRUE(decode != nullptr && prefill != nullptr);
  EXPECT_GE(decode->instances, 190u);
  EXPECT_LE(decode->instances, 200u);
  EXPECT_GE(prefill->instances, 8u);
  EXPECT_LE(prefill->instances, 10u);
  EXPECT_GE(decode->latency.max_ns, kStall);
  EXPECT_LT(decode->latency.max_ns, kQuiet);
  EXPECT_LT(prefill->latency.max_ns, kStall);
  EXPECT_LT(decode->elapsed_ns, kStall + static_cast<DurationNs>(decode->instances) * 20'000'000);
}

/// One launch without a record keeps everything behind it waiting, until that is too much.
TEST(DetectedRegionsTest, TooMuchThatWaitsIsNotCutInTheMiddleOfAGraph) {
  constexpr std::size_t kIterations = 4000;
  Account account({}, true);
  Program program(account);
  for (std::size_t i = 0; i < kIterations; ++i) program.graph_iteration(150);
  const CorrelationId first = program.work.front().record.correlation;
  std::size_t added = 0;
  for (const Work& w : program.work) {
    account.detected->add(w.record, true, w.thread);
    if (++added % 1013 == 0) account.ledger->advance(account.detected->settle(first, w.record.begin_ns));
    ASSERT_LE(account.detected->held_records(), DetectedRegions::kMostHeld);
  }
  account.detected->finish();
  account.ledger->finish(program.now());
  ASSERT_NE(account.region("decode"), nullptr);
  const RegionSummary& decode = *account.region("decode");
  EXPECT_GE(decode.instances, kIterations - 50);
  EXPECT_EQ(decode.kernels, decode.instances * 150);
}

TEST(DetectedRegionsTest, ALongTraceIsNotHeldWhole) {
  Account account({}, true, true);
  Program program(account);
  while (program.work.size() < DetectedRegions::kMostHeldOfTrace * 5 / 4) program.step(100);
  play(account, program.work);
  ASSERT_NE(account.region("step"), nullptr);
  EXPECT_GE(account.region("step")->instances, program.work.back().step - 4);
  EXPECT_EQ(account.region("total")->launches, program.work.size());
  EXPECT_EQ(account.counters.get(Counter::kRecordsLate), 0u);
}

TEST(DetectedRegionsTest, AProgramThatStandsStillStillHasWindows) {
  Account account({}, true);
  Program program(account);
  for (int i = 0; i < 200; ++i) program.step(24);
  for (const Work& w : program.work) account.detected->add(w.record, true, w.thread);
  const CorrelationId last = program.work.back().record.correlation;
  TimeNs now = program.now();
  for (int i = 0; i < 100; ++i) account.ledger->advance(account.detected->settle(last, now += kNsPerSecond / 10));
  EXPECT_EQ(account.detected->held_records(), 0u);
  EXPECT_GE(account.windows.size(), 8u);
}

TEST(DetectedRegionsTest, WhatRepeatsNothingIsNotHeldBackForLong) {
  const std::uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  Account account({}, true);
  Program program(account, seed);
  std::mt19937_64 rng(seed);
  while (program.now() < kOrigin + 6 * kNsPerSecond) program.kernel("noise_" + std::to_string(rng() % 3000));
  std::size_t given = 0;
  for (TimeNs tick = kOrigin; given < program.work.size();) {
    tick += kNsPerSecond / 10;
    for (; given < program.work.size() && program.work[given].record.begin_ns < tick; ++given)
      account.detected->add(program.work[given].record, true, 1);
    const TimeNs until = account.detected->settle(program.work[given - 1].record.correlation, tick);
    account.ledger->advance(until);
    if (tick > kOrigin + 3 * kNsPerSecond) {
      ASSERT_GE(until, tick - kNsPerSecond / 10);
    }
  }
  account.detected->finish();
  account.ledger->finish(program.now());
  EXPECT_EQ(account.region("step"), nullptr);
  EXPECT_EQ(account.region("total")->kernels, program.work.size());
  ASSERT_TRUE(account.region("total")->detected);
  EXPECT_EQ(account.region("total")->detected->confidence, "not_sure");
  EXPECT_EQ(account.detected->take_notices().size(), 1u);
}

TEST(DetectedRegionsTest, RangesAreBetterThanWhatIsDetected) {
  Account account({}, true);
  Program program(account);
  for (int i = 0; i < 50; ++i) program.step(24);
  for (const Work& w : program.work) account.detected->add(w.record, true, w.thread);
  (void)account.detected->settle(program.work[program.work.size() / 2].record.correlation, kOrigin);
  account.detected->stand_aside();
  EXPECT_EQ(account.detected->held_records(), 0u);
  EXPECT_EQ(account.detected->settle(program.work.back().record.correlation, program.now()), program.now());
  account.detected->finish();
  account.ledger->finish(program.now());
  EXPECT_EQ(account.region("step"), nullptr);
  EXPECT_EQ(account.region("total")->launches, program.work.size());
  EXPECT_FALSE(account.region("total")->detected);
}

TEST(DetectedRegionsTest, WhoNamesARegionIsSaidInTheOrderOfTrust) {
  for (const auto& [ranges, expected] : std::vector<std::pair<std::vector<std::string>, NamedBy>>{
           {{"ProfilerStep#7"}, NamedBy::kFramework},
           {{"step 7"}, NamedBy::kRange},
           {{"ProfilerStep#7", "step 7", "ProfilerStep#8"}, NamedBy::kRange}}) {
    Account account({}, false);
    TimeNs at = kOrigin;
    std::uint32_t id = 0;
    for (const std::string& range : ranges) {
      const RegionOpening opening = account.rules.open(account.rules.match("", range), range, nullptr);
      InstanceSlot slot;
      slot.id = static_cast<InstanceId>(++id);
      slot.opener = ThreadSerial{1};
      slot.region = opening.region;
      slot.rule = opening.rule;
      account.ledger->open(slot, at);
      ActivityRecord record;
      record.begin_ns = at + 10;
      record.end_ns = at += 1000;
      account.ledger->add(record, slot.id, true);
      account.ledger->close(slot, at, 0);
    }
    account.ledger->finish(at + 1000);
    ASSERT_NE(account.region("step"), nullptr);
    EXPECT_EQ(account.region("step")->named_by, expected);
  }
}

TEST(DetectedRegionsTest, DevicesHaveTheirOwnSteps) {
  Account account({}, true, true);
  Peak peak;
  account.ledger->set_peak(1, peak);
  Program program(account);
  for (int i = 0; i < 12; ++i) {
    program.step(24, 0);
    program.step(10, 1);
    program.step(10, 1);
  }
  play(account, program.work);
  const RegionSummary *first = account.region("step", 0), *second = account.region("step", 1);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_GE(first->instances, 9u);
  EXPECT_GE(second->instances, 20u);
  EXPECT_EQ(first->detected->period_launches, 252u);
  EXPECT_EQ(second->detected->period_launches, 112u);
}

TEST(DetectedRegionsTest, SizesComeFromTheKernelsOnlyWhereTheConfigIsSilent) {
  for (const bool told : {false, true}) {
    const std::string batch = told ? R"("batch": 3, )" : "";
    const auto config = load_config_file(
        R"({"model": {"n_layer": 24, "n_head": 4, "n_embd": 64, "vocab_size": 100}, "workload": {"phase": "train", )" +
            batch + R"("seq_len": 128}})",
        [](const char*) -> const char* { return nullptr; });
    ASSERT_TRUE(config);
    Account account(*config, true, true);
    Program program(account);
    for (int i = 0; i < 10; ++i) program.step(24);
    for (Work& w : program.work)  // one block per row
      if (account.names.raw_name(w.record.name) == "layer_norm_kernel") {
        w.record.name = account.names.intern("vectorized_layer_norm_kernel");
        w.record.extent = pack(Grid{8 * 128, 1, 1});
      }
    play(account, program.work);
    const RegionSummary* step = account.region("step");
    ASSERT_NE(step, nullptr);
    EXPECT_EQ(step->tokens, static_cast<std::int64_t>(step->instances) * 128 * (told ? 3 : 8));
    Shape shape;
    shape.batch = told ? 3 : 8;
    shape.seq_len = 128;
    ASSERT_TRUE(step->flop);
    EXPECT_DOUBLE_EQ(*step->flop,
                     static_cast<double>(step->instances) * config->model->work(Phase::kTrain, shape).flop);
    const RegionSummary *forward = account.region("forward"), *backward = account.region("backward");
    ASSERT_TRUE(forward != nullptr && forward->flop && backward != nullptr && backward->flop);
    EXPECT_NEAR(*forward->flop + *backward->flop, *step->flop, 1e-6 * *step->flop);
    EXPECT_NEAR(*account.region("total")->flop, *step->flop, 1e-6 * *step->flop);
    const auto source = std::find_if(step->shape_source.begin(), step->shape_source.end(),
                                     [told](const auto& s) { return s.first == (told ? "batch" : "tokens"); });
    ASSERT_NE(source, step->shape_source.end());
    EXPECT_EQ(source->second, told ? "given" : "detected");
  }
}

TEST(DetectedRegionsTest, AModelOfParametersAloneNeedsNoLength) {
  const auto config =
      load_config_file(R"({"model": {"params": 1000000}})", [](const char*) -> const char* { return nullptr; });
  ASSERT_TRUE(config);
  Account account(*config, true, true);
  Program program(account);
  for (int i = 0; i < 10; ++i) program.step(24);
  for (Work& w : program.work)
    if (account.names.raw_name(w.record.name) == "layer_norm_kernel") {
      w.record.name = account.names.intern("vectorized_layer_norm_kernel");
      w.record.extent = pack(Grid{1024, 1, 1});
    }
  play(account, program.work);
  const RegionSummary* step = account.region("step");
  ASSERT_TRUE(step != nullptr && step->flop);
  EXPECT_DOUBLE_EQ(*step->flop, static_cast<double>(step->instances) * 6 * 1024 * 1e6);
}

TEST(DetectedRegionsTest, WithoutASizeThereIsNoFlop) {
  const auto config = load_config_file(R"({"model": {"n_layer": 24, "n_head": 4, "n_embd": 64, "vocab_size": 100}})",
                                       [](const char*) -> const char* { return nullptr; });
  ASSERT_TRUE(config);
  Account account(*config, true, true);
  Program program(account);
  for (int i = 0; i < 10; ++i) program.step(24);
  play(account, program.work);
  ASSERT_NE(account.region("step"), nullptr);
  EXPECT_FALSE(account.region("step")->flop);
  EXPECT_FALSE(account.ledger->take_notices().empty());
}

}  // namespace
}  // namespace mfu

// What an interpreter reports, against the account of the same work counted by hand.
#include "core/drain/program_regions.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/families/read_architecture.h"
#include "tests/unit/drain/made_windows.h"

namespace mfu {
namespace {

constexpr const char* kSmall =
    R"({"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 256, "vocab_size": 100})";
constexpr const char* kLarge =
    R"({"model_type": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 128, "n_positions": 256, "vocab_size": 100})";
constexpr std::uint8_t kTrain = ProgramFact::kGradients | ProgramFact::kTraining | ProgramFact::kTrainable;

FlopsModel model_from(const char* text) { return FlopsModel::make(*read_model(text, ""), {}); }

double flop_of(const char* text, Phase phase, std::int64_t batch, std::int64_t seq_len) {
  Shape shape;
  shape.batch = batch;
  shape.seq_len = seq_len;
  return model_from(text).work(phase, shape).flop;
}

/// A program, its launches 1 us long and 1 us behind the host, and the account of it.
class ProgramRegionsTest : public ::testing::Test {
 protected:
  void begin(const FlopsModel* given = nullptr, bool detector = true) {
    ledger = std::make_unique<Ledger>(rules, given, Workload{}, names, counters, LedgerOptions{kOrigin, kWindow, false},
                                      [this](WindowSummary&& w) { windows.push_back(std::move(w)); });
    Peak peak;
    peak.flop_per_s = 1e12;
    ledger->set_peak(0, peak);
    if (detector) detected = std::make_unique<DetectedRegions>(*ledger, rules, names, DetectionOptions{});
    program = std::make_unique<ProgramRegions>(*ledger, rules, given, detected.get());
  }
  void report(FactKind kind, std::uint64_t subject = 0, std::uint8_t mode = 0, std::uint32_t model = 0,
              std::int64_t seq_len = 16) {
    ProgramFact fact;
    fact.kind = kind;
    fact.subject = subject;
    fact.mode = mode;
    fact.model = model;
    fact.thread = 1;
    fact.range = ranges.empty() ? InstanceId::kNone : ranges.back()->id;
    fact.at = now += 1000;
    fact.launch = static_cast<CorrelationId>(launches);
    fact.shape.set(ShapeWords::kBatch, 2);
    fact.shape.set(ShapeWords::kSeqLen, seq_len);
    program->add_fact(fact);
  }
  /// The program's own range of a region.
  void open_range(const std::string& region) {
    auto slot = std::make_unique<InstanceSlot>();
    slot->id = static_cast<InstanceId>(++opened);
    slot->parent = ranges.empty() ? InstanceId::kNone : ranges.back()->id;
    const RegionRules::DetectedIds& ids = rules.detected();
    const std::map<std::string, RegionId> by_name = {
        {"step", ids.step}, {"forward", ids.forward}, {"backward", ids.backward}, {"optimizer", ids.optimizer}};
    slot->region = by_name.at(region);
    slot->rule = rules.rule_of_region(slot->region);
    if (!program->open_range({now += 1000, InstanceFeed::Event::kOpen, slot.get()})) ledger->open(*slot, now);
    ranges.push_back(slot.get());
    slots.push_back(std::move(slot));
  }
  /// \param late its facts are taken after that
  void close_range(bool late = false) {
    if (!late) settle();
    InstanceSlot& slot = *ranges.back();
    if (!program->close_range({now += 1000, InstanceFeed::Event::kClose, &slot}, 0)) ledger->close(slot, now, 0);
    ranges.pop_back();
  }
  void launch(int count, std::uint32_t device = 0) {
    for (int i = 0; i < count; ++i) {
      ActivityRecord record;
      record.name = names.intern(kernel);
      record.correlation = static_cast<CorrelationId>(++launches);
      record.device = static_cast<DeviceId>(device);
      record.begin_ns = now += 1000;
      record.end_ns = record.begin_ns + 500;
      const InstanceId owner = ranges.empty() ? InstanceId::kNone : ranges.back()->id;
      if (owner != InstanceId::kNone && !program->holds(owner))
        ledger->add(record, owner, true);
      else
        program->add(record, true, 1, owner);
    }
  }
  void pass(std::uint64_t module, std::uint8_t mode, std::uint32_t model, std::int64_t seq_len = 16) {
    report(FactKind::kPassBegin, module, mode, model, seq_len);
    launch(10);
    report(FactKind::kPassEnd, module);
  }
  void train(std::uint32_t model = 1, std::int64_t seq_len = 16) {
    pass(1, kTrain, model, seq_len);
    report(FactKind::kBackwardBegin);
    launch(20);
    report(FactKind::kBackwardEnd);
    update();
  }
  void update() {
    report(FactKind::kUpdateBegin, 50);
    launch(5);
    report(FactKind::kUpdateEnd, 50);
    settle();
  }
  void counted(std::uint32_t model, std::int64_t forward, std::int64_t backward, std::uint8_t mode = 0) {
    ProgramFact fact;
    fact.kind = FactKind::kPassWork;
    fact.mode = mode;
    fact.model = model;
    fact.shape.set(ShapeWords::kBatch, forward);
    fact.shape.set(ShapeWords::kSeqLen, backward);
    program->add_fact(fact);
  }
  void settle() {
    const TimeNs until = program->settle(static_cast<CorrelationId>(launches), now);
    EXPECT_LE(until, now);
    ledger->advance(until);
  }
  /// As far as the account was at the last call, as the drain does it.
  void settle_behind() {
    const TimeNs until = program->settle(static_cast<CorrelationId>(behind.first), behind.second);
    EXPECT_LE(until, behind.second);
    ledger->advance(until);
    behind = {launches, now};
  }
  void finish() {
    program->finish();
    if (detected) detected->finish();
    ledger->finish(now + 1000);
  }
  [[nodiscard]] const RegionSummary& region(const std::string& name) const {
    static const RegionSummary none;
    for (const RegionSummary& r : windows.back().regions)
      if (r.region == name) return r;
    return none;
  }

  std::vector<std::string> warnings;
  RegionRules rules{{}, {}, warnings, true};
  Counters counters;
  KernelNames names{counters};
  std::vector<WindowSummary> windows;
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<DetectedRegions> detected;
  std::unique_ptr<ProgramRegions> program;
  TimeNs now = kOrigin;
  const char* kernel = "some_kernel";
  std::uint32_t launches = 0, opened = 0;
  std::pair<std::uint32_t, TimeNs> behind{0, kOrigin};
  std::vector<std::unique_ptr<InstanceSlot>> slots;
  std::vector<InstanceSlot*> ranges;  ///< that are open
};

TEST_F(ProgramRegionsTest, EachStepHasTheFlopOfItsOwnLengthByTheModelsOwnConfig) {
  begin();
  program->add_model(1, model_from(kSmall));
  double flop = 0;
  for (const std::int64_t seq_len : {16, 32, 8, 64, 16}) {
    train(1, seq_len);
    flop += flop_of(kSmall, Phase::kTrain, 2, seq_len);
  }
  finish();
  const RegionSummary& step = region("step");
  EXPECT_EQ(step.instances, 5u);
  EXPECT_EQ(step.named_by, NamedBy::kInterpreter);
  ASSERT_TRUE(step.flop.has_value());
  EXPECT_NEAR(*step.flop, flop, 1e-9 * flop);
  EXPECT_EQ(step.tokens, 2 * (16 + 32 + 8 + 64 + 16));
  EXPECT_EQ(region("forward").instances, 5u);
  EXPECT_EQ(region("backward").instances, 5u);
  EXPECT_NEAR(*region("forward").flop + *region("backward").flop, flop, 1e-9 * flop);
}

TEST_F(ProgramRegionsTest, AStepIsTheSumOfItsPassesEachByItsOwnModel) {
  begin();
  program->add_model(1, model_from(kSmall));
  program->add_model(2, model_from(kLarge));
  for (int i = 0; i < 6; ++i) {
    pass(2, 0, 2);  // a teacher
    train();
  }
  finish();
  const double flop = 6 * (flop_of(kSmall, Phase::kTrain, 2, 16) + flop_of(kLarge, Phase::kForward, 2, 16));
  EXPECT_EQ(region("step").instances, 6u);
  EXPECT_NEAR(region("step").flop.value_or(0), flop, 1e-9 * flop);
}

/// Models without a config: the products of the first pass of a shape are counted while it runs.
TEST_F(ProgramRegionsTest, AStepWithoutAConfigIsTheSumOfThePassesThatWereCounted) {
  begin();
  constexpr std::uint32_t kStudent = ProgramRegions::kFirstCounted, kTeacher = kStudent + 1;
  for (int i = 0; i < 6; ++i) {
    report(FactKind::kPassBegin, 2, 0, kTeacher);
    launch(10);
    settle();  // its FLOP are not known yet
    if (i == 0) counted(kTeacher, 700, 0);
    report(FactKind::kPassEnd, 2);
    report(FactKind::kPassBegin, 1, kTrain, kStudent);
    launch(10);
    if (i == 0) counted(kStudent, 100, 150);
    report(FactKind::kPassEnd, 1);
    report(FactKind::kBackwardBegin);
    launch(20);
    report(FactKind::kBackwardEnd);
    update();
  }
  finish();
  EXPECT_EQ(region("step").instances, 6u);
  EXPECT_EQ(region("step").flop, 6 * (700 + 100 + 150.0));
  EXPECT_EQ(region("backward").flop, 6 * 150.0);
  EXPECT_EQ(region("step").kernels, 6u * 45);
}

/// The interpreter does not count attention that runs as a custom operator. Its kernels show that it ran.
TEST_F(ProgramRegionsTest, AttentionThatRanAndWasNotCountedLeavesABound) {
  constexpr std::uint32_t kModel = ProgramRegions::kFirstCounted;
  constexpr const char* kAttention = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(int)";
  const ProductTable products;
  for (const auto& [name, mode, known] :
       {std::tuple(kAttention, ProgramFact::kNoAttention, false),
        std::tuple("some_kernel", ProgramFact::kNoAttention, true), std::tuple(kAttention, std::uint8_t{0}, true)}) {
    begin();
    ledger->watch_products(products);
    kernel = name;
    for (int i = 0; i < 6; ++i) {
      if (i == 1) counted(kModel, 100, 200, mode);
      train(kModel);
    }
    finish();
    for (const auto& [kind, flop] : {std::pair("step", 1800.0), std::pair("forward", 600.0)}) {
      EXPECT_EQ(region(kind).instances, 6u);
      EXPECT_EQ(region(kind).flop, known ? std::optional(flop) : std::nullopt) << kind << ", " << name;
    }
  }
}

/// Until a model's config is read, its products are counted, too: the config counts if it can be read.
TEST_F(ProgramRegionsTest, APassWithAConfigThatWasNotReadYetHasItsFlop) {
  for (const bool readable : {false, true}) {
    windows.clear();
    begin();
    if (readable) program->add_model(3, model_from(kLarge));
    for (int i = 0; i < 4; ++i) {
      pass(1, kTrain,
           i == 0 ? 3 * ProgramRegions::kConfig + ProgramRegions::kFirstCounted
                  : (readable ? 3 : ProgramRegions::kFirstCounted));
      if (i == 0) counted(ProgramRegions::kFirstCounted, 100, 200);
      report(FactKind::kBackwardBegin);
      report(FactKind::kBackwardEnd);
      update();
    }
    finish();
    const double each = readable ? flop_of(kLarge, Phase::kForward, 2, 16) : 100.0;
    EXPECT_EQ(region("forward").instances, 4u);
    EXPECT_NEAR(region("forward").flop.value_or(0), 4 * each, 1) << readable;
  }
}

TEST_F(ProgramRegionsTest, APassThatIsCompiledForAMinuteHasItsFlop) {
  begin();
  report(FactKind::kOptimizerMade, 50);
  for (int i = 0; i < 3; ++i) {
    report(FactKind::kPassBegin, 1, kTrain, ProgramRegions::kFirstCounted);
    launch(10);
    if (i == 0) {
      now += 60 * kNsPerSecond;
      settle();
      EXPECT_GT(ledger->now(), kOrigin + 50 * kNsPerSecond);
      counted(ProgramRegions::kFirstCounted, 100, 150);
    }
    report(FactKind::kPassEnd, 1);
    report(FactKind::kBackwardBegin);
    report(FactKind::kBackwardEnd);
    update();
  }
  finish();
  EXPECT_EQ(region("step").instances, 3u);
  EXPECT_EQ(region("step").flop, 3 * 250.0);
  EXPECT_EQ(region("forward").instances, 3u);
  EXPECT_EQ(region("forward").flop, 3 * 100.0);
}

TEST_F(ProgramRegionsTest, ARunOfOneStepHasIt) {
  for (const bool made : {false, true}) {
    windows.clear();
    begin();
    if (made) {
      report(FactKind::kOptimizerMade, 50);
      report(FactKind::kOptimizerMade, 51);
      report(FactKind::kOptimizerGone, 51);
    }
    launch(3);  // the first copies
    train();
    report(FactKind::kOptimizerGone, 50);  // as the interpreter ends
    finish();
    EXPECT_EQ(region("step").instances, 1u) << made;
    EXPECT_EQ(region("optimizer").launches, 5u) << made;
  }
}

TEST_F(ProgramRegionsTest, WhereOnePassIsNotCountedThereIsNoFlop) {
  begin();
  for (int i = 0; i < 4; ++i) {
    train(ProgramRegions::kFirstCounted);
    now += 4 * kWindow;
  }
  finish();
  EXPECT_EQ(region("step").instances, 4u);
  EXPECT_FALSE(region("step").flop.has_value());
}

TEST_F(ProgramRegionsTest, EachLaunchIsInTheRegionInWhichItWasMade) {
  begin();
  for (int i = 0; i < 8; ++i) {
    train();
    launch(3);  // of no step
    if (i % 4 == 3) pass(1, ProgramFact::kTrainable, 0);
  }
  launch(7);
  finish();
  EXPECT_EQ(region("step").instances, 8u);
  EXPECT_EQ(region("eval").instances, 2u);
  EXPECT_EQ(region("step").kernels, 8u * 35);
  EXPECT_EQ(region("eval").kernels, 2u * 10);
  EXPECT_EQ(region("forward").kernels, 8u * 10);
  EXPECT_EQ(region("optimizer").kernels, 8u * 5);
  EXPECT_EQ(program->attributed(), 8u * 35 + 2 * 10);
  EXPECT_EQ(region("total").kernels, launches);
}

/// Random passes of random layers, whose records are settled at random moments, against a count by hand.
TEST_F(ProgramRegionsTest, EachLaunchIsInTheLayerInWhichItWasMade) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&random](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    begin();
    std::map<std::string, std::uint64_t> wanted;
    const auto run = [&](const std::string& region, int most) {
      const int count = up_to(most);
      launch(count);
      wanted[region] += static_cast<std::uint64_t>(count);
      if (up_to(5) == 0) settle();
    };
    for (int step = 0; step < 5; ++step) {
      report(FactKind::kPassBegin, 1, kTrain, 1);
      run("", 3);
      for (int layer = 0; layer < 4; ++layer) {
        report(FactKind::kLayer, 0, 0, static_cast<std::uint32_t>(layer + 1));
        run("layer " + std::to_string(layer), 4);
      }
      report(FactKind::kLayer);
      run("outside of layers", 3);
      report(FactKind::kPassEnd, 1);
      run("", 2);  // the loss
      report(FactKind::kBackwardBegin);
      report(FactKind::kLayer, 0, ProgramFact::kBackward);
      run("outside of layers backward", 3);
      for (int layer = 3; layer >= 0; --layer) {
        report(FactKind::kLayer, 0, ProgramFact::kBackward, static_cast<std::uint32_t>(layer + 1));
        report(FactKind::kLayer, 0, 0, 1);  // of the other direction: no layer is open until the next one begins
        report(FactKind::kLayer, 0, ProgramFact::kBackward, static_cast<std::uint32_t>(layer + 1));
        run("layer " + std::to_string(layer) + " backward", 4);
      }
      report(FactKind::kBackwardEnd);
      update();
    }
    finish();
    std::uint64_t in_layers = 0;
    for (const auto& [name, count] : wanted) {
      if (name.empty()) continue;
      EXPECT_EQ(region(name).launches, count) << name << ", seed " << seed;
      in_layers += count;
    }
    EXPECT_EQ(region("step").launches, in_layers + wanted[""] + 5 * 5) << seed;
    EXPECT_EQ(region("forward").instances, 5u);
  }
}

TEST_F(ProgramRegionsTest, ARangeOfTheProgramHasTheFlopOfThePassesInIt) {
  begin();
  program->add_model(1, model_from(kSmall));
  train();  // before the first range: of no step
  for (const std::int64_t seq_len : {16, 32, 64}) {
    open_range("step");
    launch(1);
    open_range("forward");
    pass(1, kTrain, 1, seq_len);
    close_range();
    open_range("backward");
    report(FactKind::kBackwardBegin);
    report(FactKind::kBackwardEnd);
    close_range(seq_len == 32);
    report(FactKind::kUpdateBegin, 50);
    report(FactKind::kUpdateEnd, 50);
    close_range(seq_len == 64);
  }
  finish();
  const auto sum_of = [](Phase phase) {
    return flop_of(kSmall, phase, 2, 16) + flop_of(kSmall, phase, 2, 32) + flop_of(kSmall, phase, 2, 64);
  };
  EXPECT_EQ(region("step").instances, 3u);
  EXPECT_EQ(region("step").named_by, NamedBy::kRange);
  EXPECT_EQ(region("step").tokens, 2 * (16 + 32 + 64));
  EXPECT_NEAR(region("step").flop.value_or(0), sum_of(Phase::kTrain), 1);
  EXPECT_NEAR(region("forward").flop.value_or(0), sum_of(Phase::kForward), 1);
  EXPECT_NEAR(region("backward").flop.value_or(0), sum_of(Phase::kBackward), 1);
  EXPECT_NEAR(region("total").flop.value_or(0), sum_of(Phase::kTrain), 1);
}

/// The user's config counts, and the shape that the range or the kernels say.
TEST_F(ProgramRegionsTest, WithAConfigThePassesInARangeAddNothing) {
  const FlopsModel given = model_from(kSmall);
  begin(&given);
  open_range("step");
  launch(1);
  train();
  close_range();
  finish();
  EXPECT_TRUE(program->stopped());
  EXPECT_FALSE(region("step").flop.has_value());
}

TEST_F(ProgramRegionsTest, ARangeWithAPassThatIsNotCountedHasNoFlop) {
  begin();
  counted(ProgramRegions::kFirstCounted, 100, 200);
  open_range("step");
  launch(1);
  pass(1, kTrain, ProgramRegions::kFirstCounted);
  pass(2, 0, ProgramRegions::kFirstCounted + 1);
  close_range();
  finish();
  EXPECT_EQ(region("step").instances, 1u);
  EXPECT_FALSE(region("step").flop.has_value());
}

/// A backward pass through gradients has FLOP that are those of no pass: once each, with ranges and without.
TEST_F(ProgramRegionsTest, GradientsOfGradientsCountOnce) {
  constexpr std::uint32_t kModel = ProgramRegions::kFirstCounted, kInput = kModel + 1, kAll = kModel + 2;
  for (const bool named : {false, true}) {
    begin();
    counted(kModel, 100, 150);
    counted(kInput, 30, 30);
    counted(kAll, 500, 500);
    for (int i = 0; i < 4; ++i) {
      if (named) open_range("step");
      pass(1, kTrain, kModel);
      report(FactKind::kMoreWork, 0, 0, kInput);
      report(FactKind::kDropped, 1, kTrain, kModel);
      if (named) open_range("backward");
      report(FactKind::kBackwardBegin);
      report(FactKind::kMoreWork, 0, 0, kAll);
      report(FactKind::kMoreWork, 0, ProgramFact::kBackward, kAll);
      launch(20);
      report(FactKind::kBackwardEnd);
      if (named) close_range();
      update();
      if (named) close_range();
    }
    finish();
    EXPECT_EQ(region("step").flop, 4 * (100 + 30 + 500.0)) << named;
    EXPECT_EQ(region("backward").flop, 4 * 500.0) << named;
  }
}

/// Networks that run, and backward passes that reach some of them, at random, against a count by hand.
TEST_F(ProgramRegionsTest, EachPassInARangeIsTrainedByTheBackwardPassThatReachesIt) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto one_in = [&random](unsigned n) { return random() % n == 0; };
    begin();
    double wanted = 0;
    std::map<std::uint64_t, int> waiting;  // passes of each module whose gradients are not computed yet
    std::map<std::uint64_t, bool> left;    // by a backward pass
    for (std::uint32_t module = 1; module <= 3; ++module)
      counted(ProgramRegions::kFirstCounted + module, 10 * module, 1000 * module);
    for (int step = 0; step < 6; ++step) {
      open_range("step");
      launch(1);
      for (int i = 0; i < 8; ++i) {
        if (const std::uint64_t module = 1 + random() % 3; !one_in(3)) {
          const bool trains = !one_in(3);
          pass(module, trains ? kTrain : ProgramFact::kTraining,
               ProgramRegions::kFirstCounted + static_cast<std::uint32_t>(module));
          wanted += 10.0 * static_cast<double>(module);
          if (left[module]) waiting[module] = 0;
          left[module] = false;
          if (trains) ++waiting[module];
          if (trains && one_in(4)) {
            report(FactKind::kDropped, module, kTrain,
                   ProgramRegions::kFirstCounted + static_cast<std::uint32_t>(module));
            --waiting[module];
          }
        } else {
          report(FactKind::kBackwardBegin);
          for (std::uint64_t reached = 1; reached <= 3; ++reached) {
            if (one_in(2)) {
              report(FactKind::kNotReached, reached);
              left[reached] = waiting[reached] > 0;
            } else {
              wanted += 1000.0 * static_cast<double>(reached) * std::exchange(waiting[reached], 0);
              left[reached] = false;
            }
          }
          report(FactKind::kBackwardEnd);
        }
        if (one_in(4)) settle();
      }
      report(FactKind::kUpdateBegin, 50);
      report(FactKind::kUpdateEnd, 50);
      waiting.clear();
      left.clear();
      close_range(one_in(2));
    }
    finish();
    EXPECT_EQ(region("step").flop, wanted) << seed;
  }
}

/// Steps whose parts, or all of them, are in ranges that are no steps, at random, against a count by hand.
TEST_F(ProgramRegionsTest, AStepIsAroundTheRangesInIt) {
  constexpr std::uint32_t kModel = ProgramRegions::kFirstCounted + 1;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto one_in = [&random](unsigned n) { return random() % n == 0; };
    begin();
    behind = {launches, now};
    const auto settle_now = [&, late = one_in(2)] { late ? settle_behind() : settle(); };
    counted(kModel, 10, 1000);
    std::uint64_t in_steps = 0, outside = 0;
    std::map<std::string, std::uint64_t> wanted;
    const auto launches_of = [&](const std::string& name, const auto& body) {
      const std::uint32_t before = launches;
      body();
      wanted[name] += launches - before;
    };
    const auto in_range = [&](const std::string& name, bool ranged, const auto& body) {
      if (!ranged) return body();
      open_range(name);
      launch(1);
      body();
      launch(one_in(2) ? 1 : 0);
      if (one_in(4)) settle_now();
      close_range(true);
      if (one_in(2)) settle_now();
    };
    double evaluated = 0;
    for (int step = 0; step < 8; ++step) {
      std::uint32_t before = launches;
      if (one_in(3)) launches_of("optimizer", [&] { in_range("optimizer", true, [] {}); });  // that has no pass
      outside += launches - before;
      before = launches;
      const bool whole = one_in(4);
      const auto steps_work = [&] {
        if (one_in(2)) report(FactKind::kFetch);
        const bool forward = one_in(2), backward = one_in(2), update = !whole && one_in(2);
        const auto named = [&](const std::string& name, bool ranged, const auto& body) {
          const auto work = [&] { in_range(name, ranged, body); };
          ranged || !whole ? launches_of(name, work) : work();  // else the range names it
        };
        named("forward", forward, [&] { pass(1, kTrain, kModel); });
        if (one_in(4)) settle_now();
        named("backward", backward, [&] {
          report(FactKind::kBackwardBegin);
          launch(20);
          report(FactKind::kBackwardEnd);
        });
        named("optimizer", update, [&] {
          report(FactKind::kUpdateBegin, 50);
          launch(5);
          report(FactKind::kUpdateEnd, 50);
        });
      };
      if (whole)
        launches_of("optimizer", [&] { in_range("optimizer", true, steps_work); });
      else
        steps_work();
      in_steps += launches - before;
      if (one_in(3)) settle_now();
      before = launches;
      if (one_in(4)) {
        evaluated += 10;
        launches_of("forward", [&] { in_range("forward", true, [&] { pass(1, 0, kModel); }); });
      }
      outside += launches - before;
    }
    finish();
    EXPECT_EQ(region("step").instances, 8u) << seed;
    EXPECT_EQ(region("step").named_by, NamedBy::kInterpreter);
    EXPECT_EQ(region("step").flop, 8 * 1010.0) << seed;
    EXPECT_EQ(region("step").launches, in_steps) << seed;
    EXPECT_EQ(region("total").launches, in_steps + outside) << seed;
    EXPECT_EQ(region("total").flop, 8 * 1010.0 + evaluated) << seed;
    for (const auto& [name, count] : wanted) EXPECT_EQ(region(name).launches, count) << name << ", seed " << seed;
    EXPECT_EQ(region("backward").flop.value_or(0), region("backward").instances * 1000.0) << seed;
    EXPECT_EQ(region("forward").flop.value_or(0), region("forward").instances * 10.0) << seed;
  }
}

/// Several steps in one range, or one that does not end: ranges name regions from then on.
TEST_F(ProgramRegionsTest, ARangeThatIsLongerThanAStepEndsTheSteps) {
  for (const int steps : {0, 2}) {
    begin();
    counted(ProgramRegions::kFirstCounted, 10, 1000);
    for (int i = 0; i < 3; ++i) train(ProgramRegions::kFirstCounted);
    open_range("forward");
    for (int i = 0; i < steps; ++i) train(ProgramRegions::kFirstCounted);
    if (steps == 0) train(ProgramRegions::kFirstCounted), now += 10 * kWindow, settle();
    close_range();
    for (int i = 0; i < 3; ++i) train(ProgramRegions::kFirstCounted);
    finish();
    EXPECT_EQ(region("step").instances, 3u) << steps;
    EXPECT_EQ(region("forward").launches, 3 * 10u + 35 * std::max(steps, 1)) << steps;
  }
}

TEST_F(ProgramRegionsTest, ARangeThatDoesNotEndHoldsNoMoreThanItMay) {
  for (const bool pass : {false, true}) {
    begin();
    train();
    open_range("forward");
    if (pass) report(FactKind::kPassBegin, 1, kTrain, 1);
    for (int i = 0; i < 20; ++i) launch(20'000), settle();
    EXPECT_LE(program->held_bytes(), 2 * ProgramRegions::kMostHeld * sizeof(HeldRecord)) << pass;
    close_range();
    finish();
    EXPECT_EQ(region("forward").launches, 400'000u) << pass;
    windows.clear();
  }
}

TEST_F(ProgramRegionsTest, WithoutFactsTheDetectorGetsEverything) {
  begin();
  launch(100);
  settle();
  finish();
  EXPECT_EQ(program->attributed(), 0u);
  EXPECT_LE(program->held_bytes(), 4096 * sizeof(HeldRecord)) << "what no burst needs may stay";
  EXPECT_EQ(region("total").kernels, 100u);
}

TEST_F(ProgramRegionsTest, NoneWaitsBeforeTheFirstFactAndNoneIsLost) {
  begin();
  program->expect_facts(false);
  launch(100);
  EXPECT_EQ(program->held_bytes(), 0u);
  settle();
  program->expect_facts(true);
  for (int i = 0; i < 4; ++i) train();
  finish();
  EXPECT_EQ(region("step").instances, 4u);
  EXPECT_EQ(region("step").kernels, 4u * 35);
  EXPECT_EQ(region("total").kernels, launches);
}

TEST_F(ProgramRegionsTest, AfterItStoppedNoRecordIsLost) {
  begin();
  for (int i = 0; i < 4; ++i) train();
  report(FactKind::kPassBegin, 1, kTrain, 0);
  launch(10);
  program->stop();
  launch(50);
  report(FactKind::kPassEnd, 1);
  settle();
  finish();
  EXPECT_EQ(region("step").instances, 4u) << "one that was not decided is none";
  EXPECT_EQ(region("total").kernels, launches);
}

TEST_F(ProgramRegionsTest, AFirstStepThatTakesLongHoldsNoWindowBack) {
  begin();
  report(FactKind::kOptimizerMade, 50);
  pass(1, kTrain, 0);
  now += 130 * kNsPerSecond;  // it is compiled
  launch(5);
  settle();
  EXPECT_GT(ledger->now(), kOrigin + 100 * kNsPerSecond);
  report(FactKind::kBackwardBegin);
  report(FactKind::kBackwardEnd);
  update();
  for (int i = 0; i < 5; ++i) train();
  finish();
  EXPECT_EQ(region("step").instances, 6u);
  EXPECT_EQ(region("step").kernels, launches);
}

TEST_F(ProgramRegionsTest, SoDoesASecondOne) {
  begin();
  report(FactKind::kOptimizerMade, 50);
  train();
  pass(1, kTrain, 0);
  now += 130 * kNsPerSecond;
  settle();
  EXPECT_GT(ledger->now(), kOrigin + 100 * kNsPerSecond);
  update();
  for (int i = 0; i < 5; ++i) train();
  finish();
  EXPECT_EQ(region("step").instances, 7u);
}

/// A training step that is compiled as one function reports no pass: a batch, then nothing for a minute, then
/// gradients.
TEST_F(ProgramRegionsTest, AStepWithoutPassesThatIsCompiledForMinutesIsOne) {
  begin();
  report(FactKind::kOptimizerMade, 50);
  for (int i = 0; i < 4; ++i) {
    report(FactKind::kFetch);
    if (i == 0) {
      now += 60 * kNsPerSecond;
      settle();
      launch(5);
    }
    launch(5);
    report(FactKind::kBackwardBegin);
    if (i == 0) {
      now += 60 * kNsPerSecond;
      launch(5);
      settle();
      EXPECT_GT(ledger->now(), kOrigin + 50 * kNsPerSecond);
    }
    report(FactKind::kBackwardEnd);
    update();
  }
  finish();
  EXPECT_EQ(region("step").instances, 4u);
  EXPECT_EQ(region("backward").instances, 4u);
  EXPECT_EQ(region("total").kernels, launches);
}

TEST_F(ProgramRegionsTest, OfTwoOptimizersItIsNotKnownWhetherTheFirstStepIsOver) {
  begin();
  report(FactKind::kOptimizerMade, 50);
  report(FactKind::kOptimizerMade, 51);
  pass(1, kTrain, 0);
  now += 130 * kNsPerSecond;
  settle();
  EXPECT_GT(ledger->now(), kOrigin + 100 * kNsPerSecond);
  for (int i = 0; i < 5; ++i) {
    report(FactKind::kBackwardBegin);
    report(FactKind::kBackwardEnd);
    update();
    report(FactKind::kUpdateBegin, 51);
    report(FactKind::kUpdateEnd, 51);
    pass(1, kTrain, 0);
  }
  settle();
  finish();
  EXPECT_EQ(region("step").instances, 4u) << "the first one passed by";
}

TEST_F(ProgramRegionsTest, AConfigThatContradictsTheModelIsReported) {
  const FlopsModel given = model_from(kLarge);
  begin(&given);
  program->add_model(1, model_from(kSmall));
  for (int i = 0; i < 3; ++i) train();
  finish();
  EXPECT_NEAR(region("step").flop.value_or(0), 3 * flop_of(kLarge, Phase::kTrain, 2, 16), 1);
  EXPECT_EQ(program->take_notices().size(), 1u);
}

}  // namespace
}  // namespace mfu

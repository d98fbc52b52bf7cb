// Made programs, whose steps are known because the test makes them.
#include "core/program/program_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/program/range_passes.h"

namespace mfu {
namespace {

using Kind = ProgramMark::Kind;
using Region = ProgramRegion;

constexpr std::uint8_t kTrain = ProgramFact::kGradients | ProgramFact::kTraining | ProgramFact::kTrainable;
constexpr std::uint8_t kEvaluate = ProgramFact::kTrainable;
constexpr std::uint8_t kFrozen = 0;

/// Reports what a program does, 10 ns and 3 launches each.
class Program {
 public:
  void report(FactKind kind, std::uint64_t subject = 0, std::uint8_t mode = 0, std::int64_t batch = 2,
              std::int64_t seq_len = 8, std::int64_t context = -1) {
    ProgramFact fact;
    fact.kind = kind;
    fact.mode = mode;
    fact.thread = thread;
    fact.subject = subject;
    fact.at = now += 10;
    fact.launch = static_cast<CorrelationId>(launches += 3);
    fact.shape.set(ShapeWords::kBatch, batch);
    fact.shape.set(ShapeWords::kSeqLen, seq_len);
    if (context >= 0) fact.shape.set(ShapeWords::kContext, context);
    steps.add(fact);
    for (const ProgramMark& mark : steps.take()) marks.push_back(mark);
  }
  void pass(std::uint64_t module, std::uint8_t mode, std::int64_t seq_len = 8, std::int64_t context = -1) {
    report(FactKind::kPassBegin, module, mode, 2, seq_len, context);
    report(FactKind::kPassEnd, module);
  }
  void backward() {
    report(FactKind::kBackwardBegin);
    report(FactKind::kBackwardEnd);
  }
  void update(std::uint64_t optimizer) {
    report(FactKind::kUpdateBegin, optimizer);
    report(FactKind::kUpdateEnd, optimizer);
    updated.push_back(now);
  }
  void fetch() { report(FactKind::kFetch); }
  void train(std::uint64_t module, std::uint64_t optimizer, int micro_steps = 1) {
    for (int i = 0; i < micro_steps; ++i) {
      fetch();
      pass(module, kTrain);
      backward();
    }
    update(optimizer);
  }
  void generate(std::uint64_t module, int tokens) {
    pass(module, ProgramFact::kCache, 16, 0);
    for (int i = 0; i < tokens; ++i) pass(module, ProgramFact::kCache, 1, 16 + i);
  }
  /// A backward pass that computes no gradients of `module`; 0: of all.
  void backward_without(std::uint64_t module) {
    report(FactKind::kBackwardBegin);
    if (module != 0) report(FactKind::kNotReached, module);
    report(FactKind::kBackwardEnd);
  }
  void end() {
    steps.flush();
    for (const ProgramMark& mark : steps.take()) marks.push_back(mark);
  }

  [[nodiscard]] std::size_t count(Kind kind, Region region) const {
    return static_cast<std::size_t>(std::count_if(
        marks.begin(), marks.end(), [&](const ProgramMark& m) { return m.kind == kind && m.region == region; }));
  }
  [[nodiscard]] std::size_t opened(Region region) const { return count(Kind::kOpen, region); }
  /// Regions of that kind that no step is around.
  [[nodiscard]] std::size_t outside(Region region) const {
    std::size_t found = 0;
    bool in_step = false;
    for (const ProgramMark& m : marks) {
      if (m.region == Region::kStep && m.kind != Kind::kWork) in_step = m.kind == Kind::kOpen;
      found += m.kind == Kind::kOpen && m.region == region && !in_step ? 1 : 0;
    }
    return found;
  }
  /// When steps began and ended.
  [[nodiscard]] std::vector<std::pair<TimeNs, TimeNs>> spans() const {
    std::vector<std::pair<TimeNs, TimeNs>> found;
    for (const ProgramMark& m : marks) {
      if (m.region != Region::kStep || m.kind == Kind::kWork) continue;
      if (m.kind == Kind::kOpen)
        found.emplace_back(m.at, 0);
      else
        found.back().second = m.at;
    }
    return found;
  }
  /// Marks nest, and come in the order of time and of launches.
  void expect_well_formed() const {
    std::vector<Region> open;
    TimeNs last = 0;
    std::uint32_t launch = 0;
    for (const ProgramMark& m : marks) {
      EXPECT_GE(m.at, last);
      EXPECT_GE(raw(m.launch), launch);
      last = m.at;
      launch = raw(m.launch);
      if (m.kind == Kind::kOpen) {
        open.push_back(m.region);
      } else if (m.kind == Kind::kClose) {
        ASSERT_FALSE(open.empty());
        EXPECT_EQ(open.back(), m.region);
        open.pop_back();
      } else {
        ASSERT_FALSE(open.empty());
        EXPECT_EQ(open.front(), Region::kStep);
      }
    }
  }

  ProgramSteps steps;
  std::vector<ProgramMark> marks;
  std::vector<TimeNs> updated;
  std::uint32_t thread = 1;
  TimeNs now = 0;
  std::uint32_t launches = 0;
};

TEST(ProgramSteps, AStepOfAnyAccumulationEndsWithItsUpdate) {
  for (const int micro_steps : {1, 2, 4, 7}) {
    Program p;
    p.report(FactKind::kOptimizerMade, 50);
    for (int i = 0; i < 10; ++i) p.train(1, 50, micro_steps);
    p.expect_well_formed();
    const auto spans = p.spans();
    ASSERT_EQ(spans.size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(spans[i].second, p.updated[i]);
    EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 10u * static_cast<std::size_t>(micro_steps));
    EXPECT_EQ(p.opened(Region::kForward), p.count(Kind::kWork, Region::kStep));
    EXPECT_EQ(p.opened(Region::kBackward), p.count(Kind::kWork, Region::kStep));
  }
}

TEST(ProgramSteps, AStepBeginsWithTheFetchOfItsFirstBatch) {
  Program p;
  std::vector<TimeNs> fetched;
  for (int i = 0; i < 5; ++i) {
    fetched.push_back(p.now + 10);
    p.train(1, 50, 2);
  }
  const auto spans = p.spans();
  ASSERT_EQ(spans.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(spans[i].first, fetched[i]);
}

TEST(ProgramSteps, AfterTheSecondUpdateNothingWaits) {
  Program p;
  p.train(1, 50);
  EXPECT_TRUE(p.marks.empty());
  for (int i = 1; i < 6; ++i) {
    p.train(1, 50);
    EXPECT_EQ(p.spans().size(), static_cast<std::size_t>(i + 1));
    EXPECT_EQ(p.steps.undecided(), nullptr);
  }
}

TEST(ProgramSteps, AnEvaluationIsNoPartOfAStep) {
  Program p;
  for (int i = 0; i < 20; ++i) {
    p.train(1, 50, 4);
    if (i % 5 != 4) continue;
    for (int k = 0; k < 3; ++k) {
      p.fetch();
      p.pass(1, kEvaluate);
    }
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 20u);
  EXPECT_EQ(p.opened(Region::kEval), 12u);
  EXPECT_EQ(p.outside(Region::kEval), 12u);
}

TEST(ProgramSteps, AnEvaluationAfterEachStepIsNoneEither) {
  Program p;
  for (int i = 0; i < 10; ++i) {
    p.train(1, 50);
    p.pass(1, kEvaluate);
  }
  p.end();
  EXPECT_EQ(p.spans().size(), 10u);
  EXPECT_EQ(p.outside(Region::kEval), 10u);
}

TEST(ProgramSteps, AnotherModelThatIsEvaluatedNowAndThenIsNoPartOfAStep) {
  Program p;
  for (int i = 0; i < 12; ++i) {
    p.train(1, 50);
    if (i % 3 == 2) p.pass(2, kFrozen);
  }
  p.end();
  EXPECT_EQ(p.spans().size(), 12u);
  EXPECT_EQ(p.outside(Region::kEval), 4u);
}

/// As L-BFGS and Lightning do: optimizer.step(closure), which runs the passes.
TEST(ProgramSteps, PassesInsideOfAnUpdateAreNotItsOwnTime) {
  for (const int evaluations : {1, 3}) {
    Program p;
    p.report(FactKind::kOptimizerMade, 50);
    for (int i = 0; i < 10; ++i) {
      p.fetch();
      p.report(FactKind::kUpdateBegin, 50);
      for (int k = 0; k < evaluations; ++k) {
        p.pass(1, kTrain);
        p.backward();
      }
      p.report(FactKind::kUpdateEnd, 50);
      p.updated.push_back(p.now);
    }
    p.end();
    p.expect_well_formed();
    const auto spans = p.spans();
    ASSERT_EQ(spans.size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(spans[i].second, p.updated[i]);
    EXPECT_EQ(p.opened(Region::kUpdate), 10u);
    EXPECT_EQ(p.opened(Region::kForward), 10u * static_cast<std::size_t>(evaluations));
    TimeNs began = 0;
    for (const ProgramMark& m : p.marks) {
      if (m.region != Region::kUpdate) continue;
      if (m.kind == Kind::kOpen)
        began = m.at;
      else
        EXPECT_EQ(m.at - began, 10) << "the time behind its last pass alone";
    }
  }
}

TEST(ProgramSteps, ATeacherIsAPartOfEachStepFromTheFirst) {
  Program p;
  for (int i = 0; i < 10; ++i) {
    p.fetch();
    p.pass(2, kFrozen);
    p.pass(1, kTrain);
    p.backward();
    p.update(50);
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 10u);
  EXPECT_EQ(p.outside(Region::kForward) + p.outside(Region::kEval), 0u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 10u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kForward), 10u) << "forward only";
}

TEST(ProgramSteps, ATeacherBetweenPassesIsAPartOfAStep) {
  Program p;
  for (int i = 0; i < 4; ++i) {
    p.pass(1, kTrain);
    p.pass(2, kFrozen);
    p.backward();
    p.update(50);
  }
  EXPECT_EQ(p.spans().size(), 4u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kForward), 4u);
}

TEST(ProgramSteps, TwoNetworksThatTakeTurnsAreOneStep) {
  for (const bool made : {true, false}) {
    Program p;
    if (made) {
      p.report(FactKind::kOptimizerMade, 50);
      p.report(FactKind::kOptimizerMade, 51);
    }
    for (int i = 0; i < 30; ++i) {
      p.pass(1, kTrain);
      p.pass(2, kTrain);
      p.backward();
      p.update(51);
      p.pass(2, kTrain);
      p.backward();
      p.update(50);
    }
    p.expect_well_formed();
    EXPECT_EQ(p.spans().size(), 30u) << made;
  }
}

/// A generator's output is detached for the critic: that pass has no backward work.
TEST(ProgramSteps, APassThatNoGradientReachesRanForwardOnly) {
  Program p;
  for (int i = 0; i < 10; ++i) {
    p.pass(1, kTrain);
    p.pass(2, kTrain);
    p.backward_without(1);
    p.update(51);
    p.pass(1, kTrain);
    p.pass(2, kTrain);
    p.backward();
    p.update(50);
  }
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 10u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 30u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kForward), 10u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kBackward), 30u);
}

TEST(ProgramSteps, GradientsOfGradientsAreWorkOfTheStepAndOfItsBackwardPass) {
  Program p;
  for (int i = 0; i < 4; ++i) {
    p.pass(1, kTrain);
    p.report(FactKind::kMoreWork);
    p.report(FactKind::kBackwardBegin);
    p.report(FactKind::kMoreWork, 0, ProgramFact::kBackward);
    p.report(FactKind::kBackwardEnd);
    p.update(50);
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 4u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kForward), 4u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kBackward), 8u);
}

TEST(ProgramSteps, ARunOfOneStepHasItThoughItsOptimizersAreGone) {
  Program p;
  p.report(FactKind::kOptimizerMade, 50);
  p.report(FactKind::kOptimizerMade, 51);
  p.pass(1, kTrain);
  p.backward();
  p.update(51);
  p.pass(1, kTrain);
  p.backward();
  p.update(50);
  p.report(FactKind::kOptimizerGone, 50);
  p.report(FactKind::kOptimizerGone, 51);
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 1u);
}

/// One pass of the generator serves both halves of a step: the critic's backward pass leaves it out, the generator's
/// own reaches it. A picture for the log before that, made with gradients, is never trained.
TEST(ProgramSteps, APassThatABackwardPassLeavesOutWaitsForAnother) {
  Program p;
  for (int i = 0; i < 10; ++i) {
    const bool picture = i % 5 == 4;
    if (picture) p.pass(1, kTrain);
    p.pass(2, kTrain);
    p.backward_without(picture ? 1 : 0);
    p.pass(1, kTrain);
    p.pass(2, kTrain);
    p.backward_without(1);
    p.update(51);
    p.pass(2, kTrain);
    p.backward();
    p.update(50);
  }
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 10u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 40u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kForward), 2u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kBackward), 40u);
}

/// A batch with a loss that is no number is left out, and a second pass of the model that is trained chooses actions.
TEST(ProgramSteps, APassWhoseResultIsGoneRanForwardOnly) {
  Program p;
  for (int i = 0; i < 10; ++i) {
    const bool left_out = i % 5 == 4;
    if (left_out) {
      p.pass(1, kTrain);
      p.report(FactKind::kDropped, 1, kTrain);
    }
    p.pass(1, kTrain, 16);
    p.report(FactKind::kDropped, 1, kTrain, 2, 32);  // of another length: none is waiting
    p.pass(1, kTrain);
    p.report(FactKind::kDropped, 1, kTrain, 2, 16);
    p.backward();
    p.update(50);
  }
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 10u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 10u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kForward), 12u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kBackward), 10u);
}

TEST(ProgramSteps, WhereNoBackwardPassIsReportedPassesAreTrainedAllTheSame) {
  Program p;
  for (int i = 0; i < 5; ++i) {
    p.pass(1, kTrain);
    p.update(50);
  }
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 5u);
}

TEST(ProgramSteps, ACriticMakesSeveralUpdatesOfAStep) {
  for (const int critics : {2, 3, 5, 20}) {
    Program p;
    p.report(FactKind::kOptimizerMade, 50);
    p.report(FactKind::kOptimizerMade, 51);
    for (int i = 0; i < 8; ++i) {
      for (int k = 0; k < critics; ++k) p.train(2, 51);
      p.train(1, 50);
    }
    EXPECT_EQ(p.spans().size(), 8u) << critics;
  }
}

TEST(ProgramSteps, AnOptimizerThatIsNeverUsedIsForgottenAndNoStepIsLost) {
  Program p;
  p.report(FactKind::kOptimizerMade, 50);
  p.report(FactKind::kOptimizerMade, 51);
  for (int i = 0; i < 100; ++i) p.train(1, 50);
  EXPECT_EQ(p.spans().size(), 100u);
}

TEST(ProgramSteps, AnOptimizerThatTakesOverCostsTenUpdatesAtMost) {
  Program p;
  for (int i = 0; i < 20; ++i) p.train(1, 50);
  for (int i = 0; i < 30; ++i) p.train(2, 51);
  EXPECT_GE(p.spans().size(), 40u);
  Program q;  // and none where the first one is gone
  for (int i = 0; i < 20; ++i) q.train(1, 50);
  q.report(FactKind::kOptimizerGone, 50);
  for (int i = 0; i < 30; ++i) q.train(2, 51);
  EXPECT_EQ(q.spans().size(), 50u);
}

TEST(ProgramSteps, WhatIsGeneratedForEachStepIsAPartOfIt) {
  Program p;
  for (int i = 0; i < 6; ++i) {
    p.generate(1, 5);
    p.pass(2, kFrozen);
    p.pass(1, kTrain);
    p.backward();
    p.update(50);
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 6u);
  EXPECT_EQ(p.opened(Region::kPrefill), 6u);
  EXPECT_EQ(p.opened(Region::kDecode), 30u);
  EXPECT_EQ(p.outside(Region::kDecode), 0u);
}

TEST(ProgramSteps, WhatIsGeneratedNowAndThenIsNone) {
  Program p;
  for (int i = 0; i < 12; ++i) {
    p.train(1, 50);
    if (i % 4 == 3) p.generate(1, 5);
  }
  p.end();
  EXPECT_EQ(p.spans().size(), 12u);
  EXPECT_EQ(p.outside(Region::kDecode), 15u);
  EXPECT_EQ(p.outside(Region::kPrefill), 3u);
}

TEST(ProgramSteps, AProgramThatOnlyGeneratesIsReportedAsItRuns) {
  Program p;
  for (int i = 0; i < 4; ++i) {
    p.generate(1, 31);
    if (i > 1) {
      EXPECT_EQ(p.steps.undecided(), nullptr);
    }
  }
  p.expect_well_formed();
  EXPECT_EQ(p.opened(Region::kPrefill), 4u);
  EXPECT_EQ(p.opened(Region::kDecode), 124u);
  EXPECT_FALSE(p.steps.trains());
}

/// One generation by a module with a cache of its own. `sure`: the first pass with one token whose end says so.
void generate_unseen(Program& p, int tokens, int sure, std::int64_t batch = 2) {
  p.report(FactKind::kPassBegin, 1, 0, batch, 16);
  p.report(FactKind::kPassEnd, 1);
  for (int i = 0; i < tokens; ++i) {
    p.report(FactKind::kPassBegin, 1, 0, batch, 1);
    p.report(FactKind::kPassEnd, 1, i >= sure ? ProgramFact::kCache : 0);
  }
}

TEST(ProgramSteps, AModuleMayKeepItsCacheItself) {
  for (const int sure : {0, 1}) {  // as its attention says, or the products of a further token
    Program p;
    for (int i = 0; i < 8; ++i) {
      generate_unseen(p, 31, i == 0 ? sure : 0);
      if (i > 4) {
        EXPECT_EQ(p.steps.undecided(), nullptr);
      }
    }
    p.end();
    p.expect_well_formed();
    EXPECT_EQ(p.opened(Region::kPrefill), 8u);
    EXPECT_EQ(p.opened(Region::kDecode), 8u * 31);
    EXPECT_EQ(p.opened(Region::kForward), 0u);
  }
}

TEST(ProgramSteps, APassBeforeAnotherBatchOrModuleIsNoPrefill) {
  Program p;
  for (int i = 0; i < 70; ++i) {
    p.report(FactKind::kPassBegin, 1, 0, 3, 16);
    p.report(FactKind::kPassEnd, 1);
    p.pass(2, kFrozen, 1);
    generate_unseen(p, 3, 0);
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.opened(Region::kPrefill), 70u);
  EXPECT_EQ(p.opened(Region::kDecode), 210u);
  EXPECT_EQ(p.opened(Region::kForward), 140u);
}

TEST(ProgramSteps, WithoutSignsOfACacheNothingWaitsForThem) {
  Program p;
  for (int i = 0; i < 200; ++i) {
    p.pass(1, kFrozen, i % 3 == 0 ? 16 : 1);
    if (i > 128) {
      EXPECT_EQ(p.steps.undecided(), nullptr);
    }
  }
  EXPECT_EQ(p.opened(Region::kForward), 200u);
}

TEST(ProgramSteps, EvaluationOfAModuleWithACacheIsNone) {
  Program p;
  for (int i = 0; i < 12; ++i) {
    p.train(1, 50);
    if (i % 4 != 3) continue;
    for (int k = 0; k < 3; ++k) p.pass(1, kEvaluate, 16);
    generate_unseen(p, 5, 0);
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 12u);
  EXPECT_EQ(p.outside(Region::kEval), 9u);
  EXPECT_EQ(p.outside(Region::kPrefill), 3u);
  EXPECT_EQ(p.outside(Region::kDecode), 15u);
}

TEST(ProgramSteps, ThePassHasTheModelOfItsEnd) {
  Program p;
  const auto pass = [&p](std::uint64_t module, std::uint8_t mode, std::uint32_t begin, std::uint32_t end) {
    for (const bool ends : {false, true}) {
      ProgramFact fact;
      fact.kind = ends ? FactKind::kPassEnd : FactKind::kPassBegin;
      fact.mode = ends ? 0 : mode;
      fact.subject = module;
      fact.thread = 1;
      fact.model = ends ? end : begin;
      fact.at = p.now += 10;
      fact.launch = static_cast<CorrelationId>(p.launches += 3);
      if (!ends) fact.shape.set(ShapeWords::kBatch, 5);
      p.steps.add(fact);
    }
  };
  for (std::uint32_t i = 0; i < 4; ++i) {
    pass(1, kTrain, 7, i == 2 ? 8 : 0);
    pass(2, kFrozen, 9, i == 2 ? 10 : 0);
    p.backward();
    p.update(50);
    pass(1, kEvaluate, 11, i == 2 ? 12 : 0);
  }
  p.end();
  p.expect_well_formed();
  std::vector<std::uint32_t> works, evaluations;
  for (const ProgramMark& m : p.marks) {
    if (m.kind == Kind::kWork && m.region != Region::kBackward) works.push_back(m.model);
    if (m.kind == Kind::kOpen && m.region == Region::kEval) evaluations.push_back(m.model);
    if (m.kind == Kind::kClose && m.model != 0) {  // of the forward pass, which keeps its shape
      EXPECT_EQ(m.shape.value[ShapeWords::kBatch], 5);
    }
  }
  EXPECT_EQ(works, (std::vector<std::uint32_t>{9, 7, 9, 7, 10, 8, 9, 7}));
  EXPECT_EQ(evaluations, (std::vector<std::uint32_t>{11, 11, 12, 11}));
}

TEST(RangePasses, ThePassHasTheModelOfItsEnd) {
  RangePasses passes;
  ProgramFact fact;
  fact.mode = kTrain;
  for (const auto& [kind, model] : {std::pair{FactKind::kPassBegin, 7u},
                                    {FactKind::kPassEnd, 8u},
                                    {FactKind::kBackwardBegin, 0u},
                                    {FactKind::kBackwardEnd, 0u}}) {
    fact.kind = kind;
    fact.model = model;
    passes.add(fact);
  }
  const std::vector<ProgramMark> found = passes.take();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].model, 8u);
  EXPECT_EQ(found[1].model, 8u);
}

TEST(ProgramSteps, APassInEvaluationModeIsTrainedWhereABackwardPassFollows) {
  constexpr std::uint8_t kMode = ProgramFact::kGradients | ProgramFact::kTrainable;
  Program p;
  for (int i = 0; i < 8; ++i) {
    p.pass(1, kMode);
    p.backward();
    p.update(50);
    if (i % 4 == 3) p.pass(1, kMode);  // an evaluation that forgot no_grad
  }
  p.end();
  EXPECT_EQ(p.spans().size(), 8u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 8u);
  EXPECT_EQ(p.outside(Region::kEval), 2u);
}

TEST(ProgramSteps, AnUpdateThatAsksForThePassIsAStep) {  // LBFGS
  Program p;
  for (int i = 0; i < 5; ++i) {
    p.report(FactKind::kUpdateBegin, 50);
    for (int k = 0; k < 3; ++k) {
      p.pass(1, kTrain);
      p.backward();
    }
    p.report(FactKind::kUpdateEnd, 50);
  }
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 5u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 15u);
}

TEST(ProgramSteps, ALoopThatIsCompiledWholeHasStepsWithoutPasses) {
  Program p;
  for (int i = 0; i < 9; ++i) p.update(50);
  const auto spans = p.spans();
  ASSERT_EQ(spans.size(), 9u);
  for (std::size_t i = 1; i < 9; ++i) EXPECT_EQ(spans[i].first, spans[i - 1].second);
}

TEST(ProgramSteps, ABackwardPassIsThatOfThePassesBeforeIt) {
  Program p;
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 2; ++k) p.pass(1, kTrain);
    p.backward();
    p.pass(1, kTrain);
    p.backward();
    p.update(50);
  }
  p.expect_well_formed();
  EXPECT_EQ(p.count(Kind::kWork, Region::kBackward), 9u);
  EXPECT_EQ(p.opened(Region::kBackward), 6u);
}

TEST(ProgramSteps, OtherThreadsInsideAPassAreAPartOfIt) {  // DataParallel
  Program p;
  for (int i = 0; i < 5; ++i) {
    p.report(FactKind::kPassBegin, 1, kTrain);
    for (const std::uint32_t replica : {2u, 3u}) {
      p.thread = replica;
      p.pass(10 + replica, kTrain);
    }
    p.thread = 1;
    p.report(FactKind::kPassEnd, 1);
    p.backward();
    p.update(50);
  }
  EXPECT_FALSE(p.steps.confused());
  EXPECT_EQ(p.spans().size(), 5u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 5u);
}

TEST(ProgramSteps, AnOptimizerMayStepWhileGradientsAreComputed) {  // on the thread that computes them
  Program p;
  for (int step = 0; step < 6; ++step) {
    p.pass(1, kTrain);
    p.report(FactKind::kBackwardBegin);
    p.thread = 2;
    for (std::uint64_t parameter = 50; parameter < 54; ++parameter) p.update(parameter);
    p.thread = 1;
    p.report(FactKind::kBackwardEnd);
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 6u);
  EXPECT_EQ(p.opened(Region::kBackward), 6u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 6u);
  EXPECT_FALSE(p.steps.confused());
}

TEST(ProgramSteps, AReplayedGraphIsAStepWhosePartsAreNotKnown) {
  constexpr std::uint8_t kReplayed = ProgramFact::kReplayed;
  Program p;
  for (int step = 0; step < 3; ++step) p.train(1, 50);
  for (int step = 0; step < 5; ++step) {
    p.pass(1, kTrain | kReplayed);
    p.report(FactKind::kBackwardBegin, 0, kReplayed);
    p.report(FactKind::kBackwardEnd, 0, kReplayed);
    p.report(FactKind::kUpdateBegin, 50, kReplayed);
    p.report(FactKind::kUpdateEnd, 50, kReplayed);
  }
  p.end();
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 8u);
  EXPECT_EQ(p.opened(Region::kForward) + p.opened(Region::kBackward) + p.opened(Region::kUpdate), 9u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kStep), 8u);
  EXPECT_EQ(p.count(Kind::kWork, Region::kBackward), 3u);
}

TEST(ProgramSteps, ThreadsThatOverlapAreSaidToBe) {
  Program p;
  p.report(FactKind::kPassBegin, 1, kTrain);
  p.thread = 2;
  p.report(FactKind::kPassBegin, 2, kTrain);
  p.thread = 1;
  p.report(FactKind::kPassEnd, 1);
  EXPECT_TRUE(p.steps.confused());
}

TEST(ProgramSteps, TrainingWithoutAnOptimizerIsLeftToOthers) {
  Program p;
  for (int i = 0; i < 50; ++i) {
    p.pass(1, kTrain);
    p.backward();
  }
  p.end();
  EXPECT_TRUE(p.marks.empty());
  EXPECT_EQ(p.steps.undecided(), nullptr);
}

TEST(ProgramSteps, WhatEndsAndNeverBeganIsIgnored) {
  Program p;
  p.report(FactKind::kPassEnd, 1);
  p.report(FactKind::kUpdateEnd, 50);
  for (int i = 0; i < 3; ++i) p.train(1, 50);
  p.expect_well_formed();
  EXPECT_EQ(p.spans().size(), 3u);
}

TEST(ProgramSteps, MemoryIsBounded) {
  Program p;
  p.report(FactKind::kOptimizerMade, 50);
  for (std::size_t i = 0; i < ProgramSteps::kMostWaiting; ++i) p.pass(1, kFrozen);
  EXPECT_GT(p.opened(Region::kForward), ProgramSteps::kMostWaiting / 4);
  p.end();
  EXPECT_EQ(p.opened(Region::kForward), ProgramSteps::kMostWaiting);
}

/// Any mixture of accumulation, optimizers, teachers and evaluations, each drawn once for a program: as many steps as
/// cycles, each ending with its last update, and no evaluation inside of one.
TEST(ProgramSteps, AnyMixtureHasTheStepsItWasMadeOf) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](int most) { return static_cast<int>(random() % static_cast<std::uint32_t>(most + 1)); };
    const int micro_steps = 1 + draw(5), networks = 1 + draw(2), teachers = draw(2), every = 2 + draw(5);
    const int critics = 1 + draw(3), cycles = 8 + draw(20);
    const bool made = draw(1) == 1 || critics > 1, fetches = draw(1) == 1, generates = draw(2) == 0;
    Program p;
    std::vector<TimeNs> ends;
    std::size_t evaluated = 0, trained = 0;
    for (int n = 0; made && n < networks; ++n) p.report(FactKind::kOptimizerMade, 50 + static_cast<std::uint64_t>(n));
    for (int c = 0; c < cycles; ++c) {
      if (generates) p.generate(1, 3);
      for (int t = 0; t < teachers; ++t) p.pass(20 + static_cast<std::uint64_t>(t), kFrozen);
      for (int n = 0; n < networks; ++n) {
        for (int k = 0; k < (n == 0 && networks > 1 ? critics : 1); ++k) {
          for (int m = 0; m < micro_steps; ++m, ++trained) {
            if (fetches) p.fetch();
            p.pass(1 + static_cast<std::uint64_t>(n), kTrain, 8 + draw(100));
            p.backward();
          }
          p.update(50 + static_cast<std::uint64_t>(n));
        }
      }
      ends.push_back(p.now);
      if (c % every != every - 1) continue;
      for (int k = 0; k < 3; ++k, ++evaluated) p.pass(1, kEvaluate);
    }
    p.end();
    p.expect_well_formed();
    const auto spans = p.spans();
    ASSERT_EQ(spans.size(), ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(spans[i].second, ends[i]);
    EXPECT_EQ(p.outside(Region::kEval), evaluated);
    EXPECT_EQ(p.opened(Region::kEval), evaluated);
    EXPECT_EQ(p.count(Kind::kWork, Region::kStep), trained);
    EXPECT_EQ(p.outside(Region::kForward), 0u);
    EXPECT_EQ(p.outside(Region::kDecode), 0u);
  }
}

}  // namespace
}  // namespace mfu

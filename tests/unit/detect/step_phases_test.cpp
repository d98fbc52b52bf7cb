// Phases of training steps made up here, by threads and by names.
#include "core/detect/step_phases.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/unit/detect/made_launches.h"

namespace mfu {
namespace {

constexpr std::uint32_t kCaller = 11, kEngine = 12, kLoader = 13;

void append(Launches& to, Launches what, std::uint32_t thread) {
  for (Launch& launch : what) {
    launch.thread = thread;
    to.push_back(launch);
  }
}

Launches forward(int layers) {
  Launches out{copy(KernelRole::kCopyToDevice), kernel(1, KernelRole::kEmbedding)};
  for (int i = 0; i < layers; ++i)
    for (const Launch& l : {kernel(2, KernelRole::kNorm), kernel(3, KernelRole::kGemm),
                            kernel(4, KernelRole::kAttention), kernel(5, KernelRole::kElementwise)})
      out.push_back(l);
  out.push_back(kernel(6, KernelRole::kLoss));
  return out;
}
Launches backward(int layers, bool recomputed = false) {
  Launches out{kernel(20, KernelRole::kSoftmaxBackward)};
  for (int i = 0; i < layers; ++i) {
    if (recomputed)
      for (const Launch& l : {kernel(2, KernelRole::kNorm), kernel(3, KernelRole::kGemm),
                              kernel(4, KernelRole::kAttention), kernel(5, KernelRole::kElementwise)})
        out.push_back(l);
    for (const Launch& l : {kernel(21), kernel(22, KernelRole::kGemm), kernel(22, KernelRole::kGemm),
                            kernel(23, KernelRole::kAttentionBackward), kernel(24, KernelRole::kNormBackward)})
      out.push_back(l);
  }
  out.push_back(kernel(25, KernelRole::kComm));
  return out;
}
Launches update(bool named, int parameters) {
  Launches out{kernel(30, named ? KernelRole::kForeach : KernelRole::kElementwise)};
  for (int i = 0; i < parameters; ++i)
    out.push_back(kernel(31, named ? KernelRole::kOptimizer : KernelRole::kElementwise));
  return out;
}

/// A step with its truth.
struct KnownStep {
  Launches launches;
  std::vector<StepPhase> truth;
  void add(StepPhase phase, const Launches& what) {
    append(launches, what, phase == StepPhase::kBackward ? kEngine : kCaller);
    truth.insert(truth.end(), what.size(), phase);
  }
};

Launches without_threads(Launches launches) {
  for (Launch& launch : launches) launch.thread = 0;
  return launches;
}

/// Launches in the wrong phase; all of them if there is a gap.
std::size_t wrong(const StepPhases& phases, const KnownStep& step) {
  std::size_t count = 0, at = 0;
  for (const PhaseSpan& span : phases.spans()) {
    if (span.begin != at || span.end <= span.begin) return step.launches.size();
    for (; at < span.end; ++at) count += step.truth.at(at) != span.phase ? 1 : 0;
  }
  return at == step.launches.size() ? count : step.launches.size();
}

TEST(StepPhases, OfRandomStepsWithAccumulation) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  StepPhases phases;
  for (int i = 0; i < 300; ++i) {
    const int layers = between(4, 40), passes = between(1, 8);
    const bool recomputed = between(0, 1) == 1, named = between(0, 1) == 1;
    KnownStep step;
    for (int p = 0; p < passes; ++p) {
      step.add(StepPhase::kForward, forward(layers));
      step.add(StepPhase::kBackward, backward(layers, recomputed));
    }
    step.add(StepPhase::kOptimizer, update(named, between(5, 60)));
    SCOPED_TRACE(std::to_string(layers) + " layers, " + std::to_string(passes) + " passes" +
                 (recomputed ? ", recomputed" : "") + (named ? ", named" : ""));
    ASSERT_EQ(phases.cut(step.launches), PhaseRule::kThreads);
    EXPECT_EQ(wrong(phases, step), 0u);
    EXPECT_EQ(phases.spans().size(), static_cast<std::size_t>(2 * passes + 1));
    ASSERT_EQ(phases.cut(without_threads(step.launches)), PhaseRule::kNames);
    EXPECT_LE(wrong(phases, step), static_cast<std::size_t>(2 * passes + 2));
    EXPECT_EQ(phases.spans().size(), static_cast<std::size_t>(2 * passes + 1));
  }
}

TEST(StepPhases, CopiesOfALoaderBelongToWhatRunsAroundThem) {
  KnownStep step;
  step.add(StepPhase::kForward, forward(10));
  step.add(StepPhase::kBackward, backward(10));
  step.add(StepPhase::kOptimizer, update(true, 10));
  for (const std::size_t at : {60u, 20u, 0u}) {
    Launch loaded = copy(KernelRole::kCopyToDevice);
    loaded.thread = kLoader;
    step.launches.insert(step.launches.begin() + static_cast<std::ptrdiff_t>(at), loaded);
    step.truth.insert(step.truth.begin() + static_cast<std::ptrdiff_t>(at), step.truth[at]);
  }
  StepPhases phases;
  EXPECT_EQ(phases.cut(step.launches), PhaseRule::kThreads);
  EXPECT_EQ(wrong(phases, step), 0u);
}

/// A pipeline stage: three forward passes, then one backward and one forward in turn.
TEST(StepPhases, OneForwardOneBackward) {
  KnownStep step;
  for (int i = 0; i < 3; ++i) step.add(StepPhase::kForward, forward(6));
  for (int i = 0; i < 5; ++i) {
    step.add(StepPhase::kBackward, backward(6));
    step.add(StepPhase::kForward, forward(6));
  }
  for (int i = 0; i < 3; ++i) step.add(StepPhase::kBackward, backward(6));
  step.add(StepPhase::kOptimizer, update(true, 20));
  StepPhases phases;
  EXPECT_EQ(phases.cut(step.launches), PhaseRule::kThreads);
  EXPECT_EQ(wrong(phases, step), 0u);
  EXPECT_EQ(phases.cut(without_threads(step.launches)), PhaseRule::kNone);
}

TEST(StepPhases, TwoModelsInTurn) {
  KnownStep step;
  for (const int layers : {8, 14}) {
    step.add(StepPhase::kForward, forward(layers));
    step.add(StepPhase::kBackward, backward(layers));
    step.add(StepPhase::kOptimizer, update(true, 20));
  }
  StepPhases phases;
  EXPECT_EQ(phases.cut(step.launches), PhaseRule::kThreads);
  EXPECT_EQ(wrong(phases, step), 0u);
  EXPECT_EQ(phases.cut(without_threads(step.launches)), PhaseRule::kNone);
}

/// Weight gradients on the calling thread between other backward work: neither forward nor anything else known.
TEST(StepPhases, InterleavedPassesAreNotCut) {
  KnownStep step;
  step.add(StepPhase::kForward, forward(12));
  for (int i = 0; i < 12; ++i) {
    step.add(StepPhase::kBackward, backward(1));
    Launches weights;
    for (std::uint32_t k = 0; k < 30; ++k) weights.push_back(kernel(50 + k % 3, KernelRole::kGemm));
    step.add(StepPhase::kForward, weights);
  }
  step.add(StepPhase::kOptimizer, update(true, 10));
  StepPhases phases;
  EXPECT_EQ(phases.cut(step.launches), PhaseRule::kNone);
  EXPECT_TRUE(phases.spans().empty());

  KnownStep dual;  // one thread runs a forward layer and a backward layer in turn
  for (int i = 0; i < 24; ++i) {
    dual.add(StepPhase::kForward, forward(1));
    dual.add(StepPhase::kBackward, backward(1));
  }
  dual.add(StepPhase::kOptimizer, update(true, 10));
  const Launches one_thread = without_threads(dual.launches);
  Launches middle(one_thread.begin() + 3, one_thread.end());
  EXPECT_EQ(phases.cut(middle), PhaseRule::kNone);
}

TEST(StepPhases, TransposedConvolutionsRunForwardUnderABackwardName) {
  KnownStep step;
  Launches decoder = forward(10);
  decoder.insert(decoder.begin() + 20, 6, kernel(60, KernelRole::kConvBackward));
  step.add(StepPhase::kForward, decoder);
  step.add(StepPhase::kBackward, backward(10));
  step.add(StepPhase::kOptimizer, update(false, 40));
  StepPhases phases;
  EXPECT_EQ(phases.cut(step.launches), PhaseRule::kThreads);
  EXPECT_EQ(wrong(phases, step), 0u);
  EXPECT_EQ(phases.cut(without_threads(step.launches)), PhaseRule::kNames);
  EXPECT_LE(wrong(phases, step), 2u);
}

TEST(StepPhases, AnUpdateInsideTheBackwardPassLeavesNoOptimizer) {
  Launches step = forward(10);
  for (int i = 0; i < 10; ++i) {
    append(step, backward(1), 0);
    append(step, {kernel(31, KernelRole::kOptimizer)}, 0);
  }
  append(step, backward(1), 0);
  StepPhases phases;
  EXPECT_EQ(phases.cut(step), PhaseRule::kNone);
}

TEST(StepPhases, NothingToCut) {
  StepPhases phases;
  EXPECT_EQ(phases.cut({}), PhaseRule::kNone);
  EXPECT_EQ(phases.cut(Launches{kernel(1)}), PhaseRule::kNone);
  EXPECT_EQ(phases.cut(forward(20)), PhaseRule::kNone);
  Launch graph;
  graph.traits = traits_of(KernelRole::kGraph);
  graph.name = Launch::kGraphName | 1;
  EXPECT_EQ(phases.cut(Launches{copy(KernelRole::kCopyToDevice), graph}), PhaseRule::kNone);
  // Two threads that serve: no pass of either is a backward one.
  Launches serving;
  for (std::uint32_t i = 0; i < 40; ++i) append(serving, {kernel(i % 7, KernelRole::kGemm)}, 1 + i / 20);
  EXPECT_EQ(phases.cut(serving), PhaseRule::kNone);
  EXPECT_TRUE(phases.spans().empty());
}

}  // namespace
}  // namespace mfu

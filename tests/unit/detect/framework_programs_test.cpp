// The step detector on programs as frameworks launch them (framework_programs.h): how many are right, and what must
// never happen. MFU_TEST_PROGRAMS: how many of each kind, 400 unless given; MFU_TEST_SEED: the first. Shares are asked
// of several hundred programs, and of the same ones in every run: of forty drawn anew a share of 70 % is 47 % now and
// then.
#include "tests/unit/detect/framework_programs.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/unit/detect/made_launches.h"
#include "tests/unit/detect/program_figures.h"

namespace mfu::programs {
namespace {

std::size_t programs_of_each_kind() {
  const char* given = std::getenv("MFU_TEST_PROGRAMS");
#ifdef __OPTIMIZE__
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 400;
#else
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 4;
#endif
}

std::uint64_t first_program() {
  const char* given = std::getenv("MFU_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

TEST(FrameworkPrograms, TrainingIsFound) {
  const std::uint64_t seed = first_program();
  Figures figures;
  for (std::size_t i = 0; i < programs_of_each_kind(); ++i)
    figures.add(training(seed + i), "training " + std::to_string(i));
  figures.print("training");
  EXPECT_EQ(figures.wrong_high, 0u);
  if (figures.programs < 300) return;
  EXPECT_GE(figures.right * 100, figures.programs * 94);
  EXPECT_LE(figures.wrong * 200, figures.programs);
  EXPECT_LE(figures.found_after[figures.found_after.size() / 2], 4u);
  EXPECT_GE(figures.places.near * 100, figures.places.told * 99);
  EXPECT_LE(figures.wrong_phase(0.9), 0.01);
  EXPECT_GE(figures.high * 100, figures.right * 40);
}

TEST(FrameworkPrograms, IterationsOfServersAreFound) {
  const std::uint64_t seed = first_program();
  Figures figures;
  for (std::size_t i = 0; i < programs_of_each_kind(); ++i)
    figures.add(serving(seed + i), "server " + std::to_string(i));
  figures.print("servers");
  EXPECT_EQ(figures.wrong_high, 0u);
  EXPECT_GE(figures.right * 100, figures.programs * 98);
  EXPECT_EQ(figures.wrong, 0u);
  EXPECT_LE(figures.iterations_of_wrong_kind * 200, figures.iterations);
  EXPECT_GE(figures.places.near * 100, figures.places.told * 99);
}

/// A long run of Hugging Face's Trainer, with its logging, evaluations and checkpoints: the steps are never lost.
TEST(FrameworkPrograms, TrainerIsFollowedThroughTwoThousandSteps) {
  const std::uint64_t seed = test_seed();
#ifdef __OPTIMIZE__
  constexpr std::uint32_t kPrograms = 6, kSteps = 2000;
#else
  constexpr std::uint32_t kPrograms = 2, kSteps = 420;
#endif
  for (std::uint32_t i = 0; i < kPrograms; ++i) {
    Writer writer(seed + i);
    TrainingProgram program(writer);
    program.as_trainer(1 + i % 3);
    program.run(kSteps);
    const Heard heard(writer.out.stream);
    const Score score(writer.out, heard.steps());
    std::printf("%s: %zu of %u steps right, %zu wrong\n", writer.out.what.c_str(), score.right, kSteps, score.wrong);
    // The first two, in which nobody saw where the first began, and the last, which nothing follows.
    EXPECT_GE(score.right, kSteps - 3) << writer.out.what;
    EXPECT_EQ(score.wrong, 0u) << writer.out.what;
    EXPECT_EQ(heard.findings().confidence, StepConfidence::kHigh);
  }
}

/// Reinforcement learning generates and trains by turns: both are told, and one does not cost the other.
TEST(FrameworkPrograms, GenerationAndTrainingByTurns) {
  const std::uint64_t seed = test_seed();
#ifdef __OPTIMIZE__
  constexpr std::uint32_t kPrograms = 12;
#else
  constexpr std::uint32_t kPrograms = 2;
#endif
  std::size_t right = 0, wrong = 0, all = 0, tokens = 0, told = 0;
  for (std::uint32_t i = 0; i < kPrograms; ++i) {
    Writer writer(seed + i);
    TrainingProgram program(writer);
    constexpr std::uint32_t kRounds = 20, kTokens = 64, kSteps = 8;
    program.alternate(kRounds, kTokens, kSteps);
    const Heard heard(writer.out.stream);
    const std::vector<Reported> reported = heard.steps();
    const Score score(writer.out, reported);
    const auto is_token = [](const Reported& r) { return r.kind != StepKind::kStep; };
    right += score.right;
    wrong += score.wrong;
    all += writer.out.steps.size();
    tokens += std::size_t{kRounds} * kTokens;
    told += static_cast<std::size_t>(std::count_if(reported.begin(), reported.end(), is_token));
  }
  std::printf("by turns: %zu of %zu steps right, %zu wrong; %zu of %zu tokens told\n", right, all, wrong, told, tokens);
  EXPECT_GE(right * 100, all * 96);
  EXPECT_LE(wrong * 100, all);
  EXPECT_GE(told * 100, tokens * 96);
  EXPECT_LE(told, tokens);
}

/// A training loop without a framework, on one thread, under the kernel names of llm.c (train_gpt2.cu).
Writer c_program(std::uint32_t layers, std::uint32_t passes, std::uint32_t steps) {
  Writer w(1);
  for (std::uint32_t step = 0; step < steps; ++step) {
    const std::uint64_t begin = w.at();
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
      w.phase = StepPhase::kForward;
      w.to_device(2);
      w.kernel("encoder_forward_kernel3(float*, const int*, const float*, const float*, int, int, int)");
      w.kernel("layernorm_forward_kernel6(float*, float*, float*, const float*, const float*, const float*, int, int)");
      for (std::uint32_t layer = 0; layer < layers; ++layer) {
        w.gemm(0);
        w.kernels({"permute_kernel(float*, float*, float*, const float*, int, int, int, int)"});
        w.gemm(1);
        w.kernel("softmax_forward_kernel5(float*, float, const float*, int, int)");
        w.gemm(2);
        w.kernel("unpermute_kernel(float*, float*, int, int, int, int)");
        w.gemm(3);
        w.kernel(
            "fused_residual_forward_kernel5(float*, float*, float*, float*, const float*, const float*, int, int)");
        w.gemm(4);
        w.kernel("gelu_forward_kernel2(float*, const float*)");
        w.gemm(5);
        w.kernel(
            "fused_residual_forward_kernel5(float*, float*, float*, float*, const float*, const float*, int, int)");
      }
      w.gemm(6);
      w.kernel("void fused_classifier_kernel5<float, true>(float*, float*, float*, const int*, int, int, int, int)");
      if (pass == 0) w.memset(2);  // of gradients: by the host it is neither pass's
      w.phase = StepPhase::kBackward;
      w.gemm(7);
      w.gemm(8);
      w.kernel("layernorm_backward_kernel10(float*, float*, float*, float*, const float*, const float*, int, int)");
      for (std::uint32_t layer = 0; layer < layers; ++layer) {
        w.kernel("void matmul_backward_bias_kernel9<float, false>(float*, const float*, int, int)");
        w.gemm(9);
        w.gemm(10);
        w.kernel("gelu_backward_inplace_kernel(float*, const float*)");
        w.gemm(11);
        w.gemm(12);
        w.kernel("layernorm_backward_kernel10(float*, float*, float*, float*, const float*, const float*, int, int)");
        w.gemm(13);
        w.gemm(14);
        w.kernel("unpermute_kernel_backward(float*, const float*, int, int, int, int)");
        w.gemm(15);
        w.gemm(16);
        w.kernel("softmax_autoregressive_backward_inplace_kernel(float*, const float*, int, int, int, float)");
        w.gemm(17);
        w.kernel("permute_kernel_backward(float*, const float*, const float*, const float*, int, int, int, int)");
        w.gemm(18);
        w.gemm(19);
        w.kernel("layernorm_backward_kernel10(float*, float*, float*, float*, const float*, const float*, int, int)");
      }
      w.kernel("wte_backward_kernel(float*, const int*, const int*, const float*, const int*, unsigned int, int)");
      w.kernel("wpe_backward_kernel(float*, const float*, const int*, int, int, int, unsigned int)");
      w.to_host();
    }
    w.phase = StepPhase::kOptimizer;
    w.kernel("global_norm_squared_kernel(float*, const float*, unsigned long)");
    w.kernel("global_norm_aggregate_kernel(float*, unsigned long)");
    w.to_host();
    for (int tensor = 0; tensor < 16; ++tensor)
      w.kernel("void adamw_kernel3<float, float>(float*, float*, float*, float*, float*, unsigned long)");
    w.out.steps.push_back({begin, w.at(), StepKind::kStep});
  }
  w.out.trains = true;
  return w;
}

TEST(FurtherPrograms, ALoopWithoutAFrameworkHasItsPassesCut) {
  for (const std::uint32_t passes : {1u, 4u}) {
    const Writer w = c_program(12, passes, 12);
    const Heard heard(w.out.stream);
    EXPECT_EQ(heard.steps().size() + 1, 12u) << passes;  // what precedes the first update is not certain
    EXPECT_EQ(heard.findings().micro_steps, passes);
    EXPECT_EQ(heard.findings().confidence, StepConfidence::kHigh);
    const Score score(w.out, heard.steps());
    EXPECT_EQ(score.wrong, 0u);
    const double wrong = share_in_wrong_phase(w.out, heard.steps());
    EXPECT_GE(wrong, 0) << passes << ": not cut";
    // Forward ends with the loss. The norm of the gradients, three launches, has no name of an optimizer.
    EXPECT_LE(wrong * static_cast<double>(w.out.steps[0].end), 3.5) << passes;
  }
}

/// Loops and servers of kinds that nothing was tried on when the detector was made.
TEST(FurtherPrograms, TrainingIsFound) {
  const std::uint64_t seed = first_program();
  Figures figures;
  for (std::size_t i = 0; i < programs_of_each_kind(); ++i)
    figures.add(further_training(seed + i), "further training " + std::to_string(i));
  figures.print("further training");
  EXPECT_EQ(figures.wrong_high, 0u);
  if (figures.programs < 300) return;
  EXPECT_GE(figures.right * 100, figures.programs * 96);
  EXPECT_LE(figures.wrong * 200, figures.programs);
  EXPECT_LE(figures.found_after[figures.found_after.size() / 2], 4u);
  EXPECT_LE(figures.wrong_phase(0.9), 0.01);
  EXPECT_GE(figures.high * 100, figures.right * 66);
}

TEST(FurtherPrograms, IterationsOfServersAreFound) {
  const std::uint64_t seed = first_program();
  Figures figures;
  for (std::size_t i = 0; i < programs_of_each_kind(); ++i)
    figures.add(further_serving(seed + i), "further server " + std::to_string(i));
  figures.print("further servers");
  EXPECT_EQ(figures.wrong_high, 0u);
  if (figures.programs < 300) return;
  EXPECT_GE(figures.right * 100, figures.programs * 94);
  EXPECT_LE(figures.wrong * 200, figures.programs);
  EXPECT_LE(figures.iterations_of_wrong_kind * 200, figures.iterations);
}

TEST(FurtherPrograms, NothingIsReportedWhereThereIsNoStep) {
  const std::uint64_t seed = first_program();
  Figures figures;
  for (std::size_t i = 0; i < programs_of_each_kind(); ++i)
    figures.add(further_no_step(seed + i), "further without " + std::to_string(i));
  figures.print("further without steps");
  EXPECT_EQ(figures.not_sure, figures.programs);
  EXPECT_EQ(figures.wrong_high, 0u);
}

/// A few steps of a training loop: not found is allowed, wrong is not.
TEST(FurtherPrograms, ShortTrainingIsSeldomToldWrongly) {
  const std::uint64_t seed = first_program();
  Figures figures;
  for (std::size_t i = 0; i < programs_of_each_kind(); ++i) {
    figures.add(training(seed + i, 8, 25), "short training " + std::to_string(i));
    figures.add(further_training(seed + i, 8, 25), "further short training " + std::to_string(i));
  }
  figures.print("short training");
  EXPECT_EQ(figures.wrong_high, 0u);
  if (figures.programs < 300) return;
  EXPECT_LE(figures.wrong * 200, figures.programs);
  EXPECT_GE((figures.right + figures.partial) * 100, figures.programs * 95);
}

/// Programs that were told wrongly with high confidence once.
TEST(FrameworkPrograms, WhatWasWrongOnce) {
  Figures figures;
  // Evaluation before a step of another length, whose layers look like the begin of a step.
  figures.add(training(51249), "like layers");
  // Passes of an evaluation, longer than the step's graphs, of which no batch is seen.
  figures.add(training(70051), "evaluation of a step in graphs");
  // A step after an evaluation, where the line of the log that all others begin with is missing.
  figures.add(training(774'400'037), "no line of the log");
  // Passes of any length, in the middle of which the next batch is copied.
  figures.add(further_training(774'400'864), "copies late in the forward pass");
  figures.add(further_training(774'400'600), "copies in the middle of the forward pass");
  // An evaluation before steps of any length were found.
  figures.add(further_training(774'400'074), "early evaluation");
  // A checkpoint before a step that is shorter than usual.
  figures.add(further_training(774'401'297), "checkpoint");
  // Twelve passes of the first step, before any update was seen.
  figures.add(further_training(886'001'836), "passes of the first step");
  // Updates without a name, the first of which loss scaling leaves out.
  figures.add(training(881'300'254), "overflows");
  figures.add(training(881'300'903, 8, 25), "overflows, few steps");
  // Passes of accumulation beside a cycle of another length, and a loader's copies between them.
  figures.add(training(774'400'325), "evaluation in every other turn of a cycle");
  figures.add(training(774'401'093), "half of the passes of a step");
  figures.add(training(774'401'649), "copies of a loader between two passes");
  figures.print("once wrong");
  EXPECT_EQ(figures.wrong_high, 0u);
  EXPECT_LE(figures.wrong, 1u);
  EXPECT_GE(figures.right, figures.programs - 5);  // where lengths vary and copies come late, nothing may be said
  // A first step that was told when its place was not known, and moved with the others.
  Figures moved;
  moved.add(further_training(30'000'072, 8, 25), "moved");
  EXPECT_EQ(moved.wrong, 0u);
}

TEST(FrameworkPrograms, NothingIsReportedWhereThereIsNoStep) {
  const std::uint64_t seed = test_seed();
  Figures figures;
  for (std::size_t i = 0; i < programs_of_each_kind(); ++i)
    figures.add(no_step(seed + i), "without " + std::to_string(i));
  figures.print("without steps");
  EXPECT_EQ(figures.not_sure, figures.programs);
  EXPECT_EQ(figures.wrong_high, 0u);
}

}  // namespace
}  // namespace mfu::programs

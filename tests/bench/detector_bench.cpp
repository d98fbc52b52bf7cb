// Cost of the step detector per launch: while a step is followed, while nothing is found, and in serving.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "core/detect/step_detector.h"

namespace {

using namespace mfu;

class Nobody final : public StepListener {
 public:
  void on_boundary(const StepBoundary& boundary) override { benchmark::DoNotOptimize(boundary.launch); }
};

Launch launch(std::uint32_t name, KernelRole role = KernelRole::kOther) {
  Launch l;
  l.name = Launch::kFirstKernel + name;
  l.traits = traits_of(role);
  return l;
}

/// A training step of `layers` layers of 40 launches forward and 80 backward.
std::vector<Launch> training_step(int layers) {
  std::vector<Launch> step{launch(500), launch(501)};
  for (int i = 0; i < layers; ++i)
    for (std::uint32_t k = 0; k < 40; ++k) step.push_back(launch(k % 23));
  step.push_back(launch(502, KernelRole::kLoss));
  for (int i = 0; i < layers; ++i)
    for (std::uint32_t k = 0; k < 80; ++k)
      step.push_back(launch(100 + k % 31, k % 20 == 0 ? KernelRole::kNormBackward : KernelRole::kOther));
  for (std::uint32_t k = 0; k < 20; ++k) step.push_back(launch(510 + k % 2, KernelRole::kOptimizer));
  return step;
}

void feed(benchmark::State& state, StepDetector& detector, const std::vector<Launch>& stream) {
  std::size_t i = 0;
  for (auto _ : state) {
    detector.add(stream[i]);
    if (++i == stream.size()) i = 0;
  }
  state.SetItemsProcessed(state.iterations());
}

void BM_StepFollowed(benchmark::State& state) {
  Nobody nobody;
  StepDetector detector(nobody);
  const std::vector<Launch> step = training_step(static_cast<int>(state.range(0)));
  for (int i = 0; i < 10; ++i)
    for (const Launch& l : step) detector.add(l);
  if (detector.findings().confidence == StepConfidence::kNotSure) state.SkipWithError("no step found");
  feed(state, detector, step);
}
BENCHMARK(BM_StepFollowed)->Arg(4)->Arg(32)->Arg(100);

void BM_NothingFound(benchmark::State& state) {
  Nobody nobody;
  StepDetector detector(nobody);
  std::mt19937 random(1);
  std::uniform_int_distribution<std::uint32_t> name(0, static_cast<std::uint32_t>(state.range(0)));
  std::vector<Launch> stream;
  for (int i = 0; i < 1'000'003; ++i) stream.push_back(launch(name(random)));
  for (int i = 0; i < state.range(1); ++i) detector.add(stream[static_cast<std::size_t>(i)]);
  feed(state, detector, stream);
}
BENCHMARK(BM_NothingFound)->ArgsProduct({{200, 5'000, 20'000}, {300'000, 1'000'000}})->Iterations(4'000'000);

void BM_Serving(benchmark::State& state) {
  Nobody nobody;
  StepDetector detector(nobody);
  std::vector<Launch> iteration;
  for (std::uint32_t k = 0; k < 300; ++k)
    iteration.push_back(launch(k % 40, k % 4 == 0 ? KernelRole::kGemm : KernelRole::kOther));
  iteration.push_back(launch(50, KernelRole::kSampling));
  iteration.push_back(
      {static_cast<std::uint32_t>(KernelRole::kCopyToHost), 0, traits_of(KernelRole::kCopyToHost), 0, 0, {}});
  for (int i = 0; i < 20; ++i)
    for (const Launch& l : iteration) detector.add(l);
  if (detector.findings().confidence == StepConfidence::kNotSure) state.SkipWithError("no iteration found");
  feed(state, detector, iteration);
}
BENCHMARK(BM_Serving);

}  // namespace

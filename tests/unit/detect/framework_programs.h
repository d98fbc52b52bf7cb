// Programs as frameworks launch them, made up at random: the operators of PyTorch, Inductor, XLA, vLLM, llama.cpp and
// others under their real kernel names, with the threads, copies, logging, evaluation and start-up around them. Unlike
// the models of step_detector_models_test.cpp, whose launches are arbitrary, nothing here is classified by hand: names
// go through role_of_kernel as those of a real program do.
#pragma once

#include <cstdint>
#include <utility>

#include "tests/unit/detect/programs/further_serving.h"
#include "tests/unit/detect/programs/further_training.h"
#include "tests/unit/detect/programs/further_without_steps.h"
#include "tests/unit/detect/programs/programs_without_steps.h"
#include "tests/unit/detect/programs/serving_programs.h"
#include "tests/unit/detect/programs/training_programs.h"

namespace mfu::programs {

inline Program training(std::uint64_t seed, std::uint32_t fewest = 30, std::uint32_t most = 60) {
  Writer w(seed);
  const std::uint32_t kind = w.dice.between(0, 19), steps = w.dice.between(fewest, most);
  if (kind == 0)
    graphed_training(w, steps);
  else if (kind == 1)
    adversarial_training(w, steps);
  else
    TrainingProgram(w).run(steps);
  return std::move(w.out);
}
inline Program serving(std::uint64_t seed) {
  Writer w(seed);
  const std::uint32_t kind = w.dice.between(0, 11);
  if (kind == 0)
    compiled_inference(w, w.dice.between(150, 300));
  else if (kind == 1)
    encoder_serving(w, w.dice.between(150, 300));
  else
    ServingProgram(w).run(w.dice.between(150, 300));
  return std::move(w.out);
}
inline Program no_step(std::uint64_t seed) {
  Writer w(seed);
  without_steps(w);
  return std::move(w.out);
}

inline Program further_training(std::uint64_t seed, std::uint32_t fewest = 30, std::uint32_t most = 60) {
  Writer w(seed);
  const std::uint32_t steps = w.dice.between(fewest, most);
  FurtherTraining(w).run(steps);
  return std::move(w.out);
}
inline Program further_serving(std::uint64_t seed) {
  Writer w(seed);
  const std::uint32_t iterations = w.dice.between(150, 300);
  FurtherServing(w).run(iterations);
  return std::move(w.out);
}
inline Program further_no_step(std::uint64_t seed) {
  Writer w(seed);
  further_without_steps(w);
  return std::move(w.out);
}

}  // namespace mfu::programs

// The step detector on training loops and servers made up at random, harder than step_detector_test's: blocks of
// blocks, experts, evaluation, clipping, pipelines, recomputation. What must never happen is looked for in each; how
// many are found is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/detect/made_launches.h"

namespace mfu {
namespace {

#ifdef __OPTIMIZE__
constexpr int kModels = 150;
#else
constexpr int kModels = 10;
#endif

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(engine_);
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }

 private:
  std::mt19937_64 engine_;
};

/// Names that are used once in all.
class Names {
 public:
  explicit Names(Random& random) : random_(random) {}
  Launch fresh(KernelRole role = KernelRole::kOther) { return kernel(next_++, role); }
  Launches sequence(std::uint32_t distinct, std::uint32_t length) {
    Launches pool, out;
    for (std::uint32_t i = 0; i < distinct; ++i)
      pool.push_back(fresh(random_.chance(0.25) ? KernelRole::kGemm : KernelRole::kOther));
    for (std::uint32_t i = 0; i < length; ++i) out.push_back(pool[random_.between(0, distinct - 1)]);
    return out;
  }

 private:
  Random& random_;
  std::uint32_t next_ = 0;
};

/// A model and its training loop.
class Training {
 public:
  enum class Update { kFused, kForeach, kUnnamed, kUnnamedLoop };

  explicit Training(Random& random) : random_(random), names_(random) {
    update_ = random.chance(0.4)   ? Update::kFused
              : random.chance(0.5) ? Update::kForeach
              : random.chance(0.5) ? Update::kUnnamed
                                   : Update::kUnnamedLoop;
    named_backward_ = update_ == Update::kForeach || random.chance(0.8);
    experts_ = random.chance(0.25);
    recomputes_ = random.chance(0.25);
    passes_ = random.chance(0.5) ? 1 : random.between(2, 8);
    pipeline_ = passes_ > 1 && random.chance(0.3);
    clips_ = random.chance(0.5);
    copies_rate_ = random.chance(0.3);
    log_every_ = random.chance(0.4) ? random.between(1, 10) : 0;
    evaluate_every_ = random.chance(0.3) ? random.between(4, 9) : 0;
    const std::uint32_t kinds = random.between(1, 4);
    std::uint32_t blocks = 0;
    for (std::uint32_t k = 0; k < kinds; ++k) {
      Block block;
      const std::uint32_t part = random.between(3, 20);
      // Blocks of parts: the same part twice or thrice, then something else.
      const Launches inner = names_.sequence(random.between(3, 12), part);
      for (std::uint32_t i = random.between(1, 3); i > 0; --i) append(block.forward, inner);
      append(block.forward, names_.sequence(random.between(2, 6), random.between(1, 10)));
      const Launches inner_backward = names_.sequence(random.between(3, 12), part * 2);
      for (std::uint32_t i = random.between(1, 3); i > 0; --i) append(block.backward, inner_backward);
      if (named_backward_) block.backward.push_back(names_.fresh(KernelRole::kNormBackward));
      block.times = random.between(1, 40 / passes_ + 2);
      blocks += block.times;
      blocks_.push_back(block);
    }
    input_ = random.chance(0.7) ? Launches(random.between(1, 8), copy(KernelRole::kCopyToDevice)) : Launches{};
    append(input_, names_.sequence(3, random.between(1, 6)));
    head_ = names_.sequence(5, random.between(3, 14));
    if (random.chance(0.7)) head_.push_back(names_.fresh(KernelRole::kLoss));
    tail_ = names_.sequence(3, random.between(1, 6));
    expert_ = names_.sequence(4, 4);
    comm_ = names_.fresh(KernelRole::kComm);
    const KernelRole of_update = update_ == Update::kFused     ? KernelRole::kOptimizer
                                 : update_ == Update::kForeach ? KernelRole::kForeach
                                                               : KernelRole::kOther;
    if (clips_) append(update_launches_, {names_.fresh(of_update), names_.fresh(), names_.fresh(of_update)});
    if (copies_rate_) update_launches_.push_back(copy(KernelRole::kCopyToDevice));
    const Launches body{names_.fresh(of_update), names_.fresh(of_update), names_.fresh(of_update)};
    if (update_ == Update::kUnnamedLoop)
      for (std::uint32_t i = blocks * random.between(2, 6); i > 0; --i) append(update_launches_, body);
    else
      for (std::uint32_t i = random.between(4, 40); i > 0; --i) update_launches_.push_back(body[i % 3]);
    log_ = names_.sequence(3, random.between(1, 5));
    log_.push_back(copy(KernelRole::kCopyToHost));
    evaluation_ = names_.sequence(4, random.between(2, 8));
    evaluation_.push_back(copy(KernelRole::kCopyToHost));
  }

  [[nodiscard]] Launches forward() {
    Launches out = input_;
    for (const Block& block : blocks_)
      for (std::uint32_t i = 0; i < block.times; ++i) append(out, with_experts(block.forward));
    append(out, head_);
    return out;
  }
  [[nodiscard]] Launches backward(bool reduces) {
    Launches out;
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      for (std::uint32_t i = 0; i < block->times; ++i) {
        if (recomputes_) append(out, block->forward);
        append(out, with_experts(block->backward));
        if (reduces && i % 4 == 0) out.push_back(comm_);
      }
    }
    append(out, tail_);
    return out;
  }
  [[nodiscard]] Launches step() {
    Launches out;
    if (pipeline_) {
      const std::uint32_t ahead = std::min(passes_, 3u);
      for (std::uint32_t i = 0; i < ahead; ++i) append(out, forward());
      for (std::uint32_t i = 0; i < passes_; ++i) {
        append(out, backward(i + 1 == passes_));
        out.push_back(comm_);
        if (i + ahead < passes_) append(out, forward());
      }
    } else {
      for (std::uint32_t i = 0; i < passes_; ++i) {
        append(out, forward());
        append(out, backward(i + 1 == passes_));  // gradients are reduced in the last pass alone
      }
    }
    append(out, update_launches_);
    return out;
  }

  /// `starts`: where steps begin, and where something else does.
  [[nodiscard]] Launches run(std::uint32_t steps, std::vector<std::uint64_t>& starts) {
    Launches stream;
    const bool strays = random_.chance(0.3);
    for (std::uint32_t s = 0; s < steps; ++s) {
      starts.push_back(stream.size());
      Launches one = step();
      const std::size_t logged = log_every_ == 1 ? log_.size() : 0;  // each time: a part of the step
      mean_ += static_cast<double>(one.size() + logged) / steps;
      if (strays && random_.chance(0.5))
        one.insert(one.begin() + random_.between(0, static_cast<std::uint32_t>(one.size()) - 1), kernel(90'000));
      append(stream, one);
      starts.push_back(stream.size());
      if (log_every_ != 0 && s % log_every_ == 0) append(stream, log_);
      if (evaluate_every_ != 0 && s % evaluate_every_ == evaluate_every_ - 1) {
        for (std::uint32_t i = random_.between(1, 5); i > 0; --i) {
          append(stream, forward());
          append(stream, evaluation_);
        }
      }
    }
    return stream;
  }

  [[nodiscard]] double mean_step() const { return mean_; }
  [[nodiscard]] bool named() const { return update_ == Update::kFused || update_ == Update::kForeach; }
  [[nodiscard]] std::string describe() const {
    std::string text = std::to_string(passes_) + " passes of";
    for (const Block& block : blocks_)
      text += " " + std::to_string(block.times) + " x (" + std::to_string(block.forward.size()) + " + " +
              std::to_string(block.backward.size()) + ")";
    text += ", update of " + std::to_string(update_launches_.size());
    if (!named()) text += " unnamed";
    if (!named_backward_) text += ", unnamed backward";
    if (experts_) text += ", experts";
    if (recomputes_) text += ", recomputed";
    if (pipeline_) text += ", pipeline";
    if (log_every_ != 0) text += ", logs every " + std::to_string(log_every_);
    if (evaluate_every_ != 0) text += ", evaluates every " + std::to_string(evaluate_every_);
    return text;
  }

 private:
  struct Block {
    Launches forward, backward;
    std::uint32_t times = 0;
  };

  /// A routed layer launches for the experts that got tokens.
  Launches with_experts(const Launches& block) {
    if (!experts_) return block;
    Launches out = block;
    for (std::uint32_t i = random_.between(4, 8); i > 0; --i) append(out, expert_);
    return out;
  }

  Random& random_;
  Names names_;
  Update update_;
  bool named_backward_, experts_, recomputes_, pipeline_, clips_, copies_rate_;
  std::uint32_t passes_, log_every_, evaluate_every_;
  std::vector<Block> blocks_;
  Launches input_, head_, tail_, expert_, update_launches_, log_, evaluation_;
  Launch comm_;
  double mean_ = 0;
};

/// \param shares also asks how many are found, which differs from seed to seed.
void find_harder_models(std::uint64_t seed, bool shares) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const bool verbose = std::getenv("MFU_TEST_VERBOSE") != nullptr;
  int right = 0, not_sure = 0, parts = 0, several = 0, misplaced = 0, named = 0, named_right = 0;
  for (int i = 0; i < kModels; ++i) {
    Training model(random);
    std::vector<std::uint64_t> starts;
    const Launches stream = model.run(random.between(10, 16), starts);
    const Outcome outcome = detect(stream);
    const double period = outcome.findings.period_launches, step = model.mean_step();
    const std::string what = "model " + std::to_string(i) + ": period " + std::to_string(period) + " (" +
                             std::string(name(outcome.findings.confidence)) + ", " +
                             std::string(name(outcome.findings.rule)) + "), step " + std::to_string(step) + " = " +
                             model.describe();
    const char* verdict = "";
    named += model.named() ? 1 : 0;
    if (period == 0) {
      ++not_sure;
      verdict = "not sure";
      EXPECT_TRUE(outcome.boundaries.empty()) << what;
    } else if (std::abs(period - step) <= step / 16) {
      ++right;
      named_right += model.named() ? 1 : 0;
      std::size_t off = 0;
      if (outcome.findings.rule == BoundaryRule::kOptimizer)
        for (const std::uint64_t b : outcome.boundaries)
          off += std::none_of(starts.begin(), starts.end(),
                              [&](std::uint64_t t) { return (b > t ? b - t : t - b) <= 20; });
      if (off > 0) {
        ++misplaced;
        verdict = "misplaced";
      }
    } else {
      EXPECT_LT(outcome.findings.confidence, StepConfidence::kHigh) << what;
      ++(period < step ? parts : several);
      verdict = period < step ? "a part" : "several";
      if (model.named()) {
        // Routed layers make steps of many lengths: the shortest is a step as well.
        double shortest = step;
        for (std::size_t s = 1; s < starts.size(); ++s)
          shortest = std::min(shortest, static_cast<double>(starts[s] - starts[s - 1]));
        EXPECT_GE(period, shortest * 15 / 16) << what;
      }
    }
    if (verbose && *verdict != 0) std::printf("%s: %s\n", verdict, what.c_str());
  }
  std::printf("%d models: %d right (%d misplaced), %d not sure, %d parts, %d several; named %d, right %d\n", kModels,
              right, misplaced, not_sure, parts, several, named, named_right);
  if (!shares || kModels < 100) return;
  EXPECT_GE(right, kModels * 70 / 100);
  EXPECT_GE(named_right, named * 93 / 100);
  EXPECT_LE(parts + several, kModels * 6 / 100);
  EXPECT_LE(misplaced, kModels * 12 / 100);
}

TEST(StepDetectorModels, HarderModelsAreFoundOrNotSure) { find_harder_models(1, true); }
TEST(StepDetectorModels, HarderModelsAreNeverTakenForAnotherStep) { find_harder_models(test_seed(), false); }

/// A server: prefill of many lengths, decode in many batch sizes by graph or by kernel, sampled on the device.
class Server {
 public:
  explicit Server(Random& random, bool sampling) : random_(random), sampling_(sampling) {
    layers_ = random.between(4, 48);
    eager_decode_ = random.chance(0.5);
    lengths_ = random.between(1, 8);
    batches_ = random.between(1, 12);
    prefill_share_ = 0.05 * random.between(0, 12);
    inputs_ = random.between(0, 6);
    samplers_ = random.between(1, 4);
    copies_ = random.between(1, 3);
    late_copy_ = random.between(0, 8);
  }
  Launches run(int iterations, std::vector<std::uint64_t>& ends) {
    Launches stream;
    for (int i = 0; i < iterations; ++i) {
      for (std::uint32_t k = 0; k < inputs_; ++k) stream.push_back(copy(KernelRole::kCopyToDevice));
      append(stream, {kernel(1, KernelRole::kEmbedding), kernel(2, KernelRole::kElementwise)});
      if (random_.chance(prefill_share_)) {
        pass(stream, 1'000 + 10 * random_.between(1, lengths_), KernelRole::kAttentionPrefill);
      } else if (const std::uint32_t batch = random_.between(1, batches_); eager_decode_) {
        pass(stream, 2'000 + 10 * batch, KernelRole::kAttentionDecode);
      } else {
        Launch graph;
        graph.traits = traits_of(KernelRole::kGraph);
        graph.name = Launch::kGraphName | batch;
        stream.push_back(graph);
      }
      append(stream, {kernel(3, KernelRole::kGemm), kernel(4, KernelRole::kSoftmax)});
      if (sampling_)
        for (std::uint32_t k = 0; k < samplers_; ++k) stream.push_back(kernel(60 + k, KernelRole::kSampling));
      for (std::uint32_t k = 0; k < late_copy_; ++k) stream.push_back(kernel(70 + k));
      for (std::uint32_t k = 0; k < copies_; ++k) stream.push_back(copy(KernelRole::kCopyToHost));
      ends.push_back(stream.size());
    }
    return stream;
  }
  [[nodiscard]] std::string describe() const {
    return std::to_string(layers_) + " layers, " + std::to_string(lengths_) + " lengths, " + std::to_string(batches_) +
           " batches" + (eager_decode_ ? ", eager" : "") + ", prefill " + std::to_string(prefill_share_) + ", copies " +
           std::to_string(inputs_) + " in, " + std::to_string(copies_) + " out after " + std::to_string(late_copy_);
  }

 private:
  void pass(Launches& stream, std::uint32_t shape, KernelRole attention) {
    for (std::uint32_t layer = 0; layer < layers_; ++layer)
      append(stream, {kernel(10, KernelRole::kNorm), kernel(shape, KernelRole::kGemm), kernel(11, KernelRole::kRope),
                      kernel(12, KernelRole::kCacheWrite), kernel(shape + 1, attention),
                      kernel(shape + 2, KernelRole::kGemm), kernel(13, KernelRole::kElementwise)});
  }

  Random& random_;
  bool sampling_, eager_decode_;
  std::uint32_t layers_, lengths_, batches_, inputs_, samplers_, copies_, late_copy_;
  double prefill_share_;
};

TEST(StepDetectorModels, ServersEndIterationsWithASample) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < kModels; ++i) {
    Server server(random, true);
    std::vector<std::uint64_t> ends;
    const Outcome outcome = detect(server.run(120, ends));
    SCOPED_TRACE("server " + std::to_string(i) + ": " + server.describe());
    EXPECT_GE(outcome.findings.confidence, StepConfidence::kMedium);
    EXPECT_NE(outcome.findings.kind, StepKind::kStep);
    EXPECT_EQ(outcome.boundaries, ends);
  }
}

/// Nothing says where an iteration ends: a layer or a share of an iteration is never told for one, nor anything surely.
TEST(StepDetectorModels, ServersWithoutASampleTellNoPartOfAnIteration) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < kModels; ++i) {
    Server server(random, false);
    std::vector<std::uint64_t> ends;
    const Outcome outcome = detect(server.run(120, ends));
    SCOPED_TRACE("server " + std::to_string(i) + ": " + server.describe() + ": period " +
                 std::to_string(outcome.findings.period_launches));
    EXPECT_LT(outcome.findings.confidence, StepConfidence::kHigh);
    EXPECT_NE(outcome.findings.kind, StepKind::kStep);
    if (outcome.findings.period_launches != 7) continue;  // a layer's launches
    if (ends[1] - ends[0] == 7) continue;                 // and those of a whole iteration, whose place is not known
    for (const std::uint64_t b : outcome.boundaries) EXPECT_TRUE(std::find(ends.begin(), ends.end(), b) != ends.end());
  }
}

}  // namespace
}  // namespace mfu

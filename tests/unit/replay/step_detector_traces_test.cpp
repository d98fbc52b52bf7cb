// The step detector on recorded streams, and on streams made from them whose steps are therefore known.
#include "core/detect/step_detector.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tests/unit/replay/launch_streams.h"
#include "tests/unit/trace/trace_text.h"
#include "tools/trace/kineto.h"

namespace mfu {
namespace {

using Positions = std::vector<std::uint64_t>;

const Launches& resnet_v100() {
  static const Launches launches = recorded("hta_resnet_ddp_v100_ns.json.gz");
  return launches;
}
const Launches& resnet_kineto() {
  static const Launches launches = recorded("kineto_resnet50_v100_w0.json.gz");
  return launches;
}
const Launches& torchrec() {
  static const Launches launches = recorded("hta_torchrec2_v100_rank1.json.gz");
  return launches;
}
/// One training step of resnet_v100: 1,219 launches, the last nine its optimizer.
Launches resnet_step() { return part(resnet_v100(), 1219, 2438); }
constexpr std::uint64_t kStep = 1219, kOptimizer = 9;

Launches foreign(std::size_t count, std::uint32_t first_name) {
  Launches launches;
  for (std::size_t i = 0; i < count; ++i) {
    Launch launch;
    launch.name = Launch::kFirstKernel + 100'000 + first_name + static_cast<std::uint32_t>(i);
    launches.push_back(launch);
  }
  return launches;
}

// ------------------------------------------------------------------------------------------- recorded, as they are

TEST(StepDetector, ResnetOnV100) {
  ASSERT_EQ(resnet_v100().size(), 6095u);
  const Heard heard(resnet_v100());
  EXPECT_EQ(heard.findings().period_launches, 1219u);
  EXPECT_EQ(heard.findings().kind, StepKind::kStep);
  EXPECT_EQ(heard.findings().rule, BoundaryRule::kOptimizer);
  EXPECT_EQ(heard.findings().confidence, StepConfidence::kMedium);  // two operations over lists are no optimizer's name
  EXPECT_EQ(heard.boundaries(), (Positions{1219, 2438, 3657, 4876, 6095}));
}

TEST(StepDetector, ResnetOnA100OfTwoRanks) {
  const Launches launches = recorded("hta_resnet_ddp2_a100_rank0.json.gz");
  ASSERT_EQ(launches.size(), 3774u);
  const Heard heard(launches);
  EXPECT_EQ(heard.findings().period_launches, 1258u);
  EXPECT_EQ(heard.boundaries(), (Positions{1258, 2516}));
}

TEST(StepDetector, ResnetWhoseOptimizerHasNoName) {
  ASSERT_EQ(resnet_kineto().size(), 9096u);
  const Heard heard(resnet_kineto());
  EXPECT_EQ(heard.findings().period_launches, 1516u);
  EXPECT_EQ(heard.findings().rule, BoundaryRule::kCopies);
  EXPECT_EQ(heard.findings().confidence, StepConfidence::kMedium);
  EXPECT_EQ(heard.boundaries(), (Positions{1516, 3032, 4548, 6064, 7580}));
}

TEST(StepDetector, TorchRecWithGraphs) {
  ASSERT_EQ(torchrec().size(), 10'598u);  // of 15,632 records
  const Heard heard(torchrec());
  EXPECT_EQ(heard.findings().period_launches, 1664u);
  // The profiler's first mark is at 2278; the step before it is as long, and has the same copies.
  EXPECT_EQ(heard.boundaries(), (Positions{614, 2278, 3942, 5606, 7270, 8934, 10598}));
}

/// Four launches without a name are no update that anything shows.
TEST(StepDetector, SmallLoopIsNotSure) {
  const Launches launches = recorded("hta_gpu_user_annotation_step.json.gz");
  ASSERT_EQ(launches.size(), 140u);
  const Heard heard(launches);
  EXPECT_EQ(heard.findings().confidence, StepConfidence::kNotSure);
  EXPECT_TRUE(heard.boundaries().empty());
}

/// No marked step, or one alone: not sure, at the end and after every launch.
class Unmarked : public testing::TestWithParam<std::pair<std::string, std::size_t>> {};

TEST_P(Unmarked, IsNotSureAfterAnyPrefix) {
  const Launches launches = recorded(GetParam().first, GetParam().second);
  ASSERT_FALSE(launches.empty());
  Heard all;
  for (const Launch& launch : launches) {
    all.add(launch);
    ASSERT_EQ(all.findings().confidence, StepConfidence::kNotSure) << "after " << all.detector().launches();
  }
  ASSERT_TRUE(all.boundaries().empty());
  // A prefix that ends there says more than one that goes on: finish() searches.
  const std::size_t stride = std::max<std::size_t>(1, launches.size() / 150);
  for (std::size_t length = 1; length <= launches.size(); length += stride) {
    const Heard heard(part(launches, 0, length));
    ASSERT_EQ(heard.findings().confidence, StepConfidence::kNotSure)
        << length << " launches: period " << heard.findings().period_launches;
    ASSERT_TRUE(heard.boundaries().empty()) << length;
  }
  const Heard heard(launches);
  EXPECT_EQ(heard.findings().confidence, StepConfidence::kNotSure) << heard.findings().period_launches;
}

INSTANTIATE_TEST_SUITE_P(
    Traces, Unmarked,
    testing::Values(std::pair("nsysai_wan_train_2xh100_before.sqlite.gz", 0u),
                    std::pair("nsysai_wan_train_2xh100_before.sqlite.gz", 1u),
                    std::pair("tracelens_qwen05b_h100.json.gz", 0u),
                    std::pair("tracelens_vllm_eager_b200_rank0.json.gz", 0u),
                    std::pair("tracelens_sglang_decode_graph_mi300x.json.gz", 0u),
                    std::pair("tracelens_bert_small_h100.json.gz", 0u),
                    std::pair("extrap_concurrent_gtx1060.sqlite.gz", 0u),
                    std::pair("pipit_saxpy_mpi_a100.sqlite.gz", 0u), std::pair("fuser_h200_2025.sqlite.gz", 0u),
                    std::pair("hta_alexnet_fwd_a100.json.gz", 0u), std::pair("hta_event_sync_a100.json.gz", 0u),
                    std::pair("hta_old_cats_mini.json.gz", 0u), std::pair("param_dlrm8_v100_rank0.json.gz", 0u),
                    std::pair("param_dlrm8_v100_rank1.json.gz", 0u), std::pair("param_dlrm8_v100_rank2.json.gz", 0u),
                    std::pair("param_dlrm8_v100_rank3.json.gz", 0u)),
    [](const auto& test) {
      return test.param.first.substr(0, test.param.first.find('.')) + "_" + std::to_string(test.param.second);
    });

// ------------------------------------------------------------------------------------------- made from them

TEST(StepDetector, AccumulationIsNotTheMicroStep) {
  const Launches step = resnet_step();
  const Launches micro = part(step, 0, kStep - kOptimizer), update = part(step, kStep - kOptimizer, kStep);
  for (const std::uint64_t passes : {2u, 3u, 4u, 7u, 16u}) {
    Launches stream;
    Positions truth;
    for (int i = 0; i < 8; ++i) {
      truth.push_back(stream.size());
      for (std::uint64_t a = 0; a < passes; ++a) append(stream, micro);
      append(stream, update);
    }
    truth.push_back(stream.size());
    const std::uint64_t period = passes * micro.size() + kOptimizer;
    const Heard heard(stream);
    SCOPED_TRACE(passes);
    EXPECT_EQ(heard.findings().period_launches, period);
    EXPECT_EQ(heard.outside(truth), Positions{});
    EXPECT_EQ(heard.missed(truth, 3 * period), Positions{});
    EXPECT_EQ(heard.findings().micro_steps, passes);
    EXPECT_NEAR(heard.findings().micro_step_launches, micro.size(), static_cast<double>(micro.size()) / 32);
  }
}

TEST(StepDetector, AccumulationWhoseOptimizerHasNoName) {
  Launches step = part(resnet_kineto(), 1516, 3032);
  const std::size_t update_at = 1031;  // the loop over parameters begins about there
  const Launches micro = part(step, 0, update_at), update = part(step, update_at, step.size());
  for (const std::uint64_t passes : {2u, 4u, 8u}) {
    Launches stream;
    Positions truth;
    for (int i = 0; i < 8; ++i) {
      truth.push_back(stream.size());
      for (std::uint64_t a = 0; a < passes; ++a) append(stream, micro);
      append(stream, update);
    }
    const Heard heard(stream);
    SCOPED_TRACE(passes);
    EXPECT_EQ(heard.findings().period_launches, passes * micro.size() + update.size());
    EXPECT_EQ(heard.outside(truth), Positions{});
    EXPECT_LE(heard.findings().confidence, StepConfidence::kMedium);
  }
}

TEST(StepDetector, EvaluationBetweenSteps) {
  const Launches step = resnet_step();
  Launches stream;
  Positions truth;
  for (int block = 0; block < 3; ++block) {
    for (int i = 0; i < 5; ++i) {
      truth.push_back(stream.size());
      append(stream, step);
    }
    truth.push_back(stream.size());
    if (block == 2) break;
    for (int i = 0; i < 6; ++i) {
      append(stream, part(step, 0, 468));
      stream.push_back(copy(KernelRole::kCopyToHost));
    }
  }
  ASSERT_EQ(truth[6], 8909u);
  const Heard heard(stream);
  EXPECT_EQ(heard.findings().period_launches, kStep);
  EXPECT_EQ(heard.outside(truth), Positions{});
  EXPECT_LE(heard.missed(truth, 2438).size(), 2u);  // the step after each of the two may be left out
}

TEST(StepDetector, StreamsThatSwapNeighbours) {
  const Launches step = resnet_step();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Launches stream;
  Positions truth;
  for (int i = 0; i < 8 * 5; ++i) {
    truth.push_back(stream.size());
    append(stream, step);
  }
  truth.push_back(stream.size());
  // Two streams: communication, sets and copies on the second.
  const auto second = [](const Launch& l) {
    return l.traits.role == KernelRole::kComm || l.name < Launch::kFirstKernel;
  };
  std::bernoulli_distribution swaps(0.3);
  for (std::size_t i = 0; i + 1 < stream.size(); ++i)
    if (second(stream[i]) != second(stream[i + 1]) && swaps(random)) std::swap(stream[i], stream[i + 1]);
  const Heard heard(stream);
  EXPECT_NEAR(heard.findings().period_launches, kStep, kStep / 32.0);
  EXPECT_EQ(heard.outside(truth, 16), Positions{});
  EXPECT_EQ(heard.missed(truth, 5 * kStep, 16), Positions{});
}

/// Attached after the first launches of a run: no boundary but the true ones.
void attach_late(const Launches& launches, std::uint64_t period, const Positions& truth, const Positions& more = {}) {
  Positions drops = more;
  for (std::uint64_t k = 0; k < 96; ++k) drops.push_back(k * period / 60);
  std::string failed;
  for (const std::uint64_t drop : drops) {
    if (drop + 3 * period > launches.size()) continue;
    Positions expected;
    for (const std::uint64_t t : truth)
      if (t > drop) expected.push_back(t - drop);
    const Heard heard(part(launches, drop, launches.size()));
    const Positions wrong = heard.outside(expected);
    if (wrong.empty()) continue;
    failed += " " + std::to_string(drop) + ":" + std::to_string(wrong.front()) + "/" +
              std::to_string(heard.findings().period_launches);
    EXPECT_LT(heard.findings().confidence, StepConfidence::kHigh) << drop;
  }
  EXPECT_EQ(failed, "");
}

TEST(StepDetector, AttachedLateToResnet) { attach_late(resnet_v100(), 1219, {1219, 2438, 3657, 4876, 6095}); }
TEST(StepDetector, AttachedLateToResnetWithoutNamedOptimizer) {
  attach_late(resnet_kineto(), 1516, {1516, 3032, 4548, 6064, 7580, 9096}, {1051, 1091, 1131, 1172});
}
TEST(StepDetector, AttachedLateToTorchRec) {
  attach_late(torchrec(), 1664, {614, 2278, 3942, 5606, 7270, 8934, 10598});
}

TEST(StepDetector, WarmUpOfNamesNeverSeenAgain) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> times(3, 20);
  Launches stream;
  std::uint32_t name = 0;
  while (stream.size() < 2500) {
    const Launches one = foreign(1, name++);
    for (int i = times(random); i > 0 && stream.size() < 2500; --i) append(stream, one);
  }
  Positions truth;
  Heard heard;
  for (const Launch& launch : stream) heard.add(launch);
  EXPECT_TRUE(heard.boundaries().empty());
  const Launches step = resnet_step();
  std::uint64_t n = stream.size();
  for (int i = 0; i < 12; ++i) {
    truth.push_back(n);
    n += step.size();
    for (const Launch& launch : step) heard.add(launch);
  }
  truth.push_back(n);
  EXPECT_EQ(heard.findings().period_launches, kStep);
  EXPECT_EQ(heard.outside(truth), Positions{});
  heard.finish();
  EXPECT_EQ(heard.outside(truth), Positions{});
}

TEST(StepDetector, ShapeBuckets) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Launches step = resnet_step();
  for (const std::uint32_t buckets : {4u, 12u}) {
    Launches stream;
    Positions truth;
    for (int i = 0; i < 24; ++i) {
      const auto bucket = std::uniform_int_distribution<std::uint32_t>(0, buckets - 1)(random);
      truth.push_back(stream.size());
      for (Launch launch : step) {
        if (launch.traits.role == KernelRole::kGemm || launch.traits.role == KernelRole::kConvBackward)
          launch.name += 1000 * bucket;
        stream.push_back(launch);
      }
    }
    truth.push_back(stream.size());
    const Heard heard(stream);
    SCOPED_TRACE(buckets);
    EXPECT_EQ(heard.findings().period_launches, kStep);
    EXPECT_EQ(heard.outside(truth), Positions{});
    EXPECT_EQ(heard.missed(truth, 3 * kStep), Positions{});
    // Other shapes are the same operations.
    EXPECT_EQ(heard.findings().confidence, StepConfidence::kMedium);
  }
}

TEST(StepDetector, LoggingEveryTenthStep) {
  Launches log = foreign(7, 0);
  const Launches step = resnet_step();
  const Launches unnamed = part(resnet_kineto(), 1516, 3032);
  for (const Launches* one : {&step, &unnamed}) {
    Launches stream;
    for (int i = 1; i <= 60; ++i) {
      append(stream, *one);
      if (i % 10 == 0) append(stream, log);
    }
    const Heard heard(stream);
    EXPECT_EQ(heard.findings().period_launches, one->size());
    EXPECT_GE(heard.boundaries().size(), 55u);
  }
}

TEST(StepDetector, LostRecords) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Launches step = resnet_step();
  std::bernoulli_distribution lost(0.01);
  Launches stream;
  Positions truth;
  for (int i = 0; i < 40; ++i) {
    truth.push_back(stream.size());
    for (const Launch& launch : step)
      if (!lost(random)) stream.push_back(launch);
  }
  truth.push_back(stream.size());
  const Heard heard(stream);
  EXPECT_EQ(heard.outside(truth, 2), Positions{});
  EXPECT_GE(heard.findings().confidence, StepConfidence::kLow);
  EXPECT_LE(heard.findings().confidence, StepConfidence::kMedium);
  EXPECT_LE(heard.missed(truth, 5 * kStep, 2).size(), 2u);
}

TEST(StepDetector, HoleOfHalfAStep) {
  const Launches step = resnet_step();
  for (std::size_t hole_at = 0; hole_at < step.size(); hole_at += 97) {
    Launches stream;
    Positions truth;
    for (int i = 0; i < 12; ++i) {
      truth.push_back(stream.size());
      append(stream, step);
    }
    truth.push_back(stream.size());
    const std::size_t begin = 6 * step.size() + hole_at, length = step.size() / 2;
    stream.erase(stream.begin() + static_cast<std::ptrdiff_t>(begin),
                 stream.begin() + static_cast<std::ptrdiff_t>(begin + length));
    Positions after;
    for (const std::uint64_t t : truth) {
      if (t <= begin) after.push_back(t);
      if (t >= begin + length) after.push_back(t - length);
    }
    const Heard heard(stream);
    SCOPED_TRACE(hole_at);
    EXPECT_EQ(heard.outside(after), Positions{});
    EXPECT_LE(heard.missed(after, 3 * kStep).size(), 1u);
  }
}

/// Its foreach kernels copy; they update nothing.
TEST(StepDetector, DecodeIterationsOfSglang) {
  const Launches one = recorded("tracelens_sglang_decode_graph_mi300x.json.gz");
  ASSERT_EQ(one.size(), 15u);
  Launches stream;
  for (int i = 0; i < 60; ++i) append(stream, one);
  const Heard heard(stream);
  EXPECT_EQ(heard.findings().kind, StepKind::kDecode);
  EXPECT_EQ(heard.findings().period_launches, 15u);
  EXPECT_GE(heard.boundaries().size(), 58u);
  for (const std::uint64_t b : heard.boundaries()) EXPECT_EQ(b % 15, heard.boundaries().front() % 15);
}

/// An encoder that serves, with and without an argmax over its classes at the end, prefills nothing.
TEST(StepDetector, EncoderThatServesPrefillsNothing) {
  const auto special = [](KernelRole role, std::uint32_t name) {
    Launch launch;
    launch.name = name;
    launch.traits = traits_of(role);
    return launch;
  };
  const Launches pass = recorded("tracelens_bert_small_h100.json.gz");
  ASSERT_EQ(pass.size(), 61u);
  ASSERT_TRUE(
      std::any_of(pass.begin(), pass.end(), [](const Launch& l) { return l.traits.role == KernelRole::kAttention; }));
  for (const bool argmax : {true, false}) {
    Launches stream;
    Positions truth;
    for (int i = 0; i < 80; ++i) {
      truth.push_back(stream.size());
      stream.push_back(special(KernelRole::kCopyToDevice, static_cast<std::uint32_t>(KernelRole::kCopyToDevice)));
      append(stream, pass);
      if (argmax) stream.push_back(special(KernelRole::kSampling, Launch::kFirstKernel + 100'000));
      stream.push_back(special(KernelRole::kCopyToHost, static_cast<std::uint32_t>(KernelRole::kCopyToHost)));
    }
    truth.push_back(stream.size());
    const Heard heard(stream);
    SCOPED_TRACE(argmax);
    EXPECT_EQ(heard.findings().kind, StepKind::kIteration);
    EXPECT_EQ(heard.findings().period_launches, truth[1]);
    EXPECT_EQ(heard.outside(truth), Positions{});
    EXPECT_EQ(heard.missed(truth, truth[4]), Positions{});
  }
}

/// One process that trains on one device and copies at random on another, its correlation ids in one row.
TEST(StepDetector, TwoDevicesOfOneProcess) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> any(0, 40);
  TraceText trace;
  int id = 1;
  constexpr int kSteps = 8, kLayers = 6, kLaunches = 1 + 10 * kLayers + 6 * kLayers + 4;
  long at = 0;
  const auto launch = [&](const std::string& name, int device) {
    trace.launch(id, at).kernel(name, at + 1, at + 2, id, device);
    ++id;
    at += 3;
    if (device == 0 && any(random) < 20) {
      trace.launch(id, at).kernel("noise_" + std::to_string(any(random)), at + 1, at + 2, id, 1);
      ++id;
      at += 3;
    }
  };
  for (int s = 0; s < kSteps; ++s) {
    launch("embedding", 0);
    for (int l = 0; l < kLayers; ++l)
      for (int k = 0; k < 10; ++k) launch("forward_" + std::to_string(k), 0);
    for (int l = 0; l < kLayers; ++l)
      for (int k = 0; k < 6; ++k) launch("layer_norm_backward_" + std::to_string(k), 0);
    for (int k = 0; k < 4; ++k) launch("fused_adam", 0);
  }
  const auto read = read_kineto_text(trace.text(), "two.json");
  ASSERT_TRUE(read.ok());
  const auto devices = trace_launches(read.value());
  ASSERT_EQ(devices.size(), 2u);
  ASSERT_EQ(devices[0].launches.size(), static_cast<std::size_t>(kSteps * kLaunches));
  const Heard trained(devices[0].launches), other(devices[1].launches);
  EXPECT_EQ(trained.findings().period_launches, static_cast<std::uint32_t>(kLaunches));
  Positions truth;
  for (std::uint64_t s = 1; s <= kSteps; ++s) truth.push_back(s * kLaunches);
  EXPECT_EQ(trained.boundaries(), truth);
  EXPECT_EQ(other.findings().confidence, StepConfidence::kNotSure);
  EXPECT_TRUE(other.boundaries().empty());
}

TEST(StepDetector, TwoDetectorsDoNotKnowOfEachOther) {
  Heard one, two;
  const Launches& a = resnet_v100();
  const Launches& b = resnet_kineto();
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size()) one.add(a[i]);
    if (i < b.size()) two.add(b[i]);
  }
  one.finish();
  two.finish();
  EXPECT_EQ(one.boundaries(), Heard(a).boundaries());
  EXPECT_EQ(two.boundaries(), Heard(b).boundaries());
}

}  // namespace
}  // namespace mfu

// The step detector on what real PyTorch programs launched (tests/data/launches): names, threads, grids and order are
// theirs, and the true steps are the ranges that they opened.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/detect/launch_fold.h"
#include "core/detect/step_detector.h"
#include "core/kernels/kernel_names.h"
#include "core/kernels/kernel_traits.h"
#include "tests/unit/detect/made_launches.h"

namespace mfu {
namespace {

struct RecordedSteps {
  Launches launches;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;  ///< first launch, first launch after it
};

std::string unpacked(const std::string& name) {
  const std::string path = std::string(MFU_TEST_DATA) + "/launches/" + name + ".gz";
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return {};
  std::string text;
  std::array<char, 1 << 16> block{};
  for (int n = gzread(file, block.data(), static_cast<unsigned>(block.size())); n > 0;
       n = gzread(file, block.data(), static_cast<unsigned>(block.size())))
    text.append(block.data(), static_cast<std::size_t>(n));
  gzclose(file);
  return text;
}

KernelRole role_of_word(char word) {
  switch (word) {
    case 'h':
      return KernelRole::kCopyToDevice;
    case 'd':
      return KernelRole::kCopyToHost;
    case 'w':
      return KernelRole::kCopyWithin;
    default:
      return KernelRole::kMemset;
  }
}

RecordedSteps recording(const std::string& name) {
  std::istringstream text(unpacked(name));
  std::string line;
  std::getline(text, line);
  const nlohmann::json head = nlohmann::json::parse(line);
  std::vector<KernelTraits> traits;
  for (const auto& kernel_name : head["names"])
    traits.push_back(role_of_kernel(demangle(kernel_name.get<std::string>())));
  RecordedSteps out;
  for (const auto& step : head["steps"])
    out.steps.emplace_back(step[0].get<std::uint64_t>(), step[1].get<std::uint64_t>());
  std::string word;
  Launch launch;
  while (text >> word >> launch.thread >> launch.grid.x >> launch.grid.y >> launch.grid.z) {
    if (word[0] == 'g') {
      launch.name = Launch::kGraphName | static_cast<std::uint32_t>(std::stoul(word.substr(1)));
      launch.traits = traits_of(KernelRole::kGraph);
      std::uint8_t flags = 0;
      for (const auto& of : head["graphs"][word.substr(1)]) flags |= traits[of.get<std::size_t>()].flags;
      launch.traits.flags |= flags_of_graph(flags);
    } else if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      const std::size_t index = std::stoul(word);
      launch.name = Launch::kFirstKernel + static_cast<std::uint32_t>(index);
      launch.traits = traits[index];
    } else {
      launch.traits = traits_of(role_of_word(word[0]));
      launch.name = static_cast<std::uint32_t>(launch.traits.role);
    }
    launch.begin_ns += 5'000;
    launch.end_ns = launch.begin_ns + 4'000;
    out.launches.push_back(launch);
  }
  return out;
}

/// How many true steps were told, when all may be cut at one distance from the ranges (clearing gradients and copying a
/// batch lie outside some), and how many that are none.
struct Score {
  std::size_t right = 0, wrong = 0;

  Score(const RecordedSteps& recording, const Outcome& outcome) {
    const std::vector<std::uint64_t>& boundaries = outcome.boundaries;
    std::vector<std::int64_t> off;
    std::vector<std::size_t> nearest;
    for (const std::uint64_t at : boundaries) {
      std::int64_t best = 1 << 30;
      std::size_t which = 0;
      for (std::size_t s = 0; s <= recording.steps.size(); ++s) {
        // No other begins after the last: it would be as far as the last is from the one before.
        const std::uint64_t place = s < recording.steps.size()
                                        ? recording.steps[s].first
                                        : 2 * recording.steps[s - 1].first - recording.steps[s - 2].first;
        const std::int64_t distance = static_cast<std::int64_t>(at) - static_cast<std::int64_t>(place);
        if (std::abs(distance) >= std::abs(best)) continue;
        best = distance;
        which = s;
      }
      off.push_back(best);
      nearest.push_back(which);
    }
    if (off.empty()) return;
    std::vector<std::int64_t> sorted = off;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    const std::int64_t usual = sorted[sorted.size() / 2];
    for (std::size_t i = 1; i < boundaries.size(); ++i) {
      if (outcome.kinds[i] == StepKind::kNone) continue;
      const bool here = std::abs(off[i] - usual) <= 2, before = std::abs(off[i - 1] - usual) <= 2;
      ++(here && before && nearest[i] == nearest[i - 1] + 1 ? right : wrong);
    }
  }
};

void expect_found(const std::string& name, std::size_t least, StepKind kind, StepConfidence confidence,
                  std::size_t most_wrong = 2) {
  const RecordedSteps real = recording(name);
  ASSERT_FALSE(real.launches.empty());
  const Outcome outcome = detect(real.launches);
  const Score score(real, outcome);
  std::printf("%s: %zu launches, %zu of %zu right, %zu wrong, period %u\n", name.c_str(), real.launches.size(),
              score.right, real.steps.size(), score.wrong, outcome.findings.period_launches);
  EXPECT_GE(score.right, least) << name;
  EXPECT_LE(score.wrong, most_wrong) << name;
  EXPECT_EQ(outcome.findings.kind, kind) << name;
  EXPECT_GE(outcome.findings.confidence, confidence) << name;
}

TEST(Recordings, LoraSteps) { expect_found("lora", 27, StepKind::kStep, StepConfidence::kHigh); }
TEST(Recordings, TrainerStepsOfTwoPasses) { expect_found("trainer", 17, StepKind::kStep, StepConfidence::kLow); }
TEST(Recordings, ResNetSteps) { expect_found("resnet50", 9, StepKind::kStep, StepConfidence::kMedium); }
// What a new round prepares goes to its first pass, which begins and ends two of those that count as wrong.
TEST(Recordings, PassesOfGreedyGeneration) {
  expect_found("generate", 108, StepKind::kDecode, StepConfidence::kMedium, 4);
}
// The first prefill is told too, from the model's first launch on: what was prepared before is none of it.
TEST(Recordings, FirstPassOfGreedyGeneration) {
  const RecordedSteps real = recording("generate");
  ASSERT_FALSE(real.launches.empty());
  const Outcome outcome = detect(real.launches);
  ASSERT_GE(outcome.boundaries.size(), 2u);
  EXPECT_NEAR(static_cast<double>(outcome.boundaries[0]), static_cast<double>(real.steps[0].first), 2);
  EXPECT_NEAR(static_cast<double>(outcome.boundaries[1]), static_cast<double>(real.steps[1].first), 2);
}
TEST(Recordings, EachReplayOfADecodeGraph) {
  expect_found("decode_graph", 170, StepKind::kDecode, StepConfidence::kMedium);
}

}  // namespace
}  // namespace mfu

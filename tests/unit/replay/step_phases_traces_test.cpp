// Phases of recorded training steps, against what the same traces' host ranges say: launches inside
// `Optimizer.step#...` are the optimizer, those of the thread that runs `autograd::engine::evaluate_function...` (or
// operators of that pass, in older files) are the backward pass, all others the forward pass.
#include "core/detect/step_phases.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/replay/launch_streams.h"
#include "tools/trace/byte_source.h"

namespace mfu {
namespace {

std::string contents(const std::string& path) {
  auto source = ByteSource::open(path);
  if (!source.ok()) return {};
  std::string text, piece(1 << 20, '\0');
  while (true) {
    const auto got = source.value().read(piece);
    if (!got.ok() || got.value() == 0) return text;
    text.append(piece, 0, got.value());
  }
}

struct Case {
  std::string trace;
  std::vector<std::uint32_t> boundaries;
  PhaseRule without_threads;
};

/// The phase of every launch by the trace's own host ranges, in correlation order. Read from the file itself, with
/// nothing that the library makes of it.
std::vector<StepPhase> phases_by_ranges(const std::string& path) {
  const nlohmann::json trace = nlohmann::json::parse(contents(path));
  struct Host {
    std::string thread;
    double at = 0;
  };
  std::map<std::int64_t, Host> hosts;
  std::set<std::int64_t> device;
  std::map<std::string, std::vector<std::pair<double, double>>> updates;
  std::map<std::string, int> backward_ranges;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.value("ph", "") != "X") continue;
    std::string category = event.value("cat", "");
    for (char& c : category) c = static_cast<char>(std::tolower(c));
    const std::string name = event.value("name", "");
    const auto number = [&](const char* key) {
      const nlohmann::json& v = event.at(key);
      return v.is_string() ? std::stod(v.get<std::string>()) : v.get<double>();
    };
    const std::string thread = event.at("tid").dump();
    const nlohmann::json args = event.value("args", nlohmann::json::object());
    const auto id = args.find(args.contains("correlation") ? "correlation" : "correlation id");
    if (category == "cuda_runtime" || category == "runtime") {
      if (id != args.end()) hosts.try_emplace(id->get<std::int64_t>(), Host{thread, number("ts")});
    } else if (category == "kernel" || category.ends_with("memcpy") || category.ends_with("memset")) {
      if (id != args.end()) device.insert(id->get<std::int64_t>());
    } else if (name.starts_with("Optimizer.step#")) {
      updates[thread].emplace_back(number("ts"), number("ts") + number("dur"));
    } else if (name.starts_with("autograd::engine::evaluate_function") ||
               (category == "operator" && name.ends_with("Backward"))) {
      ++backward_ranges[thread];
    }
  }
  std::string engine;
  for (const auto& [thread, count] : backward_ranges)
    if (engine.empty() || count > backward_ranges[engine]) engine = thread;
  std::vector<StepPhase> phases;
  for (const std::int64_t id : device) {
    const auto host = hosts.find(id);
    StepPhase phase = StepPhase::kForward;
    if (host != hosts.end()) {
      if (host->second.thread == engine) phase = StepPhase::kBackward;
      for (const auto& [begin, end] : updates[host->second.thread])
        if (host->second.at >= begin && host->second.at <= end) phase = StepPhase::kOptimizer;
    }
    phases.push_back(phase);
  }
  return phases;
}

class RecordedPhases : public testing::TestWithParam<Case> {};

TEST_P(RecordedPhases, AreWhatTheHostRangesSay) {
  const Case& test = GetParam();
  const Launches launches = recorded(test.trace);
  const auto truth = phases_by_ranges(std::string(MFU_TEST_DATA) + "/traces/" + test.trace);
  ASSERT_EQ(truth.size(), launches.size());
  for (const bool with_threads : {true, false}) {
    StepPhases phases;
    std::size_t right = 0, all = 0;
    for (std::size_t i = 0; i + 1 < test.boundaries.size(); ++i) {
      const std::uint32_t begin = test.boundaries[i];
      Launches step = part(launches, begin, test.boundaries[i + 1]);
      if (!with_threads)
        for (Launch& launch : step) launch.thread = 0;
      const PhaseRule rule = phases.cut(step);
      ASSERT_EQ(rule, with_threads ? PhaseRule::kThreads : test.without_threads) << begin;
      std::uint32_t end = 0;
      for (const PhaseSpan& span : phases.spans()) {
        ASSERT_EQ(span.begin, end);
        ASSERT_GT(span.end, span.begin);
        end = span.end;
        for (std::uint32_t k = span.begin; k < span.end; ++k) right += truth[begin + k] == span.phase ? 1 : 0;
      }
      if (rule == PhaseRule::kNone) {
        EXPECT_TRUE(phases.spans().empty());
        continue;
      }
      ASSERT_EQ(end, step.size());
      all += step.size();
    }
    if (all == 0) continue;
    const double share = static_cast<double>(right) / static_cast<double>(all);
    std::printf("%s %s threads: %zu of %zu launches right\n", test.trace.c_str(), with_threads ? "with" : "without",
                right, all);
    EXPECT_GE(share, 0.99);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Traces, RecordedPhases,
    testing::Values(Case{"hta_resnet_ddp_v100_ns.json.gz", {0, 1219, 2438, 3657, 4876, 6095}, PhaseRule::kNames},
                    Case{"hta_resnet_ddp2_a100_rank0.json.gz", {0, 1258, 2516, 3774}, PhaseRule::kNames},
                    Case{"kineto_resnet50_v100_w0.json.gz", {0, 1516, 3032, 4548, 6064, 7580, 9096}, PhaseRule::kNames},
                    // Its loss is no kernel of its own, and 600 launches of its backward pass run forward's kernels.
                    Case{"hta_torchrec2_v100_rank1.json.gz", {2278, 3942, 5606, 7270, 8934}, PhaseRule::kNone},
                    Case{"param_dlrm8_v100_rank0.json.gz", {0, 261}, PhaseRule::kNone}),
    [](const auto& test) { return test.param.trace.substr(0, test.param.trace.find('.')); });

}  // namespace
}  // namespace mfu

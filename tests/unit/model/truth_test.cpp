// Counts of the modules of transformers, held against ours. tests/data/truth/README.md says how they were made.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/model/flops_model.h"
#include "core/model/read_architecture.h"

namespace mfu {
namespace {

using nlohmann::json;

/// What one forward pass costs by our count, in the parts that the module count has.
struct Counted {
  std::uint64_t params = 0, weights = 0, conv = 0, core = 0;
};

TEST(Truth, DevReport) {
  const char* path = std::getenv("TRUTH");
  std::ifstream file(path);
  std::string line;
  std::map<std::string, int> tally;
  while (std::getline(file, line)) {
    const json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    json config = entry["config"];
    config["architectures"] = {entry["class"]};
    const std::string name = entry["type"].get<std::string>() + " " + entry["class"].get<std::string>();
    const Result<Architecture> spec = read_model(config.dump(), "");
    if (!spec.ok()) {
      std::printf("REFUSED %s: %s\n", name.c_str(), spec.error().message.substr(0, 150).c_str());
      ++tally["refused"];
      continue;
    }
    const auto params = count_params(*spec).total();
    if (!(params == Count(entry["params"].get<std::int64_t>()))) {
      std::printf("PARAMS %s: ours %.0f theirs %lld diff %.0f\n", name.c_str(), params.to_double(),
                  static_cast<long long>(entry["params"].get<std::int64_t>()),
                  params.to_double() - static_cast<double>(entry["params"].get<std::int64_t>()));
      ++tally["params"];
      continue;
    }
    if (entry["flop"].empty()) {
      ++tally["params only"];
      std::printf("PONLY %s\n", name.c_str());
      continue;
    }
    std::size_t shape = 0;
    bool same = true;
    for (const auto& [batch, tokens] : {std::pair{2, 48}, std::pair{1, 72}}) {
      FlopsOptions options;
      options.attention = AttentionMode::kFull;
      options.logits = LogitsMode::kAll;
      const FlopsModel model = FlopsModel::make(*spec, options);
      const std::int64_t fed = spec->is_encoder_decoder() ? tokens / 2 : tokens;
      const SequenceGroup group{batch, 0, fed};
      CountRequest request;
      request.phase = Phase::kForward;
      request.sequences = {&group, 1};
      request.encoder_len = tokens;
      const auto flop = model.count_flop(request);
      if (!flop.ok()) { same = false; break; }
      const FlopParts& p = flop->parts;
      const Count core = p.attn_scores + p.attn_av + p.cross_scores + p.cross_av;
      Count conv, state;
      for (const LayerSpec& layer : spec->layers) {
        conv += layer_weights(layer, spec->d_model).conv * layer.repeat * 2 * batch * fed;
        state += state_flop_per_token(layer.mixer) * layer.repeat * batch * fed;
      }
      const Count weights = p.sum() - core - conv - state;
      const json& theirs = entry["flop"][shape++];
      const double w = theirs[0].get<double>(), c = theirs[2].get<double>();
      const double tower = spec->vision && spec->is_vision_only() ? theirs[1].get<double>() : 0;
      if (weights.to_double() != w + tower || core.to_double() != c) {
        std::printf("FLOP %s: weights %.0f vs %.0f (%+.0f) core %.0f vs %.0f (ratio %.4f) conv %.0f vs %.0f rest %.0f\n", name.c_str(), weights.to_double(), w,
                    weights.to_double() - w, core.to_double(), c, core.to_double() / c, conv.to_double(), theirs[1].get<double>(), theirs[3].get<double>());
        same = false;
        break;
      }
    }
    ++tally[same ? "exact" : "flop"];
    if (same) std::printf("EXACT %s\n", name.c_str());
  }
  for (const auto& [what, count] : tally) std::printf("%s: %d\n", what.c_str(), count);
}

}  // namespace
}  // namespace mfu

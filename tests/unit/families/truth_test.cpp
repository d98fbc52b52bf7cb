// Our counts held against those of the modules of transformers. tests/data/truth/README.md says how they were made.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/families/read_architecture.h"
#include "core/model/flops_model.h"

namespace mfu {
namespace {

using nlohmann::json;

/// One forward pass by our count, in the parts that a module count has.
struct Parts {
  double weights = 0, core = 0;
};

Parts count(const Architecture& spec, std::int64_t batch, std::int64_t tokens, std::int64_t encoder_len) {
  FlopsOptions options;
  std::vector<std::pair<std::int64_t, std::int64_t>> images;
  if (spec.is_vision_only() && spec.vision->kind == VisionKind::kDynamic) {  // 8 patches along each edge, or 16
    images.emplace_back(8 * batch * spec.vision->patch, 8 * batch * spec.vision->patch);
  }
  options.attention = AttentionMode::kFull;
  options.logits = LogitsMode::kAll;
  const FlopsModel model = FlopsModel::make(spec, options);
  const SequenceGroup group{batch, 0, tokens};
  CountRequest request;
  request.phase = Phase::kForward;
  request.sequences = {&group, 1};
  request.encoder_len = encoder_len;
  request.images = images;
  const Result<FlopCount> flop = model.count_flop(request);
  EXPECT_TRUE(flop.ok()) << (flop.ok() ? "" : flop.error().message);
  if (!flop.ok()) return {};
  const FlopParts& p = flop->parts;
  const Count core = p.attn_scores + p.attn_av + p.cross_scores + p.cross_av;
  // Convolutions of state-space layers run on padded rows there, and state updates in chunks: neither is compared.
  Count apart;
  for (const LayerSpec& layer : spec.layers) {
    const Count rows = Count(layer.repeat) * batch * tokens;
    apart += rows * 2 * layer_weights(layer, spec.d_model).conv + rows * state_flop_per_token(layer.mixer);
  }
  return {(p.sum() - core - apart).to_double(), core.to_double()};
}

/// Stored parameters, prediction modules left out: a config announces them, the library does not build them.
std::uint64_t params_of(const Architecture& spec) {
  const ParamGroups groups = count_params(spec);
  return (groups.total() - groups.mtp).u64();
}

/// Where our count means something else than what the module happens to do, with the reason.
const std::map<std::string, const char*> kOtherFlop = {
    {"llama4", "the library multiplies every expert with every token"},
    {"llama4_text", "likewise"},
    {"longformer", "the library fills the sequence up to whole windows, and multiplies overlapping chunks"},
    {"led", "likewise"},
    {"kimi_linear", "the library's recurrence lies in a class named attention"},
    {"zamba", "the library copies the state space's projections for every sequence, so they do not look stored"},
};

std::string name_of(const json& entry) {
  return entry["type"].get<std::string>() + " " + entry["class"].get<std::string>();
}

json config_of(const json& entry) {
  json config = entry["config"];
  config["architectures"] = json::array({entry["class"]});  // braces alone mean an array to gcc only
  return config;
}

/// Our count and the module's, for one of the two shapes.
struct Pair {
  Parts ours, theirs;
  bool together = false;  ///< only totals can be compared: of text and image side by side our image is one sum
};

Pair counted(const Architecture& spec, const json& entry, const json& flop, std::size_t shape) {
  const std::int64_t frames = entry.contains("config") ? entry["config"].value("max_source_positions", 1500) : 1500;
  const std::int64_t batch = shape == 0 ? 2 : 1, tokens = shape == 0 ? 48 : 72;
  const bool tower = spec.is_vision_only(), speech = !spec.encoder_token_weights.is_zero();
  // The patch embedding is a matrix here, and the convolutions in front of a speech encoder weights per token.
  const bool with_conv = tower || speech || !spec.front_weights.is_zero();
  Pair pair;
  pair.theirs = {flop[0].get<double>() + (with_conv ? flop[1].get<double>() : 0), flop[2].get<double>()};
  // MobileBERT joins two stored matrices before it multiplies.
  if (spec.family == "mobilebert") pair.theirs.weights += flop[3].get<double>();
  const std::int64_t fed = spec.is_encoder_decoder() ? tokens / 2 : tokens;
  const bool fixed = tower && spec.vision->kind != VisionKind::kDynamic;
  pair.ours = count(spec, fixed ? 1 : batch, fed,
                    speech               ? frames
                    : spec.image_context ? (spec.vision ? 0 : tokens / 2)
                                         : tokens);
  if (fixed && pair.ours.weights * 2 == pair.theirs.weights) {  // some towers were given two images
    pair.ours = count(spec, 2, fed, tokens);
  }
  // XLNet's einsum hides that one factor is a stored matrix.
  if (spec.image_per_sequence || spec.family == "xlnet") {
    pair.together = true;
    pair.ours = {pair.ours.weights + pair.ours.core, 0};
    pair.theirs = {pair.theirs.weights + (with_conv ? 0 : flop[1].get<double>()) + pair.theirs.core, 0};
  }
  return pair;
}

void compare(const std::string& name, const Architecture& spec, const json& entry, const json& flop,
             std::size_t shape) {
  const Pair pair = counted(spec, entry, flop, shape);
  EXPECT_EQ(pair.ours.weights, pair.theirs.weights)
      << name << (pair.together ? ": all" : ": products with stored matrices") << ", shape " << shape;
  EXPECT_EQ(pair.ours.core, pair.theirs.core) << name << ": attention core, shape " << shape;
}

TEST(Truth, EveryModuleCountsAsItsLibraryRunsIt) {
  std::ifstream file(MFU_TEST_DATA "/truth/modules.jsonl");
  std::set<std::string> exact_params, exact_flop;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    const std::string name = name_of(entry), type = entry["type"];
    const Result<Architecture> spec = read_model(config_of(entry).dump(), "");
    if (!spec.ok()) {
      // Class defaults that no checkpoint has: a missing expert count, 96 heads on a width of 4096.
      EXPECT_TRUE(type == "deepseek_v2") << name << ": " << spec.error().message;
      continue;
    }
    if (!spec->assumed.empty()) continue;  // said to be a guess
    EXPECT_EQ(params_of(*spec), entry["params"].get<std::uint64_t>()) << name;
    exact_params.insert(type);
    if (kOtherFlop.contains(type)) continue;
    for (std::size_t shape = 0; shape < entry["flop"].size(); ++shape) {
      compare(name, *spec, entry, entry["flop"][shape], shape);
      exact_flop.insert(type);
    }
  }
  std::printf("%zu types by parameters, %zu of them by FLOP of two shapes\n", exact_params.size(), exact_flop.size());
  EXPECT_GE(exact_params.size(), 372u);
  EXPECT_GE(exact_flop.size(), 336u);
}

/// The transformers of diffusers, with the configs of published models: two shapes of image and text tokens each.
TEST(Truth, DiffusionTransformersCountAsTheirLibraryRunsThem) {
  std::ifstream file(MFU_TEST_DATA "/truth/diffusers.jsonl");
  std::set<std::string> exact;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    const std::string name = entry["config"]["_class_name"];
    const Result<Architecture> spec = read_model(entry["config"].dump(), "");
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.error().message;
    EXPECT_EQ(params_of(*spec), entry["params"].get<std::uint64_t>()) << name;
    for (const json& shape : entry["flop"]) {
      const Parts ours = count(*spec, 2, shape[0], shape[1]);
      EXPECT_EQ(ours.weights, shape[2].get<double>()) << name << ": products with stored matrices";
      EXPECT_EQ(ours.core, shape[3].get<double>()) << name << ": attention core";
    }
    exact.insert(name);
  }
  EXPECT_EQ(exact.size(), 6u);
}

/// Configs with one key changed: what the module does with the key, ours does, or it is an error. A key that the
/// library ignores must change nothing here either.
TEST(Truth, ChangedKeysChangeWhatTheyChangeThere) {
  std::ifstream file(MFU_TEST_DATA "/truth/variants.jsonl");
  std::size_t compared = 0, refused = 0;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (!entry.contains("variants")) continue;
    const std::string type = entry["type"];
    for (const json& variant : entry["variants"]) {
      json config = entry["base"];
      config.merge_patch(variant[0]);
      config["architectures"] = json::array({entry["class"]});  // braces alone mean an array to gcc only
      const std::string name = type + " with " + variant[1].dump();
      const Result<Architecture> spec = read_model(config.dump(), "");
      if (!spec.ok() || !spec->assumed.empty()) {
        ++refused;
        continue;
      }
      ++compared;
      EXPECT_EQ(params_of(*spec), variant[2].get<std::uint64_t>()) << name;
      if (!variant[3].is_null() && !kOtherFlop.contains(type))
        compare(name, *spec, json{{"config", config}}, variant[3], 0);
    }
  }
  std::printf("%zu variants compared, %zu refused\n", compared, refused);
  EXPECT_GE(compared, 1900u);
}

/// Whole configs with keys changed by chance, as people write them: keys left out or null, too.
TEST(Truth, ConfigsChangedByChanceCountAsTheLibraryCountsThem) {
  std::ifstream file(MFU_TEST_DATA "/truth/changes.jsonl");
  std::size_t exact = 0;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    const std::string name = name_of(entry) + " " + entry["key"].get<std::string>();
    const Result<Architecture> spec = read_model(config_of(entry).dump(), "");
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.error().message;
    ASSERT_TRUE(spec->assumed.empty()) << name << ": " << spec->assumed.front();
    EXPECT_EQ(params_of(*spec), entry["params"].get<std::uint64_t>()) << name;
    if (!entry["flop"].empty()) compare(name, *spec, entry, entry["flop"][0], 0);
    ++exact;
  }
  std::printf("%zu configs compared\n", exact);
  EXPECT_GE(exact, 600u);
}

/// The attention core of what the mask lets through: windows, chunks, causality, on 96 tokens.
double masked_core(const Architecture& spec, std::int64_t tokens) {
  FlopsOptions options;
  const FlopsModel model = FlopsModel::make(spec, options);
  const std::int64_t fed = spec.is_encoder_decoder() ? tokens / 2 : tokens;
  const SequenceGroup group{1, 0, fed};
  CountRequest request;
  request.phase = Phase::kForward;
  request.sequences = {&group, 1};
  request.encoder_len = spec.encoder_token_weights.is_zero() ? tokens : 1500;  // 30 seconds of sound
  const Result<FlopCount> flop = model.count_flop(request);
  if (!flop.ok()) return -1;
  const FlopParts& p = flop->parts;
  return (p.attn_scores + p.attn_av + p.cross_scores + p.cross_av).to_double();
}

TEST(Truth, MasksLetThroughWhatTheyDoThere) {
  const char* other = std::getenv("MASKED");
  std::ifstream file(other != nullptr ? other : MFU_TEST_DATA "/truth/masked.jsonl");
  std::size_t exact = 0;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    const Result<Architecture> spec = read_model(config_of(entry).dump(), "");
    if (!spec.ok() || !spec->assumed.empty()) continue;
    const double ours = masked_core(*spec, 96), theirs = entry["core"].get<double>();
    EXPECT_EQ(ours, theirs) << name_of(entry);
    exact += ours == theirs ? 1 : 0;
  }
  std::printf("%zu types by the pairs that their masks show\n", exact);
  EXPECT_GE(exact, other != nullptr ? 0u : 80u);
}

/// For a run over files that are not part of the tree: prints what differs. TRUTH=counted.jsonl truth_test
TEST(Truth, Report) {
  const char* path = std::getenv("TRUTH");
  if (path == nullptr) GTEST_SKIP() << "set TRUTH to a file of count_modules.py";
  std::ifstream file(path);
  std::map<std::string, int> tally;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    const std::string name = name_of(entry) + (entry.contains("key") ? " " + entry["key"].get<std::string>() : "");
    const Result<Architecture> spec = read_model(config_of(entry).dump(), "");
    const std::string said = !spec.ok()               ? spec.error().message
                             : !spec->assumed.empty() ? spec->assumed.front()
                             : !spec->not_counted.empty() && name.find("_omni ") != name.npos
                                 ? spec->not_counted.front()
                                 : "";
    if (!said.empty()) {
      std::printf("REFUSED %s: %s\n", name.c_str(), said.substr(0, 150).c_str());
      ++tally["refused"];
      continue;
    }
    const double theirs = entry["params"].get<double>(), ours = static_cast<double>(params_of(*spec));
    if (ours != theirs) {
      std::printf("PARAMS %s: ours %.0f theirs %.0f (%+.0f)\n", name.c_str(), ours, theirs, ours - theirs);
      ++tally["params"];
      continue;
    }
    std::string difference;
    const std::size_t shapes = kOtherFlop.contains(entry["type"].get<std::string>()) ? 0 : entry["flop"].size();
    for (std::size_t shape = 0; shape < shapes && difference.empty(); ++shape) {
      const json& flop = entry["flop"][shape];
      const Pair pair = counted(*spec, entry, flop, shape);
      if (pair.ours.weights != pair.theirs.weights || pair.ours.core != pair.theirs.core) {
        char text[200];
        std::snprintf(text, sizeof text, "weights %.0f vs %.0f (%+.0f) core %.0f vs %.0f conv %.0f rest %.0f",
                      pair.ours.weights, pair.theirs.weights, pair.ours.weights - pair.theirs.weights, pair.ours.core,
                      pair.theirs.core, flop[1].get<double>(), flop[3].get<double>());
        difference = text;
      }
    }
    const char* word = !difference.empty() ? "FLOP" : entry["flop"].empty() ? "PONLY" : "EXACT";
    ++tally[word];
    std::printf("%s %s %s\n", word, name.c_str(), difference.c_str());
  }
  for (const auto& [what, n] : tally) std::printf("%s: %d\n", what.c_str(), n);
}

}  // namespace
}  // namespace mfu

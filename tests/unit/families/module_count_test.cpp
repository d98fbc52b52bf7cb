// A model by its modules: sums, and the modules of transformers. tests/data/truth/README.md says how they were counted.
#include "core/model/module_count.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/model/counted.h"

namespace mfu {
namespace {

using nlohmann::json;

struct Work {
  const char* what;
  Phase phase;
  SequenceGroup group;
  std::int64_t passes = 1;
};
constexpr Work kWorks[] = {{"training", Phase::kTrain, {2, 0, 96}},
                           {"prefill", Phase::kPrefill, {3, 32, 64}},
                           {"decode", Phase::kDecode, {4, 100, 1}, 7}};

/// Every config that the tests have: no part is left out, and none counts twice.
TEST(ModuleCount, AddsUpToTheModel) {
  std::ifstream file(MFU_TEST_DATA "/truth/modules.jsonl");
  int models = 0;
  for (std::string line; std::getline(file, line);) {
    json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    entry["config"]["architectures"] = json::array({entry["class"]});
    const Result<Architecture> spec = read_model(entry["config"].dump(), "");
    if (!spec.ok()) continue;
    ++models;
    for (const bool adapted : {false, true}) {
      FlopsOptions options;
      options.grad_accum = 3;
      if (adapted) options.trainable.lora = LoraConfig{.rank = 8, .q = true, .up = true};
      const FlopsModel model = FlopsModel::make(*spec, options);
      for (const Work& work : kWorks) {
        CountRequest request;
        request.phase = work.phase;
        request.sequences = {&work.group, 1};
        request.passes = work.passes;
        request.encoder_len = 40;
        std::vector<std::pair<std::int64_t, std::int64_t>> images{{448, 672}};
        if (spec->vision) request.images = images;
        const Result<FlopCount> whole = model.count_flop(request);
        if (!whole.ok()) continue;
        SCOPED_TRACE(entry["type"].get<std::string>() + ", " + work.what + (adapted ? ", adapters" : ""));
        Count params, flop;
        for (const ModuleCount& module : count_modules(model, request)) {
          params += module.params;
          flop += module.flop();
          EXPECT_FALSE(module.name.empty());
          EXPECT_TRUE(module.flop().fits() && module.params.fits()) << module.name;
        }
        EXPECT_EQ(params.u64(), count_params(*spec).total().u64());
        EXPECT_EQ(flop.u64(), whole->forward.u64());
      }
    }
  }
  EXPECT_GE(models, 380);
}

TEST(ModuleCount, NamesKindsAndOutputs) {
  const FlopsModel model = model_of(R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000,
    "tie_word_embeddings": false})");
  const SequenceGroup group{2, 0, 64};
  CountRequest request;
  request.phase = Phase::kTrain;
  request.sequences = {&group, 1};
  const std::vector<ModuleCount> modules = count_modules(model, request);
  ASSERT_EQ(modules.size(), 4u);  // and the last norm, which computes nothing that counts
  EXPECT_EQ(modules[0].name, "embedding");
  EXPECT_EQ(modules[0].params.u64(), 256'000u);
  EXPECT_EQ(modules[0].outputs->u64(), 128u * 256);
  EXPECT_EQ(modules[1].name, "layers");
  EXPECT_EQ(modules[1].kind, "attention + mlp");
  EXPECT_EQ(modules[1].layers, 4);
  // Queries, keys and values; the core; the output matrix; gate, up and down.
  EXPECT_EQ(modules[1].outputs->u64(), 4u * 128 * ((256 + 64 + 64) + 256 + 256 + (512 + 512 + 256)));
  EXPECT_EQ(modules[1].products.u64(), 4u * 128 * 2 * (256 * (256 + 64 + 64) + 256 * 256 + 3 * 256 * 512));
  EXPECT_EQ(modules[1].attention.u64(), 4u * 2 * 4 * 256 * (64 * 65 / 2));
  EXPECT_EQ(modules[2].name, "outside of layers");
  EXPECT_EQ(modules[2].params.u64(), 256u);
  EXPECT_EQ(modules[3].name, "output matrix");
  EXPECT_EQ(modules[3].outputs->u64(), 128u * 1000);
}

/// Types whose modules have names, or are cut, in another way than the file's patterns know.
const std::map<std::string, const char*> kOtherParts = {
    {"bloom", "the norm behind the table is named as the table is"},
    {"lfm2", "likewise the last norm"},
    {"lfm2_moe", "likewise"},
    {"lfm2_vl", "likewise"},
    {"lfm3", "likewise"},
    {"fuyu", "patches are embedded by a matrix beside the table"},
    {"gemma3n_text", "projections of the tables have names of tables"},
    {"rwkv", "the norm in front is in the first layer"},
    {"flaubert", "layers are lists of attentions, norms and MLPs"},
    {"xlm", "likewise"},
    {"xlnet", "the output matrix is named as a loss"},
    {"modernbert-decoder", "the output matrix is named as a decoder"},
    {"hyperclovax_vision_v2", "a sound encoder counts as stored, outside of layers"},
    {"step3p7",
     "the width of its tower's MLP follows from a ratio, and the key that was changed does nothing when it is read"},
    {"longcat_flash", "layers have two names in its config, and one of them was changed"},
    {"qwen2_5_omni_thinker", "a sound encoder counts as stored, outside of layers"},
    {"qwen3_omni_moe_thinker", "likewise"},
    {"phi4_multimodal", "likewise"},
    {"llama4", "the library multiplies every expert with every token"},
    {"llama4_text", "likewise"},
    {"kimi_linear", "the library's recurrence lies in a class named attention"},
};

/// Parts of real modules, of sizes that no other test has.
TEST(ModuleCount, PartsAreThoseOfTheLibrary) {
  std::ifstream file(MFU_TEST_DATA "/truth/parts.jsonl");
  int models = 0, towers = 0, flop_models = 0;
  for (std::string line; std::getline(file, line);) {
    json entry = json::parse(line);
    if (!entry.contains("config")) continue;
    const std::string type = entry["type"];
    if (kOtherParts.contains(type)) continue;
    entry["config"]["architectures"] = json::array({entry["class"]});
    const Result<Architecture> spec = read_model(entry["config"].dump(), "");
    ASSERT_TRUE(spec.ok()) << type << ": " << spec.error().message;
    FlopsOptions options;
    options.attention = AttentionMode::kFull;
    options.logits = LogitsMode::kAll;
    const SequenceGroup group{2, 0, 40};
    CountRequest request;
    request.phase = Phase::kForward;
    request.sequences = {&group, 1};
    std::map<std::string, std::uint64_t> params, flop;
    bool products_alone = true;  // convolutions and recurrences run on padded rows there
    for (const ModuleCount& module : count_modules(FlopsModel::make(*spec, options), request)) {
      products_alone = products_alone && module.convolution.is_zero() && module.state.is_zero();
      if (module.name == "prediction modules") continue;  // a config announces them, the library does not build them
      if (!module.params.is_zero()) params[module.name] += module.params.u64();
      if (!module.flop().is_zero()) flop[module.name] += module.flop().u64();
    }
    EXPECT_EQ(json(params), entry["params"]) << type;
    ++models;
    towers += params.contains("tower") ? 1 : 0;
    if (!products_alone || !entry.contains("flop")) continue;
    EXPECT_EQ(json(flop), entry["flop"]) << type;
    ++flop_models;
  }
  std::printf("%d models by parts, %d of them with a tower, %d by FLOP\n", models, towers, flop_models);
  EXPECT_GE(models, 150);
  EXPECT_GE(towers, 40);
  EXPECT_GE(flop_models, 120);
}

}  // namespace
}  // namespace mfu

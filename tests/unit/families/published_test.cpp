// Published figures: parameter counts of models beside the golden ones, and FLOP of papers and code bases.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/families/read_architecture.h"
#include "core/model/flops_model.h"
#include "core/model/scaling_law.h"
#include "core/model/vision.h"
#include "tests/unit/model/counted.h"

namespace mfu {
namespace {

using nlohmann::json;

TEST(Published, ParameterCounts) {
  const json data = json::parse(std::ifstream(MFU_TEST_DATA "/published.json"));
  EXPECT_GT(data["models"].size(), 60u);
  for (const json& model : data["models"]) {
    const std::string name = model["name"];
    const Result<Architecture> spec = read_model(model["config"].dump(), name + ": ");
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(count_params(*spec).total().u64(), model["params"].get<std::uint64_t>()) << name;
  }
}

/// Configs of current models as a planning tool ships them: read as what they are, not as something like it. Those
/// that are not are named, so that a new one is seen.
TEST(Published, ShippedConfigsAreKnown) {
  const std::vector<std::string> unknown = {"stepfun-ai--Step-3.7-Flash", "stepfun-ai--Step-3.7-Flash-FP8"};
  std::ifstream file(MFU_TEST_DATA "/shipped_configs.jsonl");
  int known = 0;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    const std::string name = entry["name"];
    const Result<Architecture> spec = read_model(entry["config"].dump(), "");
    const bool as_it_is = spec.ok() && spec->assumed.empty();
    EXPECT_NE(as_it_is, std::find(unknown.begin(), unknown.end(), name) != unknown.end())
        << name << ": " << (spec.ok() ? (as_it_is ? "read" : spec->assumed.front()) : spec.error().message);
    known += as_it_is ? 1 : 0;
  }
  EXPECT_EQ(known, 84);
}

/// Files that name no model type are known by their keys: the same model as with the type named.
TEST(Published, FilesWithoutAModelType) {
  const json data = json::parse(std::ifstream(MFU_TEST_DATA "/published.json"));
  int read = 0;
  for (const json& model : data["models"]) {
    json config = model["config"];
    if (config["model_type"] != "meta_params" && config["model_type"] != "megatron_args" &&
        config["model_type"] != "deepseek_args")
      continue;
    config.erase("model_type");
    const Result<Architecture> spec = read_model(config.dump(), "");
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(count_params(*spec).total().u64(), model["params"].get<std::uint64_t>()) << model["name"];
    ++read;
  }
  EXPECT_EQ(read, 8);
}

/// ERNIE 4.5 counts the layers with experts from a first to a last one; -1 is the last of all.
TEST(Published, ErnieLayersWithExpertsEnd) {
  json config = {{"model_type", "ernie4_5_moe"}, {"hidden_size", 64},          {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},     {"num_key_value_heads", 2},   {"intermediate_size", 96},
                 {"vocab_size", 1000},           {"moe_num_experts", 8},       {"moe_k", 2},
                 {"moe_intermediate_size", 32},  {"moe_layer_start_index", 1}, {"moe_layer_end_index", 2}};
  const auto params = [](const json& one) { return count_params(*read_model(one.dump(), "")).total().u64(); };
  json listed = config;
  listed["mlp_layer_types"] = {"dense", "sparse", "sparse", "dense"};
  EXPECT_EQ(params(config), params(listed));
  config["moe_layer_end_index"] = -1;
  listed["mlp_layer_types"] = {"dense", "sparse", "sparse", "sparse"};
  EXPECT_EQ(params(config), params(listed));
}

/// Every entry of the table reads some config of the data; a family without one is not covered by anything.
TEST(Published, EveryFamilyIsCovered) {
  std::vector<std::string> covered = {"nanogpt"};
  for (const char* file : {"/published.json", "/families.json"}) {
    const json data = json::parse(std::ifstream(std::string(MFU_TEST_DATA) + file));
    for (const json& model : data["models"]) {
      covered.push_back(model["config"]["model_type"]);
      // Parts whose config names no type of their own.
      for (const json& part : model.value("covers", json::array())) covered.push_back(part);
      for (const char* key : {"text_config", "language_config"}) {
        if (model["config"].contains(key)) covered.push_back(model["config"][key].value("model_type", ""));
      }
    }
  }
  const json golden = json::parse(std::ifstream(MFU_TEST_DATA "/reference/golden.json"));
  for (const json& model : golden["models"]) covered.push_back(model["model_type"]);
  std::ifstream truth(MFU_TEST_DATA "/truth/modules.jsonl");
  for (std::string line; std::getline(truth, line);) {
    const json entry = json::parse(line);
    covered.push_back(entry.value("type", ""));
    const json config = entry.value("config", json::object());
    for (const char* key : {"audio_config", "vision_config"}) {
      if (config.contains(key)) covered.push_back(config[key].value("model_type", ""));
    }
  }
  std::ifstream diffusers(MFU_TEST_DATA "/truth/diffusers.jsonl");
  for (std::string line; std::getline(diffusers, line);) {
    const json entry = json::parse(line);
    if (entry.contains("config")) covered.push_back(entry["config"]["_class_name"]);
  }
  for (std::string_view type : known_model_types()) {
    EXPECT_NE(std::find(covered.begin(), covered.end(), type), covered.end())
        << type << " is in the table but in no test data";
  }
}

/// Small configs whose parameters were counted from the modules of the transformers library, 4.57.
TEST(Published, ParameterCountsOfSmallConfigs) {
  const json data = json::parse(std::ifstream(MFU_TEST_DATA "/families.json"));
  EXPECT_GT(data["models"].size(), 60u);
  for (const json& model : data["models"]) {
    const std::string name = model["name"];
    const Result<Architecture> spec = read_model(model["config"].dump(), name + ": ");
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(count_params(*spec).total().u64(), model["params"].get<std::uint64_t>()) << name;
  }
}

// nanoGPT's transformer_sizing notebook: forward 291,648,307,200 and forward + backward 874,944,921,600 FLOP for GPT-2
// 124M at T = 1024, batch 1, attention as the full square.
TEST(Published, NanoGptNotebook) {
  FlopsOptions options;
  options.attention = AttentionMode::kFull;
  const FlopsModel gpt2 = model_of(
      R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})",
      options);
  const FlopCount step = count(gpt2, Phase::kTrain, {{1, 0, 1024}});
  EXPECT_EQ(step.forward.u64(), 291'648'307'200u);
  EXPECT_EQ(step.total.u64(), 874'944'921'600u);
  EXPECT_EQ(step.parts.attn_scores.u64(), 19'327'352'832u);
  EXPECT_EQ(step.parts.logits.u64(), 79'047'426'048u);
}

// PaLM, arXiv:2204.02311 appendix B: 540.35e9 parameters, L = 118, H = 48, Q = 256, T = 2048; "12 L H Q T" per token.
// 238.3e3 tokens/s on 6144 TPU v4 (275 TFLOP/s) with and without self-attention gave 46.2 % and 45.7 %.
TEST(Published, Palm) {
  const double params = 540.35e9, tokens_per_s = 238.3e3, peak = 6144 * 275e12;
  EXPECT_NEAR(tokens_per_s * 6 * params / peak, 0.457, 0.001);
  EXPECT_NEAR(tokens_per_s * (6 * params + 12.0 * 118 * 48 * 256 * 2048) / peak, 0.462, 0.001);
  // The convention's attention term on a model with PaLM's attention: (total - 6ND)/D is that 12LHQT.
  const std::string config = R"({"d_model": 18432, "vocab_size": 256000, "tied": true, "layers": [{"repeat": 118,
      "attention": {"heads": 48, "kv_heads": 1, "head_dim": 256}, "mlp": {"width": 73728, "matrices": 3}}]})";
  FlopsOptions palm, rule;
  palm.convention = Convention::kPalm;
  rule.convention = Convention::k6nd;
  const std::uint64_t difference = count(model_of(config, palm), Phase::kTrain, {{1, 0, 2048}}).total.u64() -
                                   count(model_of(config, rule), Phase::kTrain, {{1, 0, 2048}}).total.u64();
  EXPECT_EQ(difference, 12ull * 118 * 48 * 256 * 2048 * 2048);
}

// Korthikanti et al., arXiv:2205.05198: model FLOP 72 B L s h^2 (1 + s/6h + v/12hL) per step, the full square counted;
// selective recomputation adds the core once more: s/3h instead of s/6h. 175B: h = 12288, L = 96, s = 2048, v = 51200.
TEST(Published, KorthikantiClosedForm) {
  constexpr std::uint64_t B = 64, L = 96, s = 2048, h = 12288, v = 51200;
  FlopsOptions options;
  options.attention = AttentionMode::kFull;
  options.recompute = Recompute::kSelective;
  const FlopsModel gpt = model_of(R"({"d_model": 12288, "vocab_size": 51200, "tied": true, "layers": [{"repeat": 96,
      "attention": {"heads": 96, "head_dim": 128}, "mlp": {"width": 49152, "matrices": 2}}]})",
                                  options);
  const FlopCount step = count(gpt, Phase::kTrain, {{B, 0, s}});
  // 72BLsh^2 + 12BLs^2h + 6Bshv
  EXPECT_EQ(step.total.u64(), 72 * B * L * s * h * h + 12 * B * L * s * s * h + 6 * B * s * h * v);
  EXPECT_EQ(step.recompute.u64(), 4 * B * L * s * s * h);
}

// Narayanan et al., arXiv:2104.04473 section 5: 96 B s l h^2 (1 + s/6h + V/16lh) with full activation recomputation.
TEST(Published, MegatronWithFullRecomputation) {
  constexpr std::uint64_t B = 8, L = 24, s = 2048, h = 2048, V = 51200;
  FlopsOptions options;
  options.attention = AttentionMode::kFull;
  options.recompute = Recompute::kFull;
  const FlopsModel gpt = model_of(R"({"d_model": 2048, "vocab_size": 51200, "tied": true, "layers": [{"repeat": 24,
      "attention": {"heads": 16, "head_dim": 128}, "mlp": {"width": 8192, "matrices": 2}}]})",
                                  options);
  const FlopCount step = count(gpt, Phase::kTrain, {{B, 0, s}});
  EXPECT_EQ((step.total + step.recompute).u64(), 96 * B * s * L * h * h + 16 * B * s * s * L * h + 6 * B * s * h * V);
}

// GPT-3, arXiv:2005.14165 table D.1: 174,600 M parameters and 300 B tokens are 3.14e23 FLOP by the 6ND rule.
TEST(Published, Gpt3TableD1) {
  FlopsOptions options;
  options.convention = Convention::k6nd;
  const FlopsModel gpt3 = model_of(R"({"params": 174600000000})", options);
  const double per_token = count(gpt3, Phase::kTrain, {{1, 0, 2048}}).total.to_double() / 2048;
  EXPECT_NEAR(per_token * 300e9, 3.14e23, 0.005e23);
}

// Llama 3, arXiv:2407.21783 section 3.3.2 and table 4: 405B at sequence 8192 on 16384 H100 ran at 400 TFLOP/s and 41 %
// (tp 8, cp 1, pp 16, dp 128, 16 M tokens per batch); its FLOP include the causal half of attention.
TEST(Published, Llama3Utilisation) {
  const FlopsModel llama =
      model_of(R"({"model_type": "llama", "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128,
      "num_key_value_heads": 8, "intermediate_size": 53248, "vocab_size": 128256})");
  EXPECT_NEAR(400e12 / 989.4e12, 0.41, 0.01);
  // 3.8e25 FLOP for 15.6 T tokens (section 3.2): 6N plus attention, within 3 %.
  const double per_token = count(llama, Phase::kTrain, {{1, 0, 8192}}).total.to_double() / 8192;
  EXPECT_NEAR(per_token * 15.6e12 / 3.8e25, 1, 0.06);
}

// DeepSeek-V3, arXiv:2505.09343 table 4: 250.5 GFLOP per token counted causally, 4096 tokens.
TEST(Published, DeepSeekV3PerToken) {
  const FlopsModel v3 = model_of(
      R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
      "intermediate_size": 18432, "vocab_size": 129280, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
      "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})");
  const double per_token = count(v3, Phase::kTrain, {{1, 0, 4096}}).total.to_double() / 4096;
  EXPECT_NEAR(per_token, 250.5e9, 0.1e9);
  // 70,272 bytes of cache per token in BF16.
  CountRequest request;
  request.phase = Phase::kDecode;
  const SequenceGroup one{1, 0, 1};
  request.sequences = {&one, 1};
  EXPECT_EQ(v3.count_bytes(request)->kv_write.u64(), 70'272u);
}

// FLOP of one image: CLIP-L/14-336 with LLaVA-1.5's projector 406 GFLOP; DeepSeek-OCR 1.140 TFLOP at 1024 pixels and
// 0.388 TFLOP for a 640 tile.
TEST(Published, VisionTowers) {
  const json data = json::parse(std::ifstream(MFU_TEST_DATA "/published.json"));
  for (const json& model : data["models"]) {
    const std::string name = model["name"];
    if (name != "llava-1.5-7b" && name != "deepseek-ocr") continue;
    const Result<Architecture> spec = read_model(model["config"].dump(), name + ": ");
    ASSERT_TRUE(spec.ok() && spec->vision);
    if (name == "llava-1.5-7b") {
      const VisionCount image = count_image(*spec->vision, 336, 336);
      EXPECT_NEAR(image.sum().to_double(), 406e9, 0.5e9);
      EXPECT_EQ(image.tokens_out.u64(), 576u);
    } else {
      EXPECT_NEAR(count_image(*spec->vision, 1024, 1024).sum().to_double(), 1.140e12, 0.0005e12);
      EXPECT_NEAR(count_image(*spec->vision, 640, 640).sum().to_double(), 0.388e12, 0.0005e12);
      EXPECT_EQ(count_image(*spec->vision, 1024, 1024).tokens_out.u64(), 256u);
      EXPECT_EQ(count_image(*spec->vision, 640, 640).tokens_out.u64(), 100u);
    }
  }
}

// arXiv:2203.15556: equation 10's constants; with them 70B parameters on 1.4 T tokens come to a loss of 1.94, and a
// budget split is optimal when neither direction improves it.
TEST(Published, ChinchillaLaw) {
  const ScalingConstants c;
  EXPECT_NEAR(predicted_loss(c, 70e9, 1.4e12), 1.69 + 406.4 / std::pow(70e9, 0.34) + 410.7 / std::pow(1.4e12, 0.28),
              1e-12);
  EXPECT_NEAR(predicted_loss(c, 70e9, 1.4e12), 1.937, 0.001);
  const TrainingPlan best = plan_for_flop(c, 5.76e23);
  EXPECT_NEAR(6 * best.params * best.tokens, 5.76e23, 1e15);
  for (double factor : {0.9, 1.1}) EXPECT_GT(predicted_loss(c, best.params * factor, best.tokens / factor), best.loss);
  EXPECT_NEAR(plan_for_params(c, best.params).tokens / best.tokens, 1, 1e-9);
  EXPECT_NEAR(plan_for_tokens(c, best.tokens).params / best.params, 1, 1e-9);
  // The refit lands near 20 tokens per parameter at Chinchilla's budget (arXiv:2404.10102).
  const TrainingPlan refit = plan_for_flop(kRefitConstants, 5.76e23);
  EXPECT_NEAR(refit.tokens / refit.params, 20, 4);
  EXPECT_NEAR(training_days(86400 * 1e15 * 10 * 0.5, 1e15, 10, 0.5), 1, 1e-12);
}

}  // namespace
}  // namespace mfu

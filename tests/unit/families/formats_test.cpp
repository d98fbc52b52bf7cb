// Configs that are not Hugging Face's: read as what they are, or refused by the name of the key.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/families/read_architecture.h"
#include "core/model/flops_model.h"
#include "tests/unit/model/counted.h"

namespace mfu {
namespace {

using nlohmann::json;

json config_of(const std::string& name) {
  return json::parse(std::ifstream(MFU_TEST_DATA "/formats/" + name + ".json"));
}

double flop_of(const json& config, Convention convention, std::int64_t batch, std::int64_t tokens,
               Phase phase = Phase::kTrain) {
  FlopsOptions options;
  options.convention = convention;
  return count(model_of(config.dump(), options), phase, {{batch, 0, tokens}}).total.to_double();
}

std::string problem_of(const json& config) {
  const Result<Architecture> spec = read_model(config.dump(), "");
  return spec ? std::string() : spec.error().message;
}

/// What num_floating_point_operations of Megatron-LM (megatron/training/training.py, August 2026) gives for the same
/// arguments, to the digits that its logs show.
TEST(Formats, MegatronBillsTheSame) {
  struct Case {
    const char* name;
    double flop;
  };
  constexpr Case kCases[] = {{"megatron_llama3_8b", 8.432911e14}, {"megatron_llama3_8b_full", 8.432911e14},
                             {"megatron_gate", 8.960676e14},      {"megatron_hybrid", 4.796276e14},
                             {"megatron_mtp", 9.229725e14},       {"megatron_mla", 8.606148e14},
                             {"megatron_moe_freq", 7.282547e14}};
  for (const Case& one : kCases) {
    EXPECT_NEAR(flop_of(config_of(one.name), Convention::kMegatron, 2, 8192) / one.flop, 1, 1e-7) << one.name;
  }
  EXPECT_NEAR(flop_of(config_of("qwen3_next"), Convention::kMegatron, 1, 4096) / 9.314173e13, 1, 1e-7);
}

/// A window of (127, 0) in every second layer: those layers see 128 keys per query instead of up to 8192.
TEST(Formats, MegatronWindow) {
  const double whole = flop_of(config_of("megatron_llama3_8b"), Convention::kExact, 2, 8192);
  const double pairs = 8192.0 * 8193 / 2, seen = 128.0 * 129 / 2 + (8192 - 128) * 128.0;
  // 16 layers, 32 heads of 128, scores and values, forward and backward.
  const double less = 2 * 16 * 32 * 128 * 4.0 * 3 * (pairs - seen);
  EXPECT_NEAR(flop_of(config_of("megatron_window"), Convention::kExact, 2, 8192), whole - less, 1e6);
  json listed = config_of("megatron_window");
  listed["window_attn_skip_freq"] = json::array();
  for (int layer = 0; layer < 32; ++layer) listed["window_attn_skip_freq"].push_back((layer + 1) % 2);
  EXPECT_EQ(flop_of(listed, Convention::kExact, 2, 8192), whole - less);
}

TEST(Formats, MegatronKeysAreKnownOrRefused) {
  json config = config_of("megatron_llama3_8b_full");
  for (const char* key : {"hybrid_layer_patern", "heterogeneous_layers_config_path", "mtp_hybrid_override_pattern",
                          "enable_mhc_connections", "num_layer"}) {
    json wrong = config;
    wrong[key] = std::string(key) == "enable_mhc_connections" ? json(true) : json("M*");
    EXPECT_NE(problem_of(wrong).find(key), std::string::npos) << key << ": " << problem_of(wrong);
    wrong[key] = nullptr;
    EXPECT_EQ(problem_of(wrong), "") << key;
  }
  for (const char* key : {"adam_beta1", "tokenizer_model", "lr_warmup_iters", "rotary_base", "moe_aux_loss_coeff"}) {
    json more = config;
    more[key] = 7;
    EXPECT_EQ(problem_of(more), "") << key;
  }
  json wrong = config;
  wrong["decoder_num_layers"] = 12;
  EXPECT_NE(problem_of(wrong), "");
  wrong = config_of("megatron_hybrid");
  wrong["hybrid_layer_pattern"] = "M-M-M*-M-M-M*-M-M-M-X*-M-M-M*-M-";
  EXPECT_NE(problem_of(wrong).find("hybrid_layer_pattern"), std::string::npos) << problem_of(wrong);
}

/// Prediction modules are part of a training step where the config says so, and never of serving.
TEST(Formats, PredictionModules) {
  json config = config_of("dsv3_mtp");
  const double without = flop_of(config, Convention::kExact, 4, 4096);
  const Result<Architecture> read = read_model(config.dump(), "");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->not_counted.size(), 1u);
  EXPECT_NE(read->not_counted[0].find("num_nextn_predict_layers"), std::string::npos);
  config["mtp_num_layers"] = 1;
  const Result<Architecture> trained = read_model(config.dump(), "");
  ASSERT_TRUE(trained.ok() && trained->not_counted.empty());
  EXPECT_EQ(count_params(*trained).total().u64(), count_params(*read).total().u64());
  // Latent attention of rank 1536 and 512, 128 heads; the router, 8 + 1 experts of 2048; two states in, logits again.
  const double d = 7168, tokens = 4.0 * 4096, pairs = 4 * 4096.0 * 4097 / 2;
  const double attention = d * 1536 + 1536 * 128 * 192 + d * (512 + 64) + 512 * 128 * 256 + 128 * 128 * d;
  const double weights = attention + d * 256 + 9 * 3 * d * 2048 + 2 * d * d + d * 129280;
  const double more = 6 * tokens * weights + 6 * pairs * 128 * (192 + 128);
  EXPECT_NEAR(flop_of(config, Convention::kExact, 4, 4096) - without, more, more * 1e-12);
  EXPECT_EQ(flop_of(config, Convention::kExact, 4, 4096, Phase::kPrefill),
            flop_of(config_of("dsv3_mtp"), Convention::kExact, 4, 4096, Phase::kPrefill));
}

/// nanochat: windows of a quarter of 2048 where the pattern says S, never in the last layer.
TEST(Formats, Nanochat) {
  const double pairs = 2048.0 * 2049 / 2, seen = 513.0 * 514 / 2 + (2048 - 513) * 513.0;
  const double attention = 12 * 1536 * (6 * pairs + 18 * seen);
  const double d = 1536, logits = 32768 * d;
  const double weights = 24 * 12 * d * d + logits + 24 + 12 * 12 * 12;
  EXPECT_NEAR(flop_of(config_of("nanochat_d24"), Convention::kExact, 1, 2048), 6 * 2048 * weights + attention, 1e5);
  const double grouped = weights - 24 * 2 * d * (1536 - 384) - 12 * 12 * 9;
  EXPECT_NEAR(flop_of(config_of("nanochat_gqa"), Convention::kExact, 1, 2048), 6 * 2048 * grouped + attention, 1e5);
  json config = config_of("nanochat_d24");
  config["n_experts"] = 8;
  EXPECT_NE(problem_of(config).find("n_experts"), std::string::npos);
}

/// nanoMoE: every second layer has 8 experts like the MLP of the others, of which a token uses two.
TEST(Formats, NanoMoe) {
  const double d = 2048, layers = 24;
  const double weights = layers * 4 * d * d + 12 * 8 * d * d + 12 * (2 * 8 * d * d + 8 * d) + 50304 * d;
  const double attention = 12 * layers * d * (1024.0 * 1025 / 2);
  EXPECT_NEAR(flop_of(config_of("nanoMoE"), Convention::kExact, 1, 1024), 6 * 1024 * weights + attention, 1e5);
  json config = config_of("nanoMoE");
  config["n_expert"] = 8;
  EXPECT_NE(problem_of(config).find("n_expert"), std::string::npos);
}

/// Meta's params.json of Llama 3.2 Vision: 32 layers of the text model, 8 that attend to the image, and a tower that is
/// not counted. 9,775,192,064 parameters are Llama 3.2 11B Vision without tower and projector (transformers 5.23).
TEST(Formats, MetaVision) {
  const json config = config_of("llama32v_params");
  const Result<Architecture> read = read_model(config.dump(), "");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->not_counted.size(), 1u);
  EXPECT_TRUE(read->image_context);
  json text = config;
  text.erase("vision_num_cross_attention_layers");
  const std::uint64_t layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3ull * 4096 * 14336;
  EXPECT_EQ(count_params(*read).total().u64() - count_params(*read_model(text.dump(), "")).total().u64(),
            8 * (layer + 2 * 4096 + 2 * 128 + 2) + 8 * 4096);
  EXPECT_EQ(flop_of(config, Convention::kExact, 1, 512), flop_of(text, Convention::kExact, 1, 512));
  json wrong = config;
  wrong["vision_num_cross_atention_layers"] = 8;
  EXPECT_NE(problem_of(wrong).find("vision_num_cross_atention_layers"), std::string::npos);
}

/// A Mistral that does not mention its window has that of its class.
TEST(Formats, MistralWithoutWindow) {
  json config = config_of("verl_mistral");
  json stated = config, none = config;
  stated["sliding_window"] = 4096;
  none["sliding_window"] = nullptr;
  EXPECT_EQ(flop_of(config, Convention::kExact, 1, 8192), flop_of(stated, Convention::kExact, 1, 8192));
  EXPECT_LT(flop_of(config, Convention::kExact, 1, 8192), flop_of(none, Convention::kExact, 1, 8192));
}

/// flash-linear-attention: the width of the MLP is 2/3 x 4 x 2048 rounded up to 256 where it is null.
TEST(Formats, FlashLinearAttention) {
  const double d = 2048, mlp = 3 * d * 5632, logits = 32000 * d, tokens = 8192;
  const double delta = 2 * d * 1536 + 2 * d * 3072 + 2 * d * 6 + 3072 * d + 4 * (2 * 1536 + 3072);
  EXPECT_NEAR(flop_of(config_of("fla_gated_deltanet"), Convention::kExact, 1, 8192),
              6 * tokens * (24 * (delta + mlp) + logits) + 3 * tokens * 24 * 8 * 6 * 256 * 512, 1e6);
  const double gla = 2 * d * 1024 + 3 * d * 2048 + 16 * (d + 1024);
  EXPECT_NEAR(flop_of(config_of("fla_gla"), Convention::kExact, 1, 8192),
              6 * tokens * (24 * (gla + mlp) + logits) + 3 * tokens * 24 * 4 * 1024 * 512, 1e6);
  const double dense = 2 * d * d + 2 * d * 512;
  EXPECT_NEAR(flop_of(config_of("fla_transformer"), Convention::kExact, 1, 8192),
              6 * tokens * (24 * (dense + mlp) + logits) + 12 * 24 * d * (8192.0 * 8193 / 2), 1e6);
  EXPECT_NE(problem_of(config_of("fla_rwkv7")).find("decay_low_rank_dim"), std::string::npos);
}

/// The project's own schema: a key that no part of it has is refused.
TEST(Formats, OwnSchemaRefusesOtherKeys) {
  const json config = json::parse(R"({"d_model": 64, "vocab_size": 100, "layers": [
    {"repeat": 2, "attention": {"heads": 4, "head_dim": 16, "window": 8}, "mlp": {"width": 128}}]})");
  EXPECT_EQ(problem_of(config), "");
  for (const char* part : {"attention", "mlp"}) {
    json wrong = config;
    wrong["layers"][0][part]["widnow"] = 5;
    EXPECT_NE(problem_of(wrong).find("widnow"), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace mfu

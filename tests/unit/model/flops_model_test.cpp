// What one region instance is worth: shapes and what is missing, invariants of exact counting, options, shares, bytes.
#include "core/model/flops_model.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "core/families/read_architecture.h"
#include "core/model/vision.h"
#include "tests/unit/model/counted.h"

namespace mfu {
namespace {

using nlohmann::json;

constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000})";

std::string reference(const std::string& name) {
  std::ifstream file(MFU_TEST_DATA "/reference/configs/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Shape shape(std::optional<std::int64_t> batch, std::optional<std::int64_t> seq_len,
            std::optional<std::int64_t> context = {}, std::optional<std::int64_t> new_tokens = {},
            std::optional<std::int64_t> tokens = {}) {
  Shape s;
  s.batch = batch;
  s.seq_len = seq_len;
  s.context = context;
  s.new_tokens = new_tokens;
  s.tokens = tokens;
  return s;
}

TEST(Work, EqualsTheExactCount) {
  const FlopsModel m = model_of(kLlama);
  const Work train = m.work(Phase::kTrain, shape(4, 128));
  ASSERT_TRUE(train.flop_known);
  EXPECT_EQ(train.flop, count(m, Phase::kTrain, {{4, 0, 128}}).total.to_double());
  EXPECT_EQ(train.hfu_flop, train.flop);
  EXPECT_FALSE(train.bytes_known);
  EXPECT_EQ(train.tokens, 512);
  const Work prefill = m.work(Phase::kPrefill, shape(4, 128, 64));
  EXPECT_EQ(prefill.flop, count(m, Phase::kPrefill, {{4, 64, 128}}).total.to_double());
  EXPECT_TRUE(prefill.bytes_known);
  const Work decode = m.work(Phase::kDecode, shape(4, {}, 128, 16));
  EXPECT_EQ(decode.flop, count(m, Phase::kDecode, {{4, 128, 1}}, 16).total.to_double());
  EXPECT_EQ(decode.tokens, 64);
}

TEST(Work, FillsWhatFollowsFromTheRest) {
  const FlopsModel m = model_of(kLlama);
  EXPECT_EQ(m.work(Phase::kTrain, shape({}, 128)).flop, m.work(Phase::kTrain, shape(1, 128)).flop);
  EXPECT_EQ(m.work(Phase::kPrefill, shape(4, {}, {}, {}, 512)).flop, m.work(Phase::kPrefill, shape(4, 128)).flop);
  EXPECT_EQ(m.work(Phase::kPrefill, shape({}, {}, {}, {}, 512)).flop, m.work(Phase::kPrefill, shape(1, 512)).flop);
  EXPECT_EQ(m.work(Phase::kPrefill, shape({}, 128, {}, {}, 512)).flop, m.work(Phase::kPrefill, shape(4, 128)).flop);
  EXPECT_EQ(m.work(Phase::kDecode, shape(4, {}, 128)).flop, m.work(Phase::kDecode, shape(4, {}, 128, 1)).flop);
  EXPECT_EQ(m.work(Phase::kDecode, shape({}, {}, 128, {}, 16)).flop,
            m.work(Phase::kDecode, shape(1, {}, 128, 16)).flop);
  EXPECT_EQ(m.work(Phase::kDecode, shape(4, {}, 128, {}, 64)).flop, m.work(Phase::kDecode, shape(4, {}, 128, 16)).flop);
  // Uneven tokens: two of 129, one of 128.
  EXPECT_EQ(m.work(Phase::kPrefill, shape(3, {}, {}, {}, 386)).flop,
            count(m, Phase::kPrefill, {{2, 0, 129}, {1, 0, 128}}).total.to_double());
}

TEST(Work, SaysWhatIsMissing) {
  const FlopsModel m = model_of(kLlama);
  EXPECT_STREQ(m.work(Phase::kTrain, {}).missing, "seq_len or tokens");
  EXPECT_STREQ(m.work(Phase::kDecode, shape(4, {}, {}, 16)).missing, "context");
  EXPECT_STREQ(m.work(Phase::kVision, shape(1, {})).missing, "a model with a vision tower");
  EXPECT_FALSE(m.work(Phase::kNone, shape(4, 128)).flop_known);
  EXPECT_FALSE(m.work(Phase::kTrain, shape(-4, 128)).flop_known);
  EXPECT_FALSE(FlopsModel().work(Phase::kTrain, shape(4, 128)).flop_known);
  Shape mixed;
  mixed.batch = 2;
  mixed.tokens = 256;
  EXPECT_TRUE(m.work(Phase::kMixed, mixed).flop_known);
  mixed.gen_batch = 8;
  EXPECT_STREQ(m.work(Phase::kMixed, mixed).missing, "context");
  mixed.context = 100;
  const Work both = m.work(Phase::kMixed, mixed);
  EXPECT_EQ(both.flop, m.work(Phase::kPrefill, shape(2, 128)).flop + m.work(Phase::kDecode, shape(8, {}, 100, 1)).flop);
  EXPECT_EQ(both.tokens, 264);
  mixed.ctx_context = 50;
  EXPECT_EQ(m.work(Phase::kMixed, mixed).flop,
            m.work(Phase::kPrefill, shape(2, 128, 50)).flop + m.work(Phase::kDecode, shape(8, {}, 100, 1)).flop);
}

TEST(Work, PassesOverDraftedTokens) {
  const FlopsModel m = model_of(kLlama);
  Shape drafted = shape(3, {}, 100);
  drafted.gen_tokens = 10;  // one sequence has 4 tokens, two have 3
  const Work work = m.work(Phase::kDecode, drafted);
  EXPECT_EQ(work.flop, count(m, Phase::kDecode, {{1, 100, 4}, {2, 100, 3}}).total.to_double());
  EXPECT_EQ(work.tokens, 10);
  drafted.gen_tokens = 3;
  EXPECT_EQ(m.work(Phase::kDecode, drafted).flop, m.work(Phase::kDecode, shape(3, {}, 100)).flop);
}

TEST(Work, ParameterCountAlone) {
  const FlopsModel m = model_of(R"({"params": 7000000000})");
  EXPECT_EQ(m.work(Phase::kTrain, shape(2, 1024)).flop, 6.0 * 7e9 * 2048);
  EXPECT_EQ(m.work(Phase::kPrefill, shape({}, {}, {}, {}, 100)).flop, 2.0 * 7e9 * 100);
  EXPECT_EQ(m.work(Phase::kDecode, shape(4, {}, {}, 10)).flop, 2.0 * 7e9 * 40);
  EXPECT_EQ(m.work(Phase::kDecode, shape(4, {})).bytes, 14e9);
}

TEST(Work, TakesMicroseconds) {
  const FlopsModel m = model_of(reference("gpt-oss-20b"));
  const auto cpu_us = [] {  // this thread's, so that neighbours do not count
    ::timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
  };
  const double begin_us = cpu_us();
  double sum = 0;
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) sum += m.work(Phase::kDecode, shape(32, {}, 1000 + i, 128)).flop;
  const double each_us = (cpu_us() - begin_us) / kRounds;
  RecordProperty("work_us", std::to_string(each_us));
  EXPECT_GT(sum, 0);
  EXPECT_LT(each_us, 200);  // a few where nothing else runs; sanitizers are slower
}

TEST(Work, EncoderDecoderAndVision) {
  const FlopsModel t5 = model_of(reference("t5-large"));
  EXPECT_STREQ(t5.work(Phase::kPrefill, shape(4, {})).missing, "encoder_len");
  Shape s = shape(4, {});
  s.encoder_len = 512;
  EXPECT_EQ(t5.work(Phase::kPrefill, s).flop, 1549471711232.0);  // the golden prefill_b4
  const FlopsModel gemma = model_of(reference("gemma-3-4b"));
  EXPECT_EQ(gemma.work(Phase::kVision, shape(2, {})).flop, 2 * 5461902360576.0);
  const FlopsModel qwen = model_of(reference("qwen2-vl-7b"));
  EXPECT_STREQ(qwen.work(Phase::kVision, shape(2, {})).missing, "workload.images");
  FlopsOptions options;
  options.images = {{504, 504}};
  EXPECT_EQ(model_of(reference("qwen2-vl-7b"), options).work(Phase::kVision, {}).flop, 1938713149440.0);
}

/// Images of a request are new in prefill and training; a decode pass finds their keys in the cache.
TEST(Work, ImagesRunOncePerRequest) {
  FlopsOptions options;
  options.images = {{504, 504}};
  const FlopsModel with = model_of(reference("qwen2-vl-7b"), options), without = model_of(reference("qwen2-vl-7b"));
  EXPECT_EQ(with.work(Phase::kPrefill, shape(1, 500)).flop - without.work(Phase::kPrefill, shape(1, 500)).flop,
            1938713149440.0);
  EXPECT_EQ(with.work(Phase::kDecode, shape(1, {}, 500, 8)).flop,
            without.work(Phase::kDecode, shape(1, {}, 500, 8)).flop);
}

/// Llama 3.2 Vision: the layers that attend to images do nothing without one.
TEST(Work, LayersForImagesRunWhereThereAreImages) {
  const char* config = R"({"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "hidden_size": 64,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
      "vocab_size": 1000, "cross_attention_layers": [1]}, "vision_config": {"model_type": "mllama_vision_model",
      "hidden_size": 32, "num_hidden_layers": 2, "num_global_layers": 1, "attention_heads": 2, "intermediate_size": 64,
      "vision_output_dim": 64, "image_size": 28, "patch_size": 14, "max_num_tiles": 4}})";
  const FlopsModel text = model_of(config);
  FlopsOptions options;
  options.images = {{28, 28}};
  const FlopsModel image = model_of(config, options);
  constexpr double kImageTokens = 4 * 5;  // tiles, patches and the class of each
  const double d = 64, tokens = 10, keys = 32;
  const double layer =
      2 * tokens * (2 * d * d + 3 * d * 128) + 2 * kImageTokens * 2 * d * keys + 4 * tokens * kImageTokens * d;
  const double tower = count_image(*image.spec().vision, 28, 28).sum().to_double();
  EXPECT_EQ(image.work(Phase::kPrefill, shape(1, 10)).flop - text.work(Phase::kPrefill, shape(1, 10)).flop,
            layer + tower);
  Shape cached = shape(1, {}, 10, 1);
  const double decode = text.work(Phase::kDecode, cached).flop;
  cached.encoder_len = 20;
  EXPECT_EQ(text.work(Phase::kDecode, cached).flop - decode, 2 * (2 * d * d + 3 * d * 128) + 4 * kImageTokens * d);
  EXPECT_EQ(image.work(Phase::kDecode, shape(1, {}, 10, 1)).flop, text.work(Phase::kDecode, cached).flop);
}

/// What people give instead of a model's config is named, with what to give.
TEST(Read, OtherFilesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B", "r": 16, "target_modules": ["q_proj"]})",
       "this is an adapter, not a model; give the config of its base, Qwen/Qwen3-8B"},
      {R"({"_class_name": "StableDiffusionXLPipeline", "unet": ["diffusers", "UNet2DConditionModel"]})",
       "is a pipeline of several models"},
      {R"({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 131072})", "of a tokenizer"},
      {R"({"_class_name": "UNet2DConditionModel", "only_cross_attention": true})", "only_cross_attention"}};
  for (const auto& [config, expected] : cases) {
    const Result<Architecture> spec = read_model(config, "x.json: ");
    ASSERT_FALSE(spec.ok()) << config;
    EXPECT_NE(spec.error().message.find(expected), std::string::npos) << spec.error().message;
  }
}

// ---------------------------------------------------------------- invariants

const char* const kModels[] = {"gpt2",         "llama-3-8b",       "mistral-7b-v0.1",   "gemma-2-9b", "gpt-oss-20b",
                               "mixtral-8x7b", "deepseek-v2-lite", "qwen1.5-moe-a2.7b", "falcon-7b"};

/// A stranger's config of two hundred bytes took seconds, and one of some megabytes minutes.
TEST(Read, LayersThatDifferAreBoundedAndAlikeOnesAreNot) {
  const auto config = [](const char* type, int layers) {
    return std::string(R"({"model_type": ")") + type + R"(", "hidden_size": 64, "num_hidden_layers": )" +
           std::to_string(layers) +
           R"(, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 128, )"
           R"("intermediate_size_mlp": 256, "vocab_size": 9, "num_experts_per_tok": 1, "num_local_experts": 2, )"
           R"("attention_chunk_size": 8192, "interleave_moe_layer_step": 2})";
  };
  const Result<Architecture> most = read_model(config("llama4_text", 4096), "test: ");
  ASSERT_TRUE(most.ok()) << most.error().message;
  std::int64_t layers = 0;
  for (const LayerSpec& layer : most->layers) layers += layer.repeat;
  EXPECT_EQ(layers, 4096);
  const Result<Architecture> more = read_model(config("llama4_text", 4097), "test: ");
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().message, "test: num_hidden_layers: expected at most 4096 where layers differ, got 4097");
  EXPECT_TRUE(read_model(config("llama", 4097), "test: ").ok());
}

TEST(Invariants, ComponentsSumAndTrainingIsThreeTimesForward) {
  for (const char* name : kModels) {
    const FlopCount step = count(model_of(reference(name)), Phase::kTrain, {{3, 0, 777}});
    EXPECT_EQ(step.parts.sum().u64(), step.forward.u64()) << name;
    EXPECT_EQ(step.total.u64(), 3 * step.forward.u64()) << name;
    EXPECT_EQ((step.forward + step.backward).u64(), step.total.u64()) << name;
  }
}

TEST(Invariants, ChunksAndDecodeStepsAddUpToOnePrefill) {
  for (const char* name : kModels) {
    FlopsOptions options;
    options.logits = LogitsMode::kAll;  // so that the output matrix adds up too
    const FlopsModel m = model_of(reference(name), options);
    const std::uint64_t whole = count(m, Phase::kPrefill, {{1, 0, 6000}}).total.u64();
    const std::uint64_t chunks = count(m, Phase::kPrefill, {{1, 0, 2500}}).total.u64() +
                                 count(m, Phase::kPrefill, {{1, 2500, 3000}}).total.u64() +
                                 count(m, Phase::kPrefill, {{1, 5500, 500}}).total.u64();
    EXPECT_EQ(whole, chunks) << name;
    EXPECT_EQ(whole, count(m, Phase::kDecode, {{1, 0, 1}}, 6000).total.u64()) << name;
  }
}

TEST(Invariants, ModesAreOrdered) {
  for (const char* name : kModels) {
    std::uint64_t core[3];
    for (AttentionMode mode : {AttentionMode::kCausal, AttentionMode::kFullWindowed, AttentionMode::kFull}) {
      FlopsOptions options;
      options.attention = mode;
      const FlopCount c = count(model_of(reference(name), options), Phase::kPrefill, {{1, 0, 8192}});
      core[mode == AttentionMode::kCausal         ? 0
           : mode == AttentionMode::kFullWindowed ? 1
                                                  : 2] = c.parts.attn_scores.u64();
    }
    EXPECT_LE(core[0], core[1]) << name;
    EXPECT_LE(core[1], core[2]) << name;
  }
}

TEST(Invariants, LinearFlopIsTwiceTheMatmulWeights) {
  for (const char* name : kModels) {
    const FlopsModel m = model_of(reference(name));
    const FlopCount c = count(m, Phase::kTrain, {{2, 0, 100}});
    EXPECT_EQ((c.forward - c.parts.attn_scores - c.parts.attn_av).u64(),
              2 * 200 * matmul_weights_per_token(m.spec()).u64())
        << name;
  }
}

TEST(Invariants, DoublingTheBatch) {
  for (const char* name : kModels) {
    const FlopsModel m = model_of(reference(name));
    CountRequest request;
    request.phase = Phase::kDecode;
    const SequenceGroup one{4, 500, 1}, two{8, 500, 1};
    request.sequences = {&one, 1};
    const Result<ByteCount> small = m.count_bytes(request);
    const std::uint64_t flop = m.count_flop(request)->total.u64();
    request.sequences = {&two, 1};
    const Result<ByteCount> large = m.count_bytes(request);
    EXPECT_EQ(m.count_flop(request)->total.u64(), 2 * flop) << name;
    EXPECT_EQ(large->kv_read.u64(), 2 * small->kv_read.u64()) << name;
    EXPECT_EQ(large->kv_write.u64(), 2 * small->kv_write.u64()) << name;
    EXPECT_EQ((large->weights_read - large->experts_read).u64(), (small->weights_read - small->experts_read).u64())
        << name;
  }
}

TEST(Invariants, TiedOrNotSameFlop) {
  json config = json::parse(kLlama);
  config["tie_word_embeddings"] = false;
  const FlopsModel untied = model_of(config.dump());
  config["tie_word_embeddings"] = true;
  const FlopsModel tied = model_of(config.dump());
  EXPECT_EQ(count(tied, Phase::kTrain, {{1, 0, 64}}).total.u64(),
            count(untied, Phase::kTrain, {{1, 0, 64}}).total.u64());
  EXPECT_EQ((count_params(untied.spec()).total() - count_params(tied.spec()).total()).u64(), 1000u * 256u);
}

TEST(Invariants, AllExpertsAreOneWideMlpAndTheRouter) {
  const std::string attention = R"("attention": {"heads": 4, "head_dim": 32})";
  const FlopsModel moe = model_of(R"({"d_model": 128, "vocab_size": 50, "layers": [{"repeat": 3, )" + attention +
                                  R"(, "mlp": {"width": 64, "matrices": 3, "experts": 8, "top_k": 8}}]})");
  const FlopsModel dense = model_of(R"({"d_model": 128, "vocab_size": 50, "layers": [{"repeat": 3, )" + attention +
                                    R"(, "mlp": {"width": 512, "matrices": 3}}]})");
  const FlopCount a = count(moe, Phase::kTrain, {{2, 0, 40}}), b = count(dense, Phase::kTrain, {{2, 0, 40}});
  EXPECT_EQ((a.forward - a.parts.router).u64(), b.forward.u64());
}

TEST(Invariants, DocumentsOfAPackAreSequencesInTrainingAlone) {
  FlopsOptions packed;
  packed.documents = 4;
  const FlopsModel m = model_of(kLlama, packed), plain = model_of(kLlama);
  for (const Phase phase : {Phase::kTrain, Phase::kForward, Phase::kBackward}) {
    EXPECT_EQ(m.work(phase, shape(2, 128)).flop, plain.work(phase, shape(8, 32)).flop);
    EXPECT_EQ(m.work(phase, shape({}, 128, {}, {}, 256)).flop, plain.work(phase, shape(8, 32)).flop);
    EXPECT_EQ(m.work(phase, shape(2, 128)).tokens, plain.work(phase, shape(2, 128)).tokens);
  }
  EXPECT_EQ(m.work(Phase::kPrefill, shape(2, 128)).flop, plain.work(Phase::kPrefill, shape(2, 128)).flop);
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(m.work(Phase::kTrain, shape(kHuge, 128)).flop, plain.work(Phase::kTrain, shape(kHuge, 128)).flop);
}

TEST(Invariants, PackedSequencesAreNotOneLongOne) {
  const FlopsModel m = model_of(kLlama);
  const FlopCount packed = count(m, Phase::kTrain, {{1, 0, 100}, {1, 0, 300}, {1, 0, 112}});
  const FlopCount one = count(m, Phase::kTrain, {{1, 0, 512}});
  EXPECT_EQ(packed.parts.qkv.u64(), one.parts.qkv.u64());
  // 2 * heads * dim * layers * sum n(n+1)/2
  EXPECT_EQ(packed.parts.attn_scores.u64(), 2u * 256 * 4 * (100 * 101 / 2 + 300 * 301 / 2 + 112 * 113 / 2));
  EXPECT_LT(packed.parts.attn_scores.u64(), one.parts.attn_scores.u64());
}

TEST(Invariants, RanksSumToTheWhole) {
  const double whole = model_of(kLlama).work(Phase::kTrain, shape(16, 128)).flop;
  for (const ParallelConfig& p :
       {ParallelConfig{8, 1, 1, 1, 1}, ParallelConfig{2, 4, 1, 1, 2}, ParallelConfig{1, 1, 4, 1, 2},
        ParallelConfig{1, 1, 1, 8, 8}, ParallelConfig{1, 2, 1, 8, 1}}) {
    FlopsOptions options;
    options.parallel = p;
    const double ranks = static_cast<double>(p.pp * std::max(p.tp * p.cp * p.dp, p.ep));
    EXPECT_NEAR(model_of(kLlama, options).work(Phase::kTrain, shape(16, 128)).flop * ranks / whole, 1, 1e-12);
  }
}

// ---------------------------------------------------------------- options

TEST(Options, GradientAccumulationAndRecomputation) {
  FlopsOptions options;
  const double once = model_of(kLlama).work(Phase::kTrain, shape(2, 64)).flop;
  options.grad_accum = 4;
  EXPECT_EQ(model_of(kLlama, options).work(Phase::kTrain, shape(2, 64)).flop, 4 * once);
  EXPECT_EQ(model_of(kLlama, options).work(Phase::kPrefill, shape(2, 64)).flop,
            model_of(kLlama).work(Phase::kPrefill, shape(2, 64)).flop);
  const FlopCount base = count(model_of(kLlama), Phase::kTrain, {{2, 0, 64}});
  for (Recompute r : {Recompute::kFull, Recompute::kSelective, Recompute::kFlash}) {
    options = {};
    options.recompute = r;
    const FlopCount c = count(model_of(kLlama, options), Phase::kTrain, {{2, 0, 64}});
    EXPECT_EQ(c.total.u64(), base.total.u64());  // never raises MFU
    const Count core = base.parts.attn_scores + base.parts.attn_av;
    const Count expected = r == Recompute::kFull        ? base.forward - base.parts.logits
                           : r == Recompute::kSelective ? core
                                                        : base.parts.attn_scores;
    EXPECT_EQ(c.recompute.u64(), expected.u64());
    const Work w = model_of(kLlama, options).work(Phase::kTrain, shape(2, 64));
    EXPECT_EQ(w.hfu_flop - w.flop, expected.to_double());
  }
}

/// Which gradients a framework works out for kLlama with adapters beside some of its frozen matrices: a product at a
/// time, by who needs a gradient.
class LoraTape {
 public:
  static constexpr std::uint64_t kTokens = 64, kRank = 8, kCore = 2 * kTokens * (kTokens + 1) / 2 * 8 * 32 * 2;

  explicit LoraTape(const LoraConfig& lora) {
    bool stream = false;  // the embedding is frozen
    for (int layer = 0; layer < 4; ++layer) {
      const bool q = matrix(256, 256, lora.q, stream), k = matrix(256, 64, lora.k, stream),
                 v = matrix(256, 64, lora.v, stream), scored = q || k || v;
      flop_ += kCore * (scored ? 3 : 1);
      stream = matrix(256, 256, lora.o, scored) || stream;
      const bool gate = matrix(256, 512, lora.gate, stream), up = matrix(256, 512, lora.up, stream);
      stream = matrix(512, 256, lora.down, gate || up) || stream;
    }
    matrix(256, 1000, false, stream);
  }
  [[nodiscard]] std::uint64_t flop() const { return flop_; }

 private:
  /// \return whether the result needs a gradient
  bool matrix(std::uint64_t in, std::uint64_t out, bool adapted, bool input_needs_gradient) {
    const std::uint64_t wide = 2 * kTokens * in * out, down = 2 * kTokens * in * kRank, up = 2 * kTokens * kRank * out;
    flop_ += wide * (input_needs_gradient ? 2 : 1);
    if (adapted) flop_ += down * (input_needs_gradient ? 3 : 2) + up * 3;
    return adapted || input_needs_gradient;
  }
  std::uint64_t flop_ = 0;
};

TEST(Options, LoraTrainsNothingBelowItsFirstAdapter) {
  for (unsigned mask = 1; mask < 128; ++mask) {
    FlopsOptions options;
    options.trainable.lora = LoraConfig{8,
                                        (mask & 1u) != 0,
                                        (mask & 2u) != 0,
                                        (mask & 4u) != 0,
                                        (mask & 8u) != 0,
                                        (mask & 16u) != 0,
                                        (mask & 32u) != 0,
                                        (mask & 64u) != 0};
    const FlopCount lora = count(model_of(kLlama, options), Phase::kTrain, {{1, 0, 64}});
    EXPECT_EQ(lora.total.u64(), LoraTape(*options.trainable.lora).flop()) << "adapters " << mask;
  }
}

TEST(Options, FrozenWeights) {
  const FlopCount base = count(model_of(kLlama), Phase::kTrain, {{1, 0, 64}});
  FlopsOptions options;
  options.trainable.mlp = false;
  const FlopCount frozen = count(model_of(kLlama, options), Phase::kTrain, {{1, 0, 64}});
  EXPECT_EQ(base.total.u64() - frozen.total.u64(), base.parts.mlp.u64());
  options = {};
  options.trainable.none = true;
  EXPECT_EQ(count(model_of(kLlama, options), Phase::kTrain, {{1, 0, 64}}).total.u64(), base.forward.u64());
}

TEST(Options, ContextModes) {
  FlopsOptions options;
  options.context_mode = ContextMode::kFixed;
  const FlopCount fixed = count(model_of(kLlama, options), Phase::kDecode, {{1, 100, 1}}, 11);
  options.context_mode = ContextMode::kMax;
  const FlopCount most = count(model_of(kLlama, options), Phase::kDecode, {{1, 100, 1}}, 11);
  const FlopCount exact = count(model_of(kLlama), Phase::kDecode, {{1, 100, 1}}, 11);
  const std::uint64_t per_pair = 2ull * 256 * 4;
  EXPECT_EQ(fixed.parts.attn_scores.u64(), per_pair * 11 * 101);
  EXPECT_EQ(most.parts.attn_scores.u64(), per_pair * 11 * 111);
  EXPECT_EQ(exact.parts.attn_scores.u64(), per_pair * (101 + 111) * 11 / 2);
}

TEST(Options, ConventionsRefuseWhatTheyDoNotDefine) {
  FlopsOptions options;
  options.convention = Convention::kPalm;
  const SequenceGroup one{1, 0, 8};
  CountRequest request;
  request.sequences = {&one, 1};
  request.encoder_len = 8;
  EXPECT_FALSE(model_of(reference("t5-large"), options).count_flop(request).ok());
  EXPECT_FALSE(model_of(R"({"params": 5})", options).count_flop(request).ok());
}

TEST(Options, ProductsBeyond64BitsAreSaid) {
  const FlopsModel m =
      model_of(R"({"model_type": "llama", "hidden_size": 2147483648, "num_hidden_layers": 1, "num_attention_heads": 1,
      "intermediate_size": 2, "vocab_size": 1, "head_dim": 1})");
  const SequenceGroup huge{std::int64_t{1} << 40, 0, std::int64_t{1} << 40};
  CountRequest request;
  request.sequences = {&huge, 1};
  const Result<FlopCount> result = m.count_flop(request);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("beyond 2^64"), std::string::npos) << result.error().message;
  const Result<Architecture> spec = read_model(
      R"({"model_type": "llama", "hidden_size": 2147483648, "num_hidden_layers": 2147483648, "num_attention_heads": 2147483648,
      "intermediate_size": 2147483648, "vocab_size": 2147483648})",
      "x: ");
  ASSERT_FALSE(spec.ok());
  EXPECT_NE(spec.error().message.find("beyond 2^64"), std::string::npos) << spec.error().message;
}

// ---------------------------------------------------------------- formats

TEST(Formats, QuantisedWeights) {
  json config = json::parse(kLlama);
  config["torch_dtype"] = "bfloat16";
  const auto weights = [](const json& c) {
    const FlopsModel m = model_of(c.dump());
    const SequenceGroup one{1, 10, 1};
    CountRequest request;
    request.phase = Phase::kDecode;
    request.sequences = {&one, 1};
    Result<ByteCount> bytes = m.count_bytes(request);
    return bytes.ok() ? bytes->weights_read.to_double() : -1.0;
  };
  const double matrices = 4 * (256 * 256 * 2 + 2 * 256 * 64 + 3 * 256 * 512);
  const double rest = 256 * 1000 + 4 * 512 + 256;
  EXPECT_EQ(weights(config), 2 * (matrices + rest));
  config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}};
  EXPECT_EQ(weights(config), matrices * 4.15625 / 8 + 2 * rest);
  EXPECT_EQ(model_of(config.dump()).dtype(), DType::kBf16);  // weight-only: the activation's type computes
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_NEAR(weights(config), matrices * (8 + 32.0 / 16384) / 8 + 2 * rest, 1);
  EXPECT_EQ(model_of(config.dump()).dtype(), DType::kFp8);
  config["quantization_config"] = {
      {"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
  EXPECT_EQ(weights(config), matrices * 4.5 / 8 + 2 * rest);
  // Forms of torchao, Quark, AutoRound and HQQ, with the bits of a weight and the dtype that computes.
  const std::tuple<const char*, double, DType> kForms[] = {
      {R"({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}})", 4.5,
       DType::kBf16},
      {R"({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_version": 1,
           "_data": {"group_size": 128}}}})",
       4.25, DType::kBf16},
      {R"({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8DynamicActivationInt8WeightConfig",
           "_data": {}}}})",
       8, DType::kInt8},
      {R"({"quant_method": "torchao", "quant_type": "float8_dynamic_activation_float8_weight"})", 8, DType::kFp8},
      {R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group",
           "group_size": 32}, "input_tensors": {"dtype": "fp4", "group_size": 32}}, "layer_quant_config": {},
           "exclude": ["lm_head"]})",
       4.25, DType::kMxfp4},
      {R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "group_size": null},
           "input_tensors": {"dtype": "fp8_e4m3"}}})",
       8, DType::kFp8},
      {R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32},
           "input_tensors": {"dtype": "fp8_e4m3"}}})",
       4.25, DType::kFp8},
      {R"({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": true, "data_type": "int"})", 4.15625,
       DType::kBf16},
      {R"({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp", "act_bits": 4})", 4.25,
       DType::kMxfp4},
      {R"({"quant_method": "auto-round", "bits": 4, "group_size": 16, "data_type": "nv_fp", "act_bits": 16})", 4.5,
       DType::kBf16},
      {R"({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64},
           "scale_quant_params": null, "zero_quant_params": null}, "skip_modules": ["lm_head"]})",
       4.5, DType::kBf16},
      {R"({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2, "group_size": 16},
           "scale_quant_params": {"nbits": 8}, "zero_quant_params": {"nbits": 8}}})",
       3, DType::kBf16}};
  for (const auto& [form, bits, dtype] : kForms) {
    config["quantization_config"] = nlohmann::json::parse(form);
    EXPECT_NEAR(weights(config), matrices * bits / 8 + 2 * rest, 1) << form;
    EXPECT_EQ(model_of(config.dump()).dtype(), dtype) << form;
  }
  config["quantization_config"] = nlohmann::json::parse(
      R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}},
          "layer_quant_config": {"*down_proj": {"weight": {"dtype": "fp8_e4m3"}}}})");
  EXPECT_EQ(weights(config), -1.0) << "layers of two widths";
  config["quantization_config"] = {{"quant_method", "something_new"}};
  EXPECT_EQ(weights(config), -1.0);                                                    // bytes unknown
  EXPECT_TRUE(model_of(config.dump()).work(Phase::kPrefill, shape(1, 8)).flop_known);  // FLOP still known
  EXPECT_FALSE(model_of(config.dump()).work(Phase::kPrefill, shape(1, 8)).bytes_known);
}

TEST(Formats, NamesAndSpellings) {
  for (const char* text : {"bf16", "bfloat16", "torch.bfloat16", "BF16"})
    EXPECT_EQ(parse_dtype(text), DType::kBf16) << text;
  for (const char* text : {"fp8", "fp8_e4m3", "float8_e4m3fn", "torch.float8_e5m2"})
    EXPECT_EQ(parse_dtype(text), DType::kFp8) << text;
  for (const char* text : {"fp16", "half", "torch.float16"}) EXPECT_EQ(parse_dtype(text), DType::kFp16) << text;
  EXPECT_EQ(parse_dtype("mxfp4"), DType::kMxfp4);
  EXPECT_FALSE(parse_dtype("bf17"));
  EXPECT_FALSE(parse_dtype(std::string(1000, 'x')));
  EXPECT_EQ(name(DType::kNvfp4), "nvfp4");
}

}  // namespace
}  // namespace mfu

// What a product is called, over every decoder of the table of published models: each product that such a model makes,
// as PyTorch and as transformers' Conv1D call cuBLAS, finds its own matrix and pass.
#include "core/model/component_names.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "core/families/read_architecture.h"

namespace mfu {
namespace {

using nlohmann::json;

constexpr std::uint64_t kTokens = 7919;  // a prime: no width of any model

Product made(std::uint64_t m, std::uint64_t n, std::uint64_t k, bool ta, bool tb) {
  Product p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.transpose_a = ta;
  p.transpose_b = tb;
  p.operands = p.result = DType::kBf16;
  return p;
}

/// Y = X W^T of W (out x in), its two gradients: as PyTorch's Linear asks for them.
Product linear(std::uint64_t out, std::uint64_t in, ProductPass pass, std::uint64_t rows = kTokens) {
  switch (pass) {
    case ProductPass::kDgrad:
      return made(in, rows, out, false, false);
    case ProductPass::kWgrad:
      return made(in, out, rows, false, true);
    default:
      return made(out, rows, in, true, false);
  }
}

/// The same of a matrix that is stored in x out (transformers' Conv1D).
Product conv1d(std::uint64_t out, std::uint64_t in, ProductPass pass, std::uint64_t rows = kTokens) {
  switch (pass) {
    case ProductPass::kDgrad:
      return made(in, rows, out, true, false);
    case ProductPass::kWgrad:
      return made(out, in, rows, false, true);
    default:
      return made(out, rows, in, false, false);
  }
}

constexpr std::array kPasses{ProductPass::kForward, ProductPass::kDgrad, ProductPass::kWgrad};

/// Where a product of the matrix stands behind attention: o right behind it forward, far behind it in backward.
AfterAttention place(bool output, ProductPass pass) {
  if (pass == ProductPass::kForward) return output ? AfterAttention::kNext : AfterAttention::kLater;
  return output ? AfterAttention::kLater : AfterAttention::kSoon;
}

struct Matrix {
  std::string name;
  std::uint64_t out, in;
};

/// Separate matrices of a decoder layer with plain attention and a dense MLP, from the config alone.
std::vector<Matrix> matrices_of(const LayerSpec& layer, std::uint64_t d, std::uint64_t vocab) {
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  const MixerSpec& m = layer.mixer;
  std::vector<Matrix> all{
      {"q", u(m.heads * m.qk_dim), d},   {"k", u(m.kv_heads * m.qk_dim), d},
      {"v", u(m.kv_heads * m.v_dim), d}, {"qkv", u(m.heads * m.qk_dim + m.kv_heads * (m.qk_dim + m.v_dim)), d},
      {"o", d, u(m.heads * m.v_dim)},    {"down", d, u(layer.mlp.width)},
      {"up", u(layer.mlp.width), d},     {"logits", vocab, d}};
  if (layer.mlp.matrices == 3) {
    all.push_back({"gate", u(layer.mlp.width), d});
    all.push_back({"gate+up", u(2 * layer.mlp.width), d});
  }
  return all;
}

std::set<std::string> words(const std::string& name) {
  std::set<std::string> out;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('+', at), name.size());
    out.insert(name.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

template <typename Each>
void for_each_decoder(Each each) {
  for (const char* file : {"/published.json", "/families.json"}) {
    const json data = json::parse(std::ifstream(std::string(MFU_TEST_DATA) + file));
    for (const json& model : data["models"]) {
      const std::string name = model["name"];
      const Result<Architecture> spec = read_model(model["config"].dump(), name + ": ");
      if (!spec || spec->is_vision_only() || spec->is_encoder_decoder() || spec->layers.empty()) continue;
      each(name, *spec);
    }
  }
}

TEST(ComponentNames, EveryProductOfEveryDecoderFindsItsMatrixAndPass) {
  std::size_t decoders = 0;
  for_each_decoder([&](const std::string& name, const Architecture& spec) {
    SCOPED_TRACE(name);
    const ComponentNames names = ComponentNames::of(spec);
    for (const LayerSpec& layer : spec.layers) {
      if (layer.mixer.kind != MixerKind::kAttention || layer.mixer.output_gate || layer.mlp.experts > 0) continue;
      if (layer.mlp.width == 0 || spec.io_width() != spec.d_model) continue;
      ++decoders;
      const auto d = static_cast<std::uint64_t>(spec.d_model);
      const auto matrices = matrices_of(layer, d, static_cast<std::uint64_t>(spec.vocab));
      for (const Matrix& matrix : matrices) {
        if (matrix.out == 0) continue;
        for (const ProductPass pass : kPasses) {
          SCOPED_TRACE(matrix.name + " " + std::string(mfu::name(pass)));
          const ComponentNames::Match match = names.match(linear(matrix.out, matrix.in, pass));
          ASSERT_TRUE(match.is_weight());
          // By transposes no pass is taken for another: note the table of what PyTorch calls.
          EXPECT_EQ(match.pass, pass);
          const std::string called = names.name(match, place(matrix.name == "o", pass));
          for (const std::string& word : words(matrix.name)) {
            // A fused qkv may be the size of something that runs beside it; then both are named.
            EXPECT_TRUE(words(called).contains(word)) << called;
          }
          // Only what has the same size may share the name.
          for (const Matrix& other : matrices) {
            if (other.out == matrix.out && other.in == matrix.in) continue;
            if (matrix.name.find(other.name) != std::string::npos || other.name.find(matrix.name) != std::string::npos)
              continue;
            EXPECT_FALSE(words(called).contains(other.name) && words(called) == words(other.name))
                << called << " for " << matrix.name;
          }
        }
      }
    }
  });
  EXPECT_GT(decoders, 40u);
}

/// q and o have one size where heads x width = model width. Order tells them apart, in all three passes.
TEST(ComponentNames, OrderTellsTheOutputProjectionFromQueries) {
  std::size_t ambiguous = 0;
  for_each_decoder([&](const std::string& name, const Architecture& spec) {
    SCOPED_TRACE(name);
    const LayerSpec& layer = spec.layers.front();
    const MixerSpec& m = layer.mixer;
    if (m.kind != MixerKind::kAttention || m.output_gate || m.heads * m.qk_dim != spec.d_model || m.qk_dim != m.v_dim)
      return;
    ++ambiguous;
    const ComponentNames names = ComponentNames::of(spec);
    const auto d = static_cast<std::uint64_t>(spec.d_model);
    for (const ProductPass pass : kPasses) {
      const ComponentNames::Match match = names.match(linear(d, d, pass));
      EXPECT_EQ(names.name(match, place(true, pass)), "o");
      const std::set<std::string> others = words(names.name(match, place(false, pass)));
      EXPECT_TRUE(others.contains("q"));
      EXPECT_FALSE(others.contains("o"));
      EXPECT_EQ(others.contains("k"), m.kv_heads == m.heads);
    }
  });
  EXPECT_GT(ambiguous, 15u);
}

TEST(ComponentNames, MatricesThatAreStoredInByOut) {
  const json config = {{"model_type", "gpt2"}, {"n_embd", 768},       {"n_layer", 12},
                       {"n_head", 12},         {"n_positions", 1024}, {"vocab_size", 50257}};
  const Result<Architecture> spec = read_model(config.dump(), "gpt2: ");
  ASSERT_TRUE(spec.ok());
  const ComponentNames names = ComponentNames::of(*spec);
  EXPECT_TRUE(names.shows_in_by_out(conv1d(2304, 768, ProductPass::kForward)));
  EXPECT_FALSE(names.shows_in_by_out(conv1d(3072, 768, ProductPass::kForward)));  // or the gradient of `down`
  for (const ProductPass pass : kPasses) EXPECT_FALSE(names.shows_in_by_out(linear(2304, 768, pass)));
  const std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> matrices{
      {"qkv", {2304, 768}}, {"o", {768, 768}}, {"up", {3072, 768}}, {"down", {768, 3072}}};
  for (const auto& [name, size] : matrices) {
    for (const ProductPass pass : kPasses) {
      const auto match = names.match(conv1d(size.first, size.second, pass), WeightLayout::kInByOut);
      ASSERT_TRUE(match.is_weight()) << name;
      EXPECT_EQ(match.pass, pass) << name;
      EXPECT_EQ(names.name(match, place(name == "o", pass)), name);
    }
  }
  // Its output matrix is an ordinary one, padded or not.
  for (const std::uint64_t vocabulary : {50257u, 50304u}) {
    for (const ProductPass pass : kPasses) {
      const auto match = names.match(linear(vocabulary, 768, pass), WeightLayout::kInByOut);
      ASSERT_TRUE(match.is_weight());
      EXPECT_EQ(names.name(match, AfterAttention::kLater), "logits");
      EXPECT_EQ(match.pass, pass);
    }
  }
}

TEST(ComponentNames, RanksThatShareLayersHaveSlices) {
  const json config = {{"model_type", "llama"},   {"hidden_size", 4096},         {"intermediate_size", 14336},
                       {"num_hidden_layers", 32}, {"num_attention_heads", 32},   {"num_key_value_heads", 8},
                       {"vocab_size", 128256},    {"tie_word_embeddings", false}};
  const Result<Architecture> spec = read_model(config.dump(), "llama: ");
  ASSERT_TRUE(spec.ok());
  const ComponentNames names = ComponentNames::of(*spec, 8);
  const auto called = [&](std::uint64_t out, std::uint64_t in) {
    return names.name(names.match(linear(out, in, ProductPass::kForward)), AfterAttention::kLater);
  };
  EXPECT_EQ(called(512, 4096), "q");  // and no longer the size of o
  EXPECT_EQ(called(4096, 512), "o");
  EXPECT_EQ(called(128, 4096), "k+v");
  EXPECT_EQ(called(768, 4096), "qkv");
  EXPECT_EQ(called(1792, 4096), "gate+up");
  EXPECT_EQ(called(3584, 4096), "gate+up");
  EXPECT_EQ(called(4096, 1792), "down");
  EXPECT_EQ(called(16032, 4096), "logits");
  EXPECT_EQ(called(16128, 4096), "logits");  // padded
  EXPECT_EQ(called(4097, 4096), "");
}

TEST(ComponentNames, ExpertsRoutersAndHeads) {
  const json config = {{"model_type", "mixtral"}, {"hidden_size", 4096},       {"intermediate_size", 14336},
                       {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"num_key_value_heads", 8},
                       {"num_local_experts", 8},  {"num_experts_per_tok", 2},  {"vocab_size", 32000}};
  const Result<Architecture> spec = read_model(config.dump(), "mixtral: ");
  ASSERT_TRUE(spec.ok());
  const ComponentNames names = ComponentNames::of(*spec);
  const auto match = names.match(linear(14336, 4096, ProductPass::kForward, 317));
  EXPECT_EQ(names.name(match, AfterAttention::kLater), "experts gate+experts up");
  EXPECT_EQ(names.all()[match.weights].rows, ComponentNames::Rows::kExperts);
  Product batch = linear(14336, 4096, ProductPass::kForward, 128);
  batch.batch = 8;
  EXPECT_EQ(names.match(batch).weights, match.weights);
  Product scores = made(1024, 1024, 128, true, false);
  scores.batch = 64;
  EXPECT_EQ(names.name(names.match(scores), AfterAttention::kLater), "attention");
  EXPECT_EQ(names.name(names.match(linear(8, 4096, ProductPass::kForward)), AfterAttention::kLater), "router");
  Product unsized = linear(14336, 4096, ProductPass::kForward);
  unsized.kind = Product::Kind::kUnsized;
  EXPECT_FALSE(names.match(unsized).known());
}

/// 8-bit floats have one pair of transposes for all passes: sizes decide, and where they do not, no pass is claimed.
TEST(ComponentNames, EightBitFloatsGoBySize) {
  const json config = {{"model_type", "llama"},   {"hidden_size", 4096},       {"intermediate_size", 14336},
                       {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"num_key_value_heads", 8},
                       {"vocab_size", 128256}};
  const Result<Architecture> spec = read_model(config.dump(), "llama: ");
  ASSERT_TRUE(spec.ok());
  const ComponentNames names = ComponentNames::of(*spec);
  const auto match_of = [&](std::uint64_t m, std::uint64_t n, std::uint64_t k) {
    Product p = made(m, n, k, true, false);
    p.operands = DType::kFp8;
    return names.match(p);
  };
  EXPECT_EQ(match_of(6144, kTokens, 4096).pass, ProductPass::kForward);  // qkv
  EXPECT_EQ(match_of(4096, kTokens, 6144).pass, ProductPass::kDgrad);
  EXPECT_EQ(match_of(4096, 6144, kTokens).pass, ProductPass::kWgrad);
  EXPECT_EQ(match_of(14336, kTokens, 4096).pass, ProductPass::kUnknown);  // up forward, or down's gradient
}

TEST(ComponentNames, WithoutAModelTheSizesAreTheName) {
  for (const ProductPass pass : kPasses) {
    const Product p = linear(14336, 4096, pass);
    EXPECT_EQ(pass_by_transposes(p), pass);
    EXPECT_EQ(name_by_size(p), "4096x14336");
    EXPECT_EQ(rows_of(p, pass), kTokens);
  }
  EXPECT_FALSE(ComponentNames().match(linear(14336, 4096, ProductPass::kForward)).known());
  // Each matrix once: bf16 operands and result.
  EXPECT_DOUBLE_EQ(bytes_once(made(10, 20, 30, true, false)), 2.0 * (10 * 30 + 30 * 20 + 10 * 20));
}

}  // namespace
}  // namespace mfu

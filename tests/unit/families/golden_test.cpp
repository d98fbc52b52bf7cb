// Every golden number: parameters, FLOP by component, attention mode and logits mode, bytes, conventions, vision.
// Integers are compared exactly.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/families/read_architecture.h"
#include "core/model/flops_model.h"
#include "core/model/vision.h"

namespace mfu {
namespace {

using nlohmann::json;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const json& golden() {
  static const json& data = *new json(json::parse(read_text(MFU_TEST_DATA "/reference/golden.json")));
  return data;
}

Architecture spec_of(const json& model) {
  const std::string path = MFU_TEST_DATA "/reference/" + model.at("config").get<std::string>();
  Result<Architecture> spec = read_model(read_text(path), path + ": ");
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
  return spec.ok() ? *spec : Architecture{};
}

/// Counts that do not exist are absent from the file; those that do must be equal.
void expect_equal(const json& object, const char* key, Count value, const std::string& where) {
  if (!object.contains(key)) return;
  ASSERT_TRUE(value.fits()) << where << " " << key;
  EXPECT_EQ(object.at(key).get<std::uint64_t>(), value.u64()) << where << " " << key;
}

std::vector<SequenceGroup> sequences_of(const json& workload) {
  const std::int64_t past = workload["first_pass"]["past"], fed = workload["first_pass"]["new"];
  if (workload["id"] == "prefill_mixed") {
    const std::int64_t p = fed;
    return {{1, 0, p}, {1, 0, p / 2}, {1, p / 4, p / 8}, {1, 0, 1}};
  }
  return {{workload["batch"].get<std::int64_t>(), past, fed}};
}

class GoldenTest : public testing::TestWithParam<std::size_t> {
 protected:
  const json& model() const { return golden()["models"][GetParam()]; }
};

TEST_P(GoldenTest, Parameters) {
  const Architecture spec = spec_of(model());
  const ParamGroups g = count_params(spec);
  const json& p = model()["params"];
  const std::string where = model()["model"];
  expect_equal(p, "total", g.total(), where);
  expect_equal(p, "text_total", g.text_total(), where);
  expect_equal(p, "vision", g.vision, where);
  expect_equal(p, "mtp", g.mtp, where);
  expect_equal(p, "embedding", g.embed, where);
  expect_equal(p, "position_embedding", g.position, where);
  expect_equal(p, "lm_head", g.lm_head, where);
  expect_equal(p, "active", g.active(), where);
  expect_equal(p, "non_embedding", g.text_total() - g.embed - g.position - g.lm_head, where);
  expect_equal(p, "active_without_input_embedding", g.active() - g.position - (spec.tied ? Count(0) : g.embed), where);
  expect_equal(p, "matmul_weights_per_token", matmul_weights_per_token(spec), where);
  const json& groups = p["by_group"];
  expect_equal(groups, "attn", g.attn, where);
  expect_equal(groups, "mlp", g.mlp, where);
  expect_equal(groups, "expert", g.expert, where);
  expect_equal(groups, "shared_expert", g.shared_expert, where);
  expect_equal(groups, "router", g.router, where);
  expect_equal(groups, "norm", g.norm, where);
  expect_equal(groups, "other", g.other, where);
  EXPECT_EQ(spec.family, model()["model_type"].get<std::string>());
}

TEST_P(GoldenTest, Workloads) {
  const Architecture spec = spec_of(model());
  int compared = 0;
  for (const json& w : model()["workloads"]) {
    const std::string where = model()["model"].get<std::string>() + " " + w["id"].get<std::string>();
    const std::vector<SequenceGroup> sequences = sequences_of(w);
    CountRequest request;
    const std::string region = w["region"];
    request.phase = region == "step" ? Phase::kTrain : region == "prefill" ? Phase::kPrefill : Phase::kDecode;
    request.sequences = sequences;
    request.passes = w["passes"];
    request.encoder_len = w.value("encoder_len", 0);
    request.encoder_runs = w.value("encoder_runs", false);
    for (AttentionMode mode : {AttentionMode::kCausal, AttentionMode::kFull, AttentionMode::kFullWindowed}) {
      for (LogitsMode logits : {LogitsMode::kAll, LogitsMode::kLast}) {
        const std::string mode_name(name(mode)), logits_name = logits == LogitsMode::kAll ? "all" : "last";
        const json& flops = w["flops"];
        if (!flops["logits"].contains(logits_name)) continue;
        FlopsOptions options;
        options.attention = mode;
        options.logits = logits;
        const FlopsModel m = FlopsModel::make(spec, options);
        const Result<FlopCount> count = m.count_flop(request);
        ASSERT_TRUE(count.ok()) << count.error().message;
        const std::string at = where + " " + mode_name + " " + logits_name;
        expect_equal(flops, "qkv", count->parts.qkv, at);
        expect_equal(flops, "o_proj", count->parts.o_proj, at);
        expect_equal(flops, "mlp", count->parts.mlp, at);
        expect_equal(flops, "router", count->parts.router, at);
        expect_equal(flops, "other", count->parts.other, at);
        expect_equal(flops, "cross_qkv", count->parts.cross_qkv, at);
        expect_equal(flops, "cross_o_proj", count->parts.cross_o_proj, at);
        expect_equal(flops, "encoder_forward", count->encoder_forward, at);
        expect_equal(flops["attn_scores"], mode_name.c_str(), count->parts.attn_scores, at);
        expect_equal(flops["attn_av"], mode_name.c_str(), count->parts.attn_av, at);
        if (flops.contains("cross_scores")) {
          expect_equal(flops["cross_scores"], mode_name.c_str(), count->parts.cross_scores, at);
          expect_equal(flops["cross_av"], mode_name.c_str(), count->parts.cross_av, at);
        }
        expect_equal(flops["logits"], logits_name.c_str(), count->parts.logits, at);
        expect_equal(flops["forward"][mode_name], logits_name.c_str(), count->forward, at);
        if (flops.contains("train")) expect_equal(flops["train"], mode_name.c_str(), count->total, at);
        const json parts = flops.value("mlp_parts", json::object());
        expect_equal(parts, "mlp_dense", count->mlp_dense, at);
        expect_equal(parts, "mlp_routed", count->mlp_routed, at);
        expect_equal(parts, "mlp_shared", count->mlp_shared, at);
        if (flops.contains("mla_absorbed")) {
          expect_equal(flops["mla_absorbed"]["attn_scores"], mode_name.c_str(), count->absorbed_scores, at);
          expect_equal(flops["mla_absorbed"]["attn_av"], mode_name.c_str(), count->absorbed_av, at);
        }
        EXPECT_EQ(count->tokens.u64(), w["tokens"].get<std::uint64_t>()) << at;
        EXPECT_EQ(count->parts.sum().u64(), count->forward.u64()) << at;
        ++compared;
      }
    }
    if (w["flops"].contains("conventions")) {
      for (const auto& item : w["flops"]["conventions"].items()) {
        FlopsOptions options;
        const auto convention = parse_convention(item.key());
        ASSERT_TRUE(convention) << item.key();
        options.convention = *convention;
        const Result<FlopCount> count = FlopsModel::make(spec, options).count_flop(request);
        ASSERT_TRUE(count.ok()) << count.error().message;
        EXPECT_EQ(count->total.u64(), item.value().get<std::uint64_t>()) << where << " " << item.key();
      }
    }
    if (!w.contains("bytes_bf16")) continue;
    FlopsOptions options;
    options.weight_format = weight_format(DType::kBf16);
    options.kv_dtype = DType::kBf16;
    const Result<ByteCount> bytes = FlopsModel::make(spec, options).count_bytes(request);
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    const json& b = w["bytes_bf16"];
    expect_equal(b["weights_read"], "min", bytes->weights_read_min, where);
    expect_equal(b["weights_read"], "max", bytes->weights_read_max, where);
    const double expected = b["weights_read"]["expected_uniform"];
    EXPECT_NEAR(bytes->weights_read.to_double() / expected, 1.0, 1e-9) << where;
    expect_equal(b, "embedding_rows", bytes->embedding_rows, where);
    expect_equal(b, "kv_read", bytes->kv_read, where);
    expect_equal(b, "kv_write", bytes->kv_write, where);
    expect_equal(b, "kv_resident_end", bytes->kv_resident_end, where);
    expect_equal(b, "kv_resident_end_windowed", bytes->kv_resident_end_windowed, where);
  }
  EXPECT_GT(compared, 5);
}

TEST_P(GoldenTest, Vision) {
  if (!model().contains("vision")) GTEST_SKIP() << "no vision tower";
  const Architecture spec = spec_of(model());
  ASSERT_TRUE(spec.vision);
  for (const json& v : model()["vision"]) {
    const std::string where = model()["model"].get<std::string>() + " " + v["case"].get<std::string>();
    int height = 0, width = 0;
    ASSERT_EQ(std::sscanf(v["case"].get<std::string>().c_str(), "one %dx%d", &height, &width), 2);
    const VisionCount count = count_image(*spec.vision, height, width);
    const json& f = v["flops"];
    expect_equal(f, "patch_embed", count.patch_embed, where);
    expect_equal(f, "qkv", count.qkv, where);
    expect_equal(f, "attn_scores", count.attn_scores, where);
    expect_equal(f, "attn_av", count.attn_av, where);
    expect_equal(f, "o_proj", count.o_proj, where);
    expect_equal(f, "mlp", count.mlp, where);
    expect_equal(f, "projector", count.projector, where);
    expect_equal(v, "forward", count.sum(), where);
    expect_equal(v, "tokens_out", count.tokens_out, where);
  }
}

TEST_P(GoldenTest, NativeWeightBytes) {
  if (!model().contains("native_weight_bytes_total")) GTEST_SKIP() << "no native format";
  const Architecture spec = spec_of(model());
  const ParamGroups g = count_params(spec);
  ASSERT_TRUE(spec.storage.known);
  ASSERT_TRUE(spec.storage.experts);
  ASSERT_FALSE(spec.storage.attention);
  std::uint64_t quantised = 0;
  for (const LayerSpec& layer : spec.layers) {
    quantised += (layer_weights(layer, spec.d_model).expert * layer.mlp.experts * layer.repeat).u64();
  }
  const WeightFormat& q = spec.storage.quantised;
  const std::uint64_t native = (g.total().u64() - quantised) * 2 + quantised * static_cast<std::uint64_t>(q.bits_num) /
                                                                       static_cast<std::uint64_t>(8 * q.bits_den);
  EXPECT_EQ(native, model()["native_weight_bytes_total"].get<std::uint64_t>());
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::Range<std::size_t>(0, golden()["models"].size()),
                         [](const testing::TestParamInfo<std::size_t>& test) {
                           std::string label = golden()["models"][test.param]["model"];
                           for (char& c : label) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return label;
                         });

}  // namespace
}  // namespace mfu

#include "core/families/own_schema.h"

#include <nlohmann/json.hpp>

#include "core/families/read_architecture.h"

namespace mfu {
namespace {

using nlohmann::json;

/// Refuses every key that is not in `known`.
void refuse_others(const Fields& f, std::initializer_list<std::string_view> known) {
  for (const std::string& unknown : f.unknown_keys(known)) {
    std::string expected;
    for (std::string_view key : known) expected += (expected.empty() ? "one of " : ", ") + std::string(key);
    f.wrong(unknown, expected, f.find(unknown));
  }
}

MixerSpec read_own_attention(const Fields& f) {
  refuse_others(
      f, {"kind",    "causal",      "window",      "chunk",     "heads",    "kv_heads",    "qk_dim",   "head_dim",
          "v_dim",   "output_gate", "q_rank",      "kv_rank",   "nope_dim", "rope_dim",    "inner",    "state",
          "dt_rank", "groups",      "conv_kernel", "key_heads", "key_dim",  "value_heads", "value_dim"});
  MixerSpec m;
  const std::string kind = f.text_or("kind", "gqa");
  m.causal = f.flag("causal", true);
  m.window = f.integer_or("window", 0, 0);
  m.chunk = f.integer_or("chunk", 0, 0);
  if (kind == "none") return m;
  if (kind == "gqa") {
    m.kind = MixerKind::kAttention;
    m.heads = f.require("heads");
    m.kv_heads = f.integer_or("kv_heads", m.heads, 1);
    if (!f.failed() && m.heads % m.kv_heads != 0) f.wrong("kv_heads", "a divisor of heads", f.find("kv_heads"));
    m.qk_dim = f.require("qk_dim|head_dim");
    m.v_dim = f.integer_or("v_dim", m.qk_dim, 1);
    m.output_gate = f.flag("output_gate", false);
  } else if (kind == "mla") {
    m.kind = MixerKind::kLatent;
    m.heads = f.require("heads");
    m.kv_heads = 1;
    m.q_rank = f.integer_or("q_rank", 0, 0);
    m.kv_rank = f.require("kv_rank");
    m.nope_dim = f.require("nope_dim");
    m.rope_dim = f.require("rope_dim", 0);
    m.qk_dim = m.nope_dim + m.rope_dim;
    m.v_dim = f.require("v_dim");
  } else if (kind == "mamba1" || kind == "mamba2") {
    m.kind = kind == "mamba1" ? MixerKind::kMamba1 : MixerKind::kMamba2;
    m.inner = f.require("inner");
    m.state = f.require("state");
    if (kind == "mamba1") {
      m.dt_rank = f.require("dt_rank");
    } else {
      m.heads = f.require("heads");
      m.groups = f.integer_or("groups", 1, 1);
      m.conv_kernel = f.integer_or("conv_kernel", 4, 1);
    }
  } else if (kind == "delta_net") {
    m.kind = MixerKind::kDeltaNet;
    m.heads = f.require("key_heads");
    m.qk_dim = f.require("key_dim");
    m.kv_heads = f.require("value_heads");
    m.v_dim = f.require("value_dim");
    m.conv_kernel = f.integer_or("conv_kernel", 4, 1);
  } else {
    f.wrong("kind", "gqa, mla, mamba1, mamba2, delta_net or none", f.find("kind"));
  }
  return m;
}

MlpSpec read_own_mlp(const Fields& f) {
  refuse_others(f, {"matrices", "experts", "width", "top_k", "shared_width", "shared_gate"});
  MlpSpec m;
  m.matrices = f.integer_or("matrices", 3, 1, 3);
  m.experts = f.integer_or("experts", 0, 0);
  if (m.experts > 0) {
    m.expert_width = f.require("width");
    m.top_k = f.require("top_k", 1, m.experts);
    m.shared_width = f.integer_or("shared_width", 0, 0);
    m.shared_gate = f.flag("shared_gate", false);
  } else {
    m.width = f.integer_or("width", 0, 0);
  }
  return m;
}

std::vector<LayerSpec> read_own_layers(const Fields& f, const char* key, std::optional<Error>* problem) {
  std::vector<LayerSpec> layers;
  const json* list = f.find(key);
  constexpr std::size_t kMostEntries = 10'000;
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMostEntries) {
    f.wrong(key, "a list of 1 to 10000 layers", list);
    return layers;
  }
  for (std::size_t i = 0; i < list->size() && !f.failed(); ++i) {
    const json& entry = (*list)[i];
    const std::string place = f.place() + key + "[" + std::to_string(i) + "].";
    if (!entry.is_object()) {
      f.problem(f.place() + key + "[" + std::to_string(i) + "]: expected an object, got " + brief(entry));
      break;
    }
    const Fields e(entry, place, problem);
    refuse_others(e, {"repeat", "attention", "mlp", "cross"});
    LayerSpec layer;
    layer.repeat = e.integer_or("repeat", 1, 1);
    if (e.find("attention") != nullptr) layer.mixer = read_own_attention(e.child("attention"));
    if (e.find("mlp") != nullptr) layer.mlp = read_own_mlp(e.child("mlp"));
    if (e.find("cross") != nullptr) {
      const Fields c = e.child("cross");
      refuse_others(c, {"heads", "head_dim"});
      layer.cross = CrossSpec{c.require("heads"), c.require("head_dim"), 0, 0, {}, {}};
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace

void read_own(const Fields& f, std::optional<Error>* problem, Architecture& spec) {
  refuse_others(f, {"d_model", "vocab_size", "tied", "layers", "encoder", "dtype", "family"});
  spec.family = f.text_or("family", "custom");
  spec.d_model = f.require("d_model");
  spec.vocab = f.integer_or("vocab_size", 0, 0);
  spec.tied = f.flag("tied", false);
  spec.embed_params = Count(spec.vocab) * spec.d_model;
  spec.layers = read_own_layers(f, "layers", problem);
  if (f.find("encoder") != nullptr) spec.encoder = read_own_layers(f, "encoder", problem);
  for (LayerSpec& layer : spec.encoder) layer.mixer.causal = false;
  bool causal = spec.layers.empty();
  for (const LayerSpec& layer : spec.layers)
    causal = causal || layer.mixer.kind == MixerKind::kNone || layer.mixer.causal;
  spec.is_encoder = !causal;
  const Fields dtype = f.child("dtype");
  refuse_others(dtype, {"compute", "weights", "kv"});
  const auto read = [&dtype](const char* key) -> std::optional<DType> {
    const json* value = dtype.find(key);
    if (value == nullptr) return std::nullopt;
    const auto parsed = value->is_string() ? parse_dtype(value->get<std::string>()) : std::nullopt;
    if (!parsed) dtype.wrong(key, "a number format such as bf16 or fp8", value);
    return parsed;
  };
  spec.compute_dtype = read("compute");
  spec.storage.plain = weight_format(read("weights").value_or(spec.compute_dtype.value_or(DType::kBf16)));
  spec.kv_dtype = read("kv");
}

}  // namespace mfu

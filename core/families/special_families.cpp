#include "core/families/special_families.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/families/unet.h"

namespace mfu {
namespace {

using nlohmann::json;

/// Linear and norm parameters of `layers` transformer blocks with biases everywhere. Block norms have `norm` elements.
Count vit_block_params(const VisionSpec& v, std::int64_t norm) noexcept {
  const Count d = v.width;
  const Count attention = Count(4) * d * d + Count(4) * d;
  const Count mlp = Count(v.mlp_matrices) * d * v.mlp_width + Count(v.mlp_matrices - 1) * v.mlp_width + d;
  return (attention + mlp + Count(2) * norm) * v.layers;
}

Count projector_params(const VisionSpec& v, bool biased) noexcept {
  Count n;
  for (const auto& [in, out] : v.projector) n += Count(in) * out + (biased ? Count(out) : Count(0));
  return n;
}

/// DeepSeek-OCR: decoder without latent attention, SAM-B and CLIP-L in front (its published modelling code).
void build_deepseek_ocr(const Fields& f, ModelHead head, Architecture& spec) {
  const bool nested = f.find("language_config") != nullptr;
  const Fields inner = f.child("language_config");
  const Fields& text = nested ? inner : f;
  read_typed(text, nested ? text.text_or("model_type", "deepseek_v2") : "deepseek_v2", false, head, spec);
  if (f.failed() || f.find("vision_config") == nullptr) return;
  const Fields vision = f.child("vision_config");
  if (vision.text_or("model_name", "") != "deeplip_b_l") {
    vision.wrong("model_name", "deeplip_b_l (SAM-B and CLIP-L), the one tower of this family that is known",
                 vision.find("model_name"));
    return;
  }
  VisionSpec v;
  v.kind = VisionKind::kDeepEncoder;
  v.image = vision.integer_or("image_size", 1024, 64, 1 << 16);
  v.width = 1024;
  v.layers = 24;
  v.heads = 16;
  v.mlp_width = 4096;
  v.extra_tokens = 1;
  const Fields projector = f.child("projector_config");
  v.projector = {{projector.integer_or("input_dim", 2048, 1), projector.integer_or("n_embed", spec.d_model, 1)}};
  VisionSpec sam;
  sam.width = 768;
  sam.layers = 12;
  sam.mlp_width = 3072;
  const Count relative = Count(64) * 2 * (8 * (2 * 14 - 1) + 4 * (2 * 64 - 1));
  v.params = Count(3 * 16 * 16) * 768 + 768 + Count(64 * 64) * 768 + vit_block_params(sam, 2 * 768) + relative;
  v.params += Count(768) * 256 + 512 + Count(9 * 256) * 256 + 512 + Count(9 * 256) * 512 + Count(9 * 512) * 1024;
  // CLIP: its patch embedding is stored but does not run.
  v.params += Count(1024) + Count(3 * 14 * 14) * 1024 + Count(257) * 1024 + 2 * 1024 + vit_block_params(v, 2 * 1024);
  v.params += projector_params(v, true) + Count(2) * spec.d_model;  // image_newline and view_separator
  spec.vision = v;
}

/// NVIDIA's searched Llamas (Puzzle, arXiv:2411.19146; published modelling code of DeciLM): each layer has its own
/// attention groups and MLP width, or none, or one matrix in their place.
void build_nemotron_nas(const Fields& f, ModelHead head, Architecture& spec) {
  const std::int64_t d = spec.d_model = f.require("hidden_size");
  const std::int64_t layers = f.require("num_hidden_layers");
  const std::int64_t heads = f.require("num_attention_heads");
  spec.vocab = head == ModelHead::kOwn ? f.require("vocab_size") : 0;
  spec.embed_params = Count(f.require("vocab_size")) * d;
  spec.tied = head != ModelHead::kOwn || f.flag("tie_word_embeddings", false);
  spec.max_positions = f.integer_or("max_position_embeddings", 0, 0, INT64_MAX);
  spec.norm_params = d;
  const json* blocks = f.find("block_configs");
  if (blocks == nullptr || !blocks->is_array() || static_cast<std::int64_t>(blocks->size()) != layers ||
      layers > 100'000) {
    f.wrong("block_configs", "a list of " + std::to_string(layers) + " blocks", blocks);
    return;
  }
  if (head != ModelHead::kOwn && head != ModelHead::kNone) {
    f.problem(f.place() + "architectures: expected DeciLMForCausalLM or DeciLMModel");
    return;
  }
  if (f.flag("attention_bias", false) || f.flag("mlp_bias", false)) {
    f.problem(f.place() + "attention_bias: biases of a searched Llama are not known");
    return;
  }
  if (!f.failed() && d % heads != 0)
    f.wrong("num_attention_heads", "a divisor of hidden_size", f.find("num_attention_heads"));
  for (const json& entry : *blocks) {
    if (f.failed()) return;
    if (!entry.is_object()) {
      f.wrong("block_configs", "a list of objects", &entry);
      return;
    }
    std::optional<Error> problem;
    const Fields block(entry, f.place() + "block_configs.", &problem);
    const Fields attention = block.child("attention"), ffn = block.child("ffn");
    LayerSpec layer;
    MixerSpec& m = layer.mixer;
    if (attention.flag("replace_with_linear", false)) {
      m.kind = MixerKind::kLinear;
      m.weights = Count(d) * d;
      layer.norm_params += d;
    } else if (!attention.flag("no_op", false)) {
      m.kind = MixerKind::kAttention;
      m.heads = heads;
      const std::int64_t group = attention.require("n_heads_in_group", 1, heads);
      if (!problem && heads % group != 0)
        attention.wrong("n_heads_in_group", "a divisor of num_attention_heads", attention.find("n_heads_in_group"));
      m.kv_heads = problem ? 1 : heads / group;
      m.qk_dim = m.v_dim = d / heads;
      m.window = attention.integer_or("window_length", 0, 0);
      layer.norm_params += d;
    }
    layer.mlp.matrices = 3;
    if (ffn.flag("replace_with_linear", false)) {
      m.weights += Count(d) * d;
      layer.norm_params += d;
    } else if (!ffn.flag("no_op", false)) {
      // The published rule: two thirds of mult x d, rounded up to a multiple of 256.
      const double width = 2 * ffn.number("ffn_mult", 0).value_or(0) * static_cast<double>(d) / 3;
      if (!problem && !(width >= 1 && width < static_cast<double>(kMaxDimension)))
        ffn.wrong("ffn_mult", "a number > 0", ffn.find("ffn_mult"));
      layer.mlp.width = problem ? 1 : (static_cast<std::int64_t>(width) + 255) / 256 * 256;
      layer.norm_params += d;
    }
    if (problem) {
      f.problem(problem->message);
      return;
    }
    const auto alike = std::find_if(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& known) {
      layer.repeat = known.repeat;
      return known == layer;
    });
    if (alike != spec.layers.end()) {
      ++alike->repeat;
    } else {
      layer.repeat = 1;
      spec.layers.push_back(layer);
    }
  }
}

using Build = void (*)(const Fields&, ModelHead, Architecture&);

/// What diffusers ships is never a text model: it has no other head.
void build_diffusers_unet(const Fields& f, ModelHead /*head*/, Architecture& spec) { build_unet(f, spec); }

constexpr std::pair<std::string_view, Build> kSpecial[] = {
    {"UNet2DConditionModel", build_diffusers_unet},
    {"deepseek_vl_v2", build_deepseek_ocr},
    {"nemotron-nas", build_nemotron_nas},
};

}  // namespace

bool is_special(std::string_view model_type) noexcept {
  return std::any_of(std::begin(kSpecial), std::end(kSpecial),
                     [model_type](const auto& one) { return one.first == model_type; });
}

std::vector<std::string_view> special_types() {
  std::vector<std::string_view> types;
  for (const auto& [type, build] : kSpecial) types.push_back(type);
  return types;
}

void build_special(std::string_view model_type, const Fields& f, ModelHead head, Architecture& spec) {
  for (const auto& [type, build] : kSpecial) {
    if (type == model_type) build(f, head, spec);
  }
}

void read_eagle3(const Fields& f, Architecture& spec) {
  const std::int64_t d = spec.d_model = f.require("hidden_size");
  const std::int64_t target = f.integer_or("target_hidden_size", d, 1);
  LayerSpec layer;
  layer.repeat = f.integer_or("num_hidden_layers", 1, 1, 16);
  MixerSpec& m = layer.mixer;
  m.kind = MixerKind::kAttention;
  m.heads = f.require("num_attention_heads");
  m.kv_heads = f.integer_or("num_key_value_heads", m.heads, 1);
  m.qk_dim = m.v_dim = f.integer_or("head_dim", m.heads > 0 ? d / m.heads : 1, 1);
  m.weights = Count(d) * (Count(m.heads) + Count(2) * m.kv_heads) * m.qk_dim;  // the second half of the wide input
  layer.mlp.matrices = 3;
  layer.mlp.width = f.require("intermediate_size");
  layer.norm_params = Count(3) * d;
  spec.layers.push_back(layer);
  spec.vocab = f.require("draft_vocab_size|vocab_size");
  spec.other_matmul_weights = Count(3) * target * d;
  spec.norm_params = d;
  spec.max_positions = f.integer_or("max_position_embeddings", 0, 0, INT64_MAX);
}

}  // namespace mfu

#include "core/families/family_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/edit_distance.h"
#include "core/base/printable.h"
#include "core/families/class_defaults.h"
#include "core/families/family_table.h"
#include "core/families/family_vision.h"
#include "core/families/row_values.h"

namespace mfu {
namespace {

using nlohmann::json;

/// How many outputs a classifier has: `id2label`, else `num_labels`, else two, as transformers has it.
std::int64_t labels_of(const Fields& f) {
  if (class_of(f).ends_with("ForMultipleChoice")) return 1;
  const json* names = f.find("id2label");
  if (names != nullptr && names->is_object() && !names->empty()) return static_cast<std::int64_t>(names->size());
  return f.integer_or("num_labels", 2, 1);
}

MixerSpec mixer_of(RowValues& x) {
  MixerSpec m;
  const std::int64_t kind = x.value("mixer");
  m.kind = static_cast<MixerKind>(kind);
  m.causal = x.flag("causal");
  m.weights = x.value("mixer_weights");
  m.conv_weights = x.value("mixer_conv_weights");
  m.extra_params = x.value("mixer_params");
  m.state_flop = x.value("state_flop");
  m.state_elements = x.value("state_elements");
  switch (m.kind) {
    case MixerKind::kNone:
      break;
    case MixerKind::kAttention:
    case MixerKind::kLatent:
      m.heads = x.positive("query_heads");
      m.kv_heads = m.kind == MixerKind::kLatent ? 1 : x.positive("key_value_heads");
      m.qk_dim = x.positive("head_dim");
      m.v_dim = x.positive("value_head_dim");
      m.window = x.value("window");
      m.chunk = x.value("chunk");
      m.sparse_block = x.value("sparse_block");
      m.random_blocks = x.value("random_blocks");
      m.top_keys = x.value("top_keys");
      m.index_heads = x.value("index_heads");
      m.index_dim = x.value("index_dim");
      m.index_plain = x.flag("index_plain");
      m.compress = x.value("compression");
      m.key_values = static_cast<KeyValues>(std::clamp<std::int64_t>(x.value("key_value_sharing"), 0, 3));
      m.position_rows = x.value("position_rows");
      m.position_scores = x.value("position_scores");
      m.position_projections = x.value("position_projections");
      m.positions_grow = x.flag("position_growth");
      m.positions_per_sequence = x.value("position_growth") == 2;
      m.q_rank = x.value("query_rank");
      m.o_rank = x.value("output_rank");
      m.o_groups = x.value("output_groups");
      if (m.kind == MixerKind::kLatent) {
        m.kv_rank = x.positive("key_value_rank");
        m.nope_dim = x.value("nope_dim");
        m.rope_dim = x.value("rope_dim");
      } else {
        m.output_gate = x.flag("attention_gate");
        if (!x.fields().failed() && m.heads % m.kv_heads != 0) {
          x.fields().wrong("num_key_value_heads", "a divisor of the " + std::to_string(m.heads) + " query heads",
                           x.fields().find("num_key_value_heads") != nullptr
                               ? x.fields().find("num_key_value_heads")
                               : x.fields().default_of("num_key_value_heads"));
        }
      }
      break;
    case MixerKind::kMamba1:
      m.inner = x.positive("state_width");
      m.state = x.positive("state_dim");
      m.dt_rank = x.positive("step_rank");
      break;
    case MixerKind::kMamba2:
      m.heads = x.positive("state_heads");
      m.inner = x.positive("state_width");
      m.state = x.positive("state_dim");
      m.groups = x.positive("state_groups");
      m.conv_kernel = x.positive("conv_width");
      break;
    case MixerKind::kDeltaNet:
      m.heads = x.positive("delta_key_heads");
      m.qk_dim = x.positive("delta_key_dim");
      m.kv_heads = x.positive("delta_value_heads");
      m.v_dim = x.positive("delta_value_dim");
      m.conv_kernel = x.value("conv_width");
      break;
    case MixerKind::kLinear:
      break;
  }
  return m;
}

MlpSpec mlp_of(RowValues& x) {
  MlpSpec m;
  m.matrices = x.value("mlp_matrices");
  if (x.value("has_experts") == 0) {
    m.width = x.value("mlp_width");
    if (m.width > 0) m.extra_params = x.value("mlp_params");
    return m;
  }
  m.experts = x.positive("experts");
  m.top_k = x.positive("experts_per_token");
  if (!x.fields().failed() && m.top_k > m.experts) {
    x.fields().problem(x.fields().place() + "num_experts_per_tok: expected at most the " + std::to_string(m.experts) +
                       " experts, got " + std::to_string(m.top_k));
  }
  m.expert_width = x.positive("expert_width");
  m.expert_input = x.value("expert_input");
  m.shared_width = x.value("shared_expert_width");
  m.shared_gate = x.flag("shared_expert_gate");
  m.router_extra_params = x.value("router_params");
  m.shared_extra_params = x.value("shared_expert_params");
  m.expert_extra_params = x.value("expert_params");
  return m;
}

/// Each entry of `layer_types` must be a word that the row accepts: a layer of a kind that it does not know is never
/// taken for a plain one.
void check_layer_types(RowValues& x, std::int64_t layers) {
  const Fields& f = x.fields();
  const json* types = f.find("layer_types");
  if (types == nullptr || f.failed()) return;
  if (!types->is_array() || static_cast<std::int64_t>(types->size()) < layers) {
    f.wrong("layer_types", "a list of " + std::to_string(layers) + " layer types", types);
    return;
  }
  const std::vector<std::string_view> accepted = words_of(x.text("accepts_layer_types"));
  for (const json& type : *types) {
    if (type.is_string() && std::find(accepted.begin(), accepted.end(), type.get<std::string>()) != accepted.end())
      continue;
    f.wrong("layer_types", "layer types that this family has, such as full_attention", &type);
    return;
  }
}

/// Layers that are read one by one: some ten microseconds each, while a process waits. No published model is near.
constexpr std::int64_t kMostPatterned = 4096;

/// Layers one by one where a value depends on the layer, alike ones together. \param key of their number
template <typename Make>
std::vector<LayerSpec> build_stack(RowValues& x, std::int64_t layers, const char* key, const Make& make) {
  std::vector<LayerSpec> stack;
  for (std::int64_t i = 0; i < (x.by_layer() ? layers : 1) && !x.fields().failed(); ++i) {
    if (x.by_layer() && layers > kMostPatterned) {
      x.fields().problem(x.fields().place() + key + ": expected at most " + std::to_string(kMostPatterned) +
                         " where layers differ, got " + std::to_string(layers));
      break;
    }
    x.set_layer(i);
    LayerSpec layer = make();
    layer.repeat = x.by_layer() ? 1 : layers;
    add_layer(stack, std::move(layer));
  }
  return stack;
}

LayerSpec layer_of(RowValues& x, bool cross) {
  LayerSpec layer;
  layer.mixer = mixer_of(x);
  layer.mlp = mlp_of(x);
  layer.norm_params = x.value("layer_params");
  if (cross || x.flag("cross_attention")) {
    layer.cross = CrossSpec{x.positive("cross_heads"),
                            x.positive("cross_head_dim"),
                            x.value("cross_key_value_heads"),
                            x.value("cross_input"),
                            {},
                            {}};
  }
  layer.with_images = x.flag("only_with_images");
  layer.joint = static_cast<Joint>(std::clamp<std::int64_t>(x.value("joint_attention"), 0, 2));
  layer.streams = x.flag("two_streams") ? 2 : 1;
  layer.stored = x.value("stored_layers");
  return layer;
}

LayerSpec encoder_layer_of(RowValues& x) {
  LayerSpec layer;
  layer.mixer.kind = MixerKind::kAttention;
  layer.mixer.causal = false;
  layer.mixer.window = x.value("encoder_window");
  layer.mixer.heads = x.positive("encoder_heads");
  layer.mixer.kv_heads = x.positive("encoder_key_value_heads");
  layer.mixer.qk_dim = layer.mixer.v_dim = x.positive("encoder_head_dim");
  layer.mixer.weights = x.value("encoder_mixer_weights");
  layer.mixer.extra_params = x.value("encoder_mixer_params");
  layer.mlp.matrices = x.value("encoder_mlp_matrices");
  layer.mlp.width = x.positive("encoder_mlp_width");
  layer.norm_params = x.value("encoder_layer_params");
  return layer;
}

void build_encoder(RowValues& x, Architecture& spec) {
  spec.encoder = build_stack(x, x.positive("encoder_layers"), "encoder_layers", [&x] { return encoder_layer_of(x); });
  x.set_layer(0);
  spec.encoder_norm_params = x.value("encoder_final_params");
  spec.encoder_attn_extra_params = x.value("encoder_final_attention_params");
  spec.encoder_token_weights = x.value("encoder_front_weights");
}

/// Multi-token-prediction modules: layers like the last one, the projection of the two concatenated states and three
/// norms. Embedding and output matrix are shared with the main model (README_WEIGHTS of DeepSeek-V3). A checkpoint may
/// have them and a training leave them out: they are part of a step where the config says so, as Megatron's does.
void build_prediction(RowValues& x, std::int64_t layers, Architecture& spec) {
  const std::int64_t trained = x.value("trained_modules");
  spec.mtp_layers = trained > 0 ? trained : x.value("prediction_modules");
  if (spec.mtp_layers <= 0 || x.fields().failed()) return;
  if (spec.mtp_layers > 1024) {
    x.fields().problem(x.fields().place() + (trained > 0 ? "mtp_num_layers" : "num_nextn_predict_layers") +
                       ": expected at most 1024, got " + std::to_string(spec.mtp_layers));
    return;
  }
  // A module's place is behind the last layer; a list of layers does not say it.
  const bool listed = x.fields().find("layer_types") != nullptr || x.fields().find("mlp_layer_types") != nullptr;
  x.set_layer(listed || trained > 0 ? layers - 1 : layers);
  Architecture one;
  one.d_model = spec.d_model;
  one.tied = true;
  LayerSpec last;
  last.mixer = mixer_of(x);
  last.mlp = mlp_of(x);
  last.norm_params = x.value("layer_params");
  one.layers.push_back(last);
  spec.mtp_params = (count_params(one).text_total() + x.value("prediction_module_params")) * spec.mtp_layers;
  if (trained > 0) {
    last.repeat = trained;
    spec.trained_mtp = last;
  } else {
    spec.not_counted.push_back("num_nextn_predict_layers: prediction modules are not counted; \"mtp_num_layers\": " +
                               std::to_string(spec.mtp_layers) + " in the config counts them in training");
  }
}

/// An encoder-decoder of which only the encoder runs.
void keep_encoder_alone(RowValues& x, Architecture& spec) {
  spec.layers = std::move(spec.encoder);
  spec.encoder.clear();
  spec.d_model = spec.encoder_d();
  spec.encoder_width = 0;
  spec.norm_params = spec.encoder_norm_params;
  spec.attn_extra_params = spec.encoder_attn_extra_params;
  spec.encoder_norm_params = spec.encoder_attn_extra_params = {};
  spec.other_matmul_weights += spec.encoder_token_weights;
  spec.encoder_token_weights = {};
  if (x.defines("encoder_position_params")) spec.position_params = x.value("encoder_position_params");
  spec.is_encoder = true;
}

/// The head behind the layers, by the class in `architectures`.
void add_head(RowValues& x, ModelHead head, Architecture& spec) {
  if (head == ModelHead::kPreTraining &&
      (!x.defines("pretraining_token_weights") || x.value("pretraining_head") == 2)) {
    if (spec.is_encoder) {
      spec.assumed.push_back("architectures: what *ForPreTraining has behind this encoder is not known; counted as " +
                             std::string("the family's own class"));
    }
    head = ModelHead::kOwn;
  }
  const bool own = head == ModelHead::kOwn || (head == ModelHead::kPreTraining && x.flag("pretraining_head"));
  spec.tied = true;
  if (own) {
    spec.vocab = x.value("vocabulary");
    spec.tied = x.flag("tied");
    spec.other_matmul_weights += x.value("head_token_weights");
    spec.lm_head_extra_params = x.value("head_params");
    spec.norm_params += x.value("head_norm_params");
    spec.other_extra_params = x.value("head_other_params");
  }
  spec.other_extra_params += x.value("front_params");
  switch (head) {
    case ModelHead::kOwn:
    case ModelHead::kBare:
      break;
    case ModelHead::kPreTraining:
      spec.other_matmul_weights += x.value("pretraining_token_weights");
      spec.sequence_weights += x.value("pretraining_sequence_weights");
      spec.other_extra_params += x.value("pretraining_params");
      break;
    case ModelHead::kNone:
    case ModelHead::kEncoder:
      spec.sequence_weights += x.value("pooler_weights");
      spec.other_extra_params += x.value("pooler_params");
      break;
    case ModelHead::kSequence:
      spec.other_matmul_weights += x.value("sequence_classifier_token_weights");
      spec.sequence_weights += x.value("sequence_classifier_weights");
      spec.other_extra_params += x.value("sequence_classifier_params");
      break;
    case ModelHead::kToken:
      spec.other_matmul_weights += x.value("token_classifier_weights");
      spec.other_extra_params += x.value("token_classifier_params");
      break;
  }
}

void build_text_row(RowValues& x, ModelHead head, Architecture& spec) {
  const Fields& f = x.fields();
  spec.d_model = x.positive("width");
  const std::int64_t layers = x.positive("layers");
  const bool encoder_decoder = x.value("encoder_layers") > 0;
  // A config of sparse attention under the name of a relative without it: the pairs would be all, and too many.
  const std::vector<std::string_view> keys = x.row().keys();
  if (f.written("index_topk") != nullptr && std::find(keys.begin(), keys.end(), "index_topk") == keys.end()) {
    f.problem(f.place() + "index_topk: sparse attention, which " + spec.family +
              " has not; use the model's own type, such as deepseek_v32");
  }
  if (!encoder_decoder && f.flag("add_cross_attention", false))
    f.problem(f.place() + "add_cross_attention: attention to the encoder of another model is not known");
  if (const json* pruned = f.find("pruned_heads"); pruned != nullptr && pruned->is_object() && !pruned->empty())
    f.problem(f.place() + "pruned_heads: layers with fewer heads than the others are not known");
  if (f.failed()) return;
  spec.is_encoder = x.flag("encoder_only");
  if (encoder_decoder) build_encoder(x, spec);
  spec.encoder_width = x.value("encoder_width");
  spec.context_token_weights = x.value("context_token_weights");
  check_layer_types(x, layers);
  spec.layers = build_stack(x, layers, "num_hidden_layers", [&] { return layer_of(x, encoder_decoder); });
  for (LayerSpec& layer : spec.layers) layer.stored = std::min(layer.stored, layer.repeat);
  spec.image_context =
      std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) { return layer.with_images; });
  spec.embed_width = x.value("embedding_width");
  spec.embed_params = x.value("embedding_params");
  spec.position_params = x.value("position_params");
  spec.norm_params = x.value("final_params");
  spec.attn_extra_params = x.value("final_attention_params");
  spec.max_positions = x.value("max_positions");
  spec.other_matmul_weights = x.value("token_weights");
  spec.sequence_weights = x.value("sequence_weights");
  spec.front_weights = x.value("front_token_weights");
  spec.front_sequence_weights = x.value("front_sequence_weights");
  build_prediction(x, layers, spec);
  if (encoder_decoder &&
      (head == ModelHead::kEncoder || (head == ModelHead::kToken && x.flag("token_classifier_on_encoder")))) {
    keep_encoder_alone(x, spec);
    if (head == ModelHead::kEncoder) head = ModelHead::kNone;
  }
  add_head(x, head, spec);
  if (x.flag("assumes")) spec.assumed.emplace_back(x.text("assumption"));
  if (x.flag("leaves_out")) spec.not_counted.emplace_back(x.text("not_counted"));
}

/// True for what says nothing new under any key: an option that is off.
bool says_nothing(const json& value) {
  return value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

/// Refuses a key of `object` that the row neither reads nor lists as one that says nothing about FLOP: a format whose
/// files have no model type is easily taken for another one. \param path of the object: empty, or `moe.`
void check_keys(const RowValues& x, const json& object, const std::string& path) {
  std::vector<std::string_view> ignored = words_of(x.row().text("ignored_keys"));
  ignored.insert(ignored.end(), {"model_type", "architectures", "torch_dtype", "dtype", "quantization_config"});
  const std::vector<std::string_view> read = x.row().keys();
  for (const auto& [name, value] : object.items()) {
    const std::string key = path + name;
    const auto inside = [&](std::string_view one) { return one.starts_with(key + "."); };
    if (value.is_object() && std::any_of(read.begin(), read.end(), inside)) {
      check_keys(x, value, key + ".");
      continue;
    }
    const auto matches = [&](std::string_view one) {
      return one.ends_with("*") ? key.starts_with(one.substr(0, one.size() - 1)) : key == one;
    };
    if (says_nothing(value) || std::find(read.begin(), read.end(), key) != read.end() ||
        std::any_of(ignored.begin(), ignored.end(), matches))
      continue;
    const auto nearest = std::min_element(read.begin(), read.end(), [&](std::string_view a, std::string_view b) {
      return edit_distance(key, a) < edit_distance(key, b);
    });
    x.fields().problem(x.fields().place() + printable(key) + ": a key that " + std::string(x.row().type) +
                       " does not know (nearest: " + std::string(nearest == read.end() ? "none" : *nearest) +
                       "); remove it if it says nothing about FLOP, or name the model_type");
    return;
  }
}

/// Gives what the config says about every row, and refuses a variant that the row does not support.
void prepare(RowValues& x) {
  x.give("labels", labels_of(x.fields()));
  if (x.defines("ignored_keys")) check_keys(x, x.fields().object(), "");
  if (x.flag("supported")) return;
  std::string keys;
  for (const std::string& key : x.keys_against("supported")) keys += (keys.empty() ? "" : ", ") + printable(key);
  x.fields().problem(x.fields().place() + "model_type: this variant of " + std::string(x.row().type) + " is not known" +
                     (keys.empty() ? std::string() : " (" + keys + ")"));
}

/// nullptr: it cannot be read, which is then a problem of the config.
const FamilyRow* read_row(std::string_view type, const Fields& f) {
  const Result<const FamilyRow*> row = FamilyTable::built_in().row(type);
  if (!row) f.problem(f.place() + "model_type: " + row.error().message);
  return row ? *row : nullptr;
}

/// The row of a `model_type`; nullptr: none, or one that cannot be read.
const FamilyRow* row_of(std::string_view type, const Fields& f) {
  return FamilyTable::built_in().has(type) ? read_row(type, f) : nullptr;
}

/// The config's sound encoder: its parameters are stored, what it computes is not counted, and that is said.
void add_audio(RowValues& x, const Fields& f, Architecture& spec) {
  const std::string_view key = x.text("audio_key");
  if (key.empty() || (f.find(key) == nullptr && class_defaults(x.text("audio_type")).empty())) return;
  const Fields part = f.child(key);
  const FamilyRow* row = row_of(part.text_or("model_type", x.text("audio_type")), f);
  if (row == nullptr || row->kind != RowKind::kTower) row = row_of(x.text("audio_type"), f);
  if (row == nullptr) return;
  const Fields filled = part.with_defaults(class_defaults(row->type));
  RowValues t(*row, filled);
  prepare(t);
  spec.other_extra_params += tower_of(t).params;
  spec.other_extra_params += x.value("audio_params");
  spec.not_counted.push_back(std::string(key) + ": what the sound encoder computes is not counted");
}

/// Whether the output matrix is the input table. The outer class is the one that ties, by its config or its default;
/// some ask the decoder's config first, or tie where either says so.
bool is_tied(const FamilyRow& row, const Fields& f, RowValues& x, const Fields& inner, bool of_inner) {
  const std::int64_t way = x.value("tie_rule");
  if (way == 1 && inner.find("tie_word_embeddings") != nullptr) return of_inner;
  const json& defaults = class_defaults(row.type);
  const bool said = f.find("tie_word_embeddings") != nullptr;
  // A class that is not in the library has no default; its decoder's word holds.
  if (!said && defaults.empty()) return of_inner;
  const bool outer = f.flag("tie_word_embeddings", defaults.value("tie_word_embeddings", false));
  if (way == 3) return of_inner;
  return way == 2 ? outer || of_inner : outer;
}

/// The row of the image tower that the config has under `key`; nullptr: it is not known.
const FamilyRow* tower_row_of(RowValues& x, const Fields& tower, std::string& type) {
  const FamilyRow& row = x.row();
  const std::string usual(x.text("tower_type"));
  type = tower.text_or("model_type", usual);
  if (type.empty() || x.flag("fixed_tower")) type = usual;
  const FamilyRow* found = row_of(type, x.fields());
  if (found == nullptr || found->kind == RowKind::kComposite || type == row.type) {
    // Older files name the whole model there (`qwen2_vl`), or an invented name.
    if (type == row.type || found != nullptr) type = usual;
    found = row_of(type, x.fields());
  }
  return found != nullptr && found->kind == RowKind::kTower ? found : nullptr;
}

/// The image's half of a pair of towers, with the classifier behind it, is all of the model.
void keep_image_classifier(VisionSpec v, std::int64_t labels, Architecture& spec) {
  Architecture alone;
  alone.family = std::move(spec.family);
  alone.assumed = std::move(spec.assumed);
  alone.d_model = v.width;
  alone.is_encoder = alone.tied = true;
  v.image_flop += Count(2) * v.width * labels;
  alone.other_extra_params = v.params + Count(v.width) * labels + labels;
  v.params = v.projector_params = 0;
  alone.vision = std::move(v);
  spec = std::move(alone);
}

/// \param pair an image goes with each text \param image_only nothing but the image is classified
void add_tower(RowValues& x, bool pair, bool image_only, Architecture& spec) {
  const Fields& f = x.fields();
  const std::string_view key = x.text("tower_key");
  if (x.flag("tower_optional") && f.find(key) == nullptr) return;
  // Most classes take the tower's own defaults; some have others, and a class that is not in the library may have any.
  if ((x.flag("tower_required") || class_defaults(x.row().type).empty()) && f.find(key) == nullptr)
    return f.wrong(key, "the image tower's config", nullptr);
  const Fields tower = f.child(key);
  std::string type;
  const FamilyRow* tower_row = tower_row_of(x, tower, type);
  if (tower_row == nullptr) {
    spec.assumed.push_back(std::string(key) + ".model_type: the tower \"" + type +
                           "\" is not known; only the text model is counted");
    return;
  }
  const Fields filled = tower.with_defaults(class_defaults(type));
  RowValues t(*tower_row, filled);
  prepare(t);
  VisionSpec v = tower_of(t);
  if (f.failed()) return;
  if (image_only) return keep_image_classifier(std::move(v), labels_of(f), spec);
  x.give("tower_width", v.width);
  x.give("tower_merge", v.merge);
  x.give("tower_patches", v.patches);
  x.give("tower_layers", v.layers);
  x.give("tower_params", v.params.fits() ? static_cast<std::int64_t>(v.params.u64()) : 0);
  add_projector(x, v);
  if (const std::int64_t merge = x.value("merge"); merge > 1) v.merge = merge;
  v.pooled_tokens = x.value("pooled_tokens");
  if (pair) {
    spec.image_per_sequence = true;
    spec.is_encoder = true;
    spec.sequence_weights += x.value("text_sequence_weights");
  }
  v.projector_flop = x.value("image_flop");
  v.projector_core = x.value("image_attention_flop");
  v.projector_params += x.value("image_params");
  v.params += x.value("image_params") + x.value("second_tower_params");
  spec.vision = std::move(v);
}

void build_composite(const FamilyRow& row, const Fields& f, ModelHead head, Architecture& spec) {
  RowValues x(row, f);
  prepare(x);
  const std::string_view text = x.text("text_key");
  const Fields inner = f.child(text);
  const bool nested = f.find(text) != nullptr;
  const Fields& source = nested ? inner : f;
  const std::string type = nested ? inner.text_or("model_type", x.text("text_type")) : std::string(x.text("text_type"));
  const bool pair = x.flag("image_with_each_text");
  const ModelHead inner_head = x.flag("bare_text")                  ? ModelHead::kBare
                               : pair || x.flag("no_output_matrix") ? ModelHead::kNone
                               : x.flag("own_head")                 ? ModelHead::kOwn
                                                                    : head;
  read_typed(source, type, nested && x.flag("text_defaults"), inner_head, spec);
  if (head == ModelHead::kOwn && nested) spec.tied = is_tied(row, f, x, source, spec.tied);
  if (head == ModelHead::kOwn && x.flag("never_tied")) spec.tied = false;
  if (f.failed()) return;
  x.give("text_width", spec.d_model);
  spec.other_matmul_weights += x.value("text_token_weights");
  add_audio(x, f, spec);
  if (f.failed()) return;
  if (!x.text("not_counted").empty()) spec.not_counted.emplace_back(x.text("not_counted"));
  if (x.text("tower_key").empty())
    spec.other_extra_params += x.value("projector_params");
  else
    add_tower(x, pair, pair && head == ModelHead::kSequence, spec);
}

}  // namespace

std::string class_of(const Fields& f) {
  const json* list = f.find("architectures");
  const bool has = list != nullptr && list->is_array() && !list->empty() && list->front().is_string();
  return has ? list->front().get<std::string>() : std::string();
}

void build_row(std::string_view type, const Fields& f, ModelHead head, Architecture& spec) {
  const FamilyRow* row = read_row(type, f);
  if (row == nullptr) return;
  if (row->kind == RowKind::kComposite) {
    build_composite(*row, f, head, spec);
    return;
  }
  // A tower whose keys lie inside another config: the row says under which name.
  const std::string_view inside = row->text("inside");
  const Fields part = inside.empty() ? f : f.child(inside);
  const Fields filled = inside.empty() ? f : part.with_defaults(class_defaults(row->like));
  RowValues x(*row, filled);
  prepare(x);
  if (row->kind == RowKind::kText) {
    build_text_row(x, head, spec);
    return;
  }
  if (x.flag("only_a_part")) {
    f.problem(f.place() + "model_type: " + std::string(type) + " is known as a part of other models, not alone");
    return;
  }
  if (x.flag("assumes")) spec.assumed.emplace_back(x.text("assumption"));
  VisionSpec v = tower_of(x);
  if (f.failed()) return;
  // The class that an image classifier is published with, or the bare tower with its pooler, if the config has one.
  const bool classifier = head == ModelHead::kSequence, bare = head == ModelHead::kNone;
  if (classifier || bare) v.image_flop += x.value(classifier ? "classifier_flop" : "pooler_flop");
  spec.d_model = v.width;
  spec.is_encoder = true;
  spec.tied = true;
  spec.other_extra_params = v.params;
  if (classifier || bare) spec.other_extra_params += x.value(classifier ? "classifier_params" : "pooler_params");
  v.params = 0;
  spec.vision = v;
}

}  // namespace mfu

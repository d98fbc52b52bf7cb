#include "core/families/family_rows.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/families/class_defaults.h"
#include "core/families/expression.h"
#include "core/families/family_bases.h"
#include "core/families/family_vision.h"

namespace mfu {
namespace {

using nlohmann::json;

constexpr FamilyRow kRows[] = {
#include "core/families/families.inc"
#include "core/families/families_encoders.inc"
#include "core/families/families_vision.inc"
};

std::string_view base_text(std::string_view name) noexcept {
  for (const RowBase& base : kRowBases) {
    if (base.name == name) return base.text;
  }
  return {};
}

/// The definitions of a row, the most general first.
void define_all(const FamilyRow& row, Expressions& x, int depth = 0) {
  if (depth > 8) return;
  if (row.like.starts_with("_")) {
    if (row.like == "_dynamic") {
      x.define(base_text("_tower"));
    } else if (row.like != "_tower" && row.like != "_composite") {
      x.define(kTextBase);
    }
    x.define(base_text(row.like));
  } else if (const FamilyRow* relative = find_row(row.like)) {
    define_all(*relative, x, depth + 1);
  }
  x.define(row.text);
}

/// How many outputs a classifier has: `id2label`, else `num_labels`, else two, as transformers has it.
std::int64_t labels_of(const Fields& f) {
  const json* list = f.find("architectures");
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string() &&
      list->front().get_ref<const std::string&>().ends_with("ForMultipleChoice"))
    return 1;
  const json* names = f.find("id2label");
  if (names != nullptr && names->is_object() && !names->empty()) return static_cast<std::int64_t>(names->size());
  return f.integer_or("num_labels", 2, 1);
}

MixerSpec mixer_of(Expressions& x) {
  MixerSpec m;
  const std::int64_t kind = x.value("kind");
  m.kind = static_cast<MixerKind>(kind);
  m.causal = x.value("causal") != 0;
  m.weights = x.value("aw");
  m.conv_weights = x.value("cw");
  m.extra_params = x.value("attx");
  m.state_flop = x.value("sf");
  m.state_elements = x.value("se");
  switch (m.kind) {
    case MixerKind::kNone:
      break;
    case MixerKind::kAttention:
    case MixerKind::kLatent:
      m.heads = x.positive("H");
      m.kv_heads = m.kind == MixerKind::kLatent ? 1 : x.positive("K");
      m.qk_dim = x.positive("h");
      m.v_dim = x.positive("hv");
      m.window = x.value("window");
      m.chunk = x.value("chunk");
      m.sparse_block = x.value("sb");
      m.random_blocks = x.value("sr");
      m.top_keys = x.value("topk");
      m.index_heads = x.value("ih");
      m.index_dim = x.value("id");
      m.index_plain = x.value("ip") != 0;
      m.compress = x.value("comp");
      m.key_values = static_cast<KeyValues>(std::clamp<std::int64_t>(x.value("kv"), 0, 3));
      m.position_rows = x.value("pr");
      m.position_scores = x.value("ps");
      m.position_projections = x.value("pp");
      m.positions_grow = x.value("pg") != 0;
      m.positions_per_sequence = x.value("pg") == 2;
      m.q_rank = x.value("qr");
      m.o_rank = x.value("or");
      m.o_groups = x.value("og");
      if (m.kind == MixerKind::kLatent) {
        m.kv_rank = x.positive("kvr");
        m.nope_dim = x.value("nope");
        m.rope_dim = x.value("rope");
      } else {
        m.output_gate = x.value("gate") != 0;
        if (!x.fields().failed() && m.heads % m.kv_heads != 0) {
          x.fields().wrong("num_key_value_heads", "a divisor of the " + std::to_string(m.heads) + " query heads",
                           x.fields().find("num_key_value_heads") != nullptr
                               ? x.fields().find("num_key_value_heads")
                               : x.fields().default_of("num_key_value_heads"));
        }
      }
      break;
    case MixerKind::kMamba1:
      m.inner = x.positive("mi");
      m.state = x.positive("ms");
      m.dt_rank = x.positive("mr");
      break;
    case MixerKind::kMamba2:
      m.heads = x.positive("mh");
      m.inner = x.positive("mi");
      m.state = x.positive("ms");
      m.groups = x.positive("mg");
      m.conv_kernel = x.positive("mc");
      break;
    case MixerKind::kDeltaNet:
      m.heads = x.positive("dkh");
      m.qk_dim = x.positive("dk");
      m.kv_heads = x.positive("dvh");
      m.v_dim = x.positive("dv");
      m.conv_kernel = x.value("mc");
      break;
    case MixerKind::kLinear:
      break;
  }
  return m;
}

MlpSpec mlp_of(Expressions& x) {
  MlpSpec m;
  m.matrices = x.value("m");
  if (x.value("moe") == 0) {
    m.width = x.value("f");
    if (m.width > 0) m.extra_params = x.value("dense_x");
    return m;
  }
  m.experts = x.positive("E");
  m.top_k = x.positive("k");
  if (!x.fields().failed() && m.top_k > m.experts) {
    x.fields().problem(x.fields().place() + "num_experts_per_tok: expected at most the " + std::to_string(m.experts) +
                       " experts, got " + std::to_string(m.top_k));
  }
  m.expert_width = x.positive("fe");
  m.expert_input = x.value("ei");
  m.shared_width = x.value("fs");
  m.shared_gate = x.value("sg") != 0;
  m.router_extra_params = x.value("rx");
  m.shared_extra_params = x.value("sx");
  m.expert_extra_params = x.value("ex");
  return m;
}

/// Each entry of `layer_types` must be a word that the row speaks of: a layer of a kind that it does not know is never
/// taken for a plain one.
void check_layer_types(Expressions& x, std::int64_t layers) {
  const Fields& f = x.fields();
  const json* types = f.find("layer_types");
  if (types == nullptr || f.failed()) return;
  if (!types->is_array() || static_cast<std::int64_t>(types->size()) < layers) {
    f.wrong("layer_types", "a list of " + std::to_string(layers) + " layer types", types);
    return;
  }
  for (const json& type : *types) {
    const std::string word = type.is_string() ? type.get<std::string>() : std::string();
    if (word == "full_attention" || word == "attention" || x.speaks_of(word)) continue;
    f.wrong("layer_types", "layer types that this family has, such as full_attention", &type);
    return;
  }
}

/// Layers that are read one by one, which takes some ten microseconds each, in a process that waits. No published model
/// comes near.
constexpr std::int64_t kMostPatterned = 4096;

void refuse_patterned(const Fields& f, const char* key, std::int64_t layers) {
  f.problem(f.place() + key + ": expected at most " + std::to_string(kMostPatterned) + " where layers differ, got " +
            std::to_string(layers));
}

/// Layers one by one where any value depends on the layer, alike ones together.
void build_layers(Expressions& x, std::int64_t layers, bool cross, std::vector<LayerSpec>& out) {
  check_layer_types(x, layers);
  for (std::int64_t i = 0; i < (x.by_layer() ? layers : 1) && !x.fields().failed(); ++i) {
    if (x.by_layer() && layers > kMostPatterned) return refuse_patterned(x.fields(), "num_hidden_layers", layers);
    x.set_layer(i);
    LayerSpec layer;
    layer.mixer = mixer_of(x);
    layer.mlp = mlp_of(x);
    layer.norm_params = x.value("layer");
    if (cross || x.value("cross") != 0) {
      layer.cross = CrossSpec{x.positive("xH"), x.positive("xh"), x.value("xK"), x.value("xi"), {}, {}};
    }
    layer.with_images = x.value("wi") != 0;
    layer.joint = static_cast<Joint>(std::clamp<std::int64_t>(x.value("joint"), 0, 2));
    layer.streams = x.value("two") != 0 ? 2 : 1;
    const auto alike = std::find_if(out.begin(), out.end(), [&](const LayerSpec& known) {
      layer.repeat = known.repeat;
      layer.stored = known.stored;
      return known == layer;
    });
    if (alike != out.end()) {
      ++alike->repeat;
    } else {
      layer.repeat = x.by_layer() ? 1 : layers;
      layer.stored = x.value("stored");
      out.push_back(layer);
    }
  }
  for (LayerSpec& layer : out) layer.stored = std::min(layer.stored, layer.repeat);
}

void build_encoder(Expressions& x, Architecture& spec) {
  const std::int64_t layers = x.positive("eL");
  std::map<std::int64_t, std::int64_t> windows;  // width > layers that have it
  for (std::int64_t i = 0; i < layers && !x.fields().failed(); ++i) {
    x.set_layer(i);
    const bool alike_before = x.by_layer();
    const std::int64_t window = x.value("ewin");
    if (!alike_before && !x.by_layer()) {
      windows[window] = layers;
      break;
    }
    ++windows[window];
    if (layers > kMostPatterned) return refuse_patterned(x.fields(), "encoder_layers", layers);
  }
  x.set_layer(0);
  for (const auto& [window, repeat] : windows) {
    LayerSpec layer;
    layer.repeat = repeat;
    layer.mixer.kind = MixerKind::kAttention;
    layer.mixer.causal = false;
    layer.mixer.window = window;
    layer.mixer.heads = x.positive("eH");
    layer.mixer.kv_heads = x.positive("eK");
    layer.mixer.qk_dim = layer.mixer.v_dim = x.positive("eh");
    layer.mixer.weights = x.value("eaw");
    layer.mixer.extra_params = x.value("eattx");
    layer.mlp.matrices = x.value("em");
    layer.mlp.width = x.positive("ef");
    layer.norm_params = x.value("elayer");
    spec.encoder.push_back(layer);
  }
  spec.encoder_norm_params = x.value("eout");
  spec.encoder_attn_extra_params = x.value("eouta");
  spec.encoder_token_weights = x.value("efront");
}

/// Multi-token-prediction modules: layers like the last one, the projection of the two concatenated states and three
/// norms. Embedding and output matrix are shared with the main model (README_WEIGHTS of DeepSeek-V3).
void build_prediction(Expressions& x, std::int64_t layers, Architecture& spec) {
  spec.mtp_layers = x.value("mtp");
  if (spec.mtp_layers <= 0 || x.fields().failed()) return;
  if (spec.mtp_layers > 1024) {
    x.fields().problem(x.fields().place() + "num_nextn_predict_layers: expected at most 1024, got " +
                       std::to_string(spec.mtp_layers));
    return;
  }
  // The module's place is behind the last layer; a list of layers does not say it.
  const bool listed = x.fields().find("layer_types") != nullptr || x.fields().find("mlp_layer_types") != nullptr;
  x.set_layer(listed ? layers - 1 : layers);
  Architecture one;
  one.d_model = spec.d_model;
  one.tied = true;
  LayerSpec last;
  last.mixer = mixer_of(x);
  last.mlp = mlp_of(x);
  last.norm_params = x.value("layer");
  one.layers.push_back(last);
  spec.mtp_params = (count_params(one).text_total() + x.value("mtpx")) * spec.mtp_layers;
}

void build_text_row(Expressions& x, ModelHead head, Architecture& spec) {
  const Fields& f = x.fields();
  spec.d_model = x.positive("d");
  const std::int64_t layers = x.positive("L");
  const bool encoder_decoder = x.value("eL") > 0;
  // A config of sparse attention under the name of a relative without it: the pairs would be all, and too many.
  if (f.written("index_topk") != nullptr && !x.speaks_of("index_topk")) {
    f.problem(f.place() + "index_topk: sparse attention, which " + spec.family +
              " has not; use the model's own type, such as deepseek_v32");
  }
  if (!encoder_decoder && f.flag("add_cross_attention", false)) {
    f.problem(f.place() + "add_cross_attention: attention to the encoder of another model is not known");
  }
  if (const json* pruned = f.find("pruned_heads"); pruned != nullptr && pruned->is_object() && !pruned->empty()) {
    f.problem(f.place() + "pruned_heads: layers with fewer heads than the others are not known");
  }
  if (f.failed()) return;
  spec.is_encoder = x.value("enc") != 0;
  if (encoder_decoder) build_encoder(x, spec);
  spec.encoder_width = x.value("eD");
  spec.context_token_weights = x.value("ctx");
  build_layers(x, layers, encoder_decoder, spec.layers);
  spec.image_context =
      std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) { return layer.with_images; });
  spec.embed_width = x.value("io");
  spec.embed_params = x.value("emb");
  spec.position_params = x.value("pos");
  spec.norm_params = x.value("out");
  spec.attn_extra_params = x.value("outa");
  spec.max_positions = x.value("max");
  spec.other_matmul_weights = x.value("tok");
  spec.sequence_weights = x.value("seq");
  spec.front_weights = x.value("ftok");
  spec.front_sequence_weights = x.value("fseq");
  build_prediction(x, layers, spec);
  if (encoder_decoder && (head == ModelHead::kEncoder || (head == ModelHead::kToken && x.value("tc_enc") != 0))) {
    spec.layers = std::move(spec.encoder);
    spec.encoder.clear();
    spec.d_model = spec.encoder_d();
    spec.encoder_width = 0;
    spec.norm_params = spec.encoder_norm_params;
    spec.attn_extra_params = spec.encoder_attn_extra_params;
    spec.encoder_norm_params = spec.encoder_attn_extra_params = {};
    spec.other_matmul_weights += spec.encoder_token_weights;
    spec.encoder_token_weights = {};
    if (x.defines("epos")) spec.position_params = x.value("epos");
    spec.is_encoder = true;
    if (head == ModelHead::kEncoder) head = ModelHead::kNone;
  }
  if (head == ModelHead::kPreTraining && (!x.defines("pre_tok") || x.value("pre_lm") == 2)) {
    if (spec.is_encoder) {
      spec.assumed.push_back("architectures: what *ForPreTraining has behind this encoder is not known; counted as " +
                             std::string("the family's own class"));
    }
    head = ModelHead::kOwn;
  }
  const bool own = head == ModelHead::kOwn || (head == ModelHead::kPreTraining && x.value("pre_lm") != 0);
  spec.tied = true;
  if (own) {
    spec.vocab = x.value("V");
    spec.tied = x.value("tied") != 0;
    spec.other_matmul_weights += x.value("htok");
    spec.lm_head_extra_params = x.value("hx");
    spec.norm_params += x.value("hn");
    spec.other_extra_params = x.value("ho");
  }
  spec.other_extra_params += x.value("fx");
  switch (head) {
    case ModelHead::kOwn:
    case ModelHead::kBare:
      break;
    case ModelHead::kPreTraining:
      spec.other_matmul_weights += x.value("pre_tok");
      spec.sequence_weights += x.value("pre_seq");
      spec.other_extra_params += x.value("pre_x");
      break;
    case ModelHead::kNone:
    case ModelHead::kEncoder:
      spec.sequence_weights += x.value("base_seq");
      spec.other_extra_params += x.value("base_x");
      break;
    case ModelHead::kSequence:
      spec.other_matmul_weights += x.value("cls_tok");
      spec.sequence_weights += x.value("cls_seq");
      spec.other_extra_params += x.value("cls_x");
      break;
    case ModelHead::kToken:
      spec.other_matmul_weights += x.value("tc_tok");
      spec.other_extra_params += x.value("tc_x");
      break;
  }
  if (x.defines("guess") && x.value("guess") != 0) spec.assumed.emplace_back(x.text("guessed"));
}

/// The definitions of `row` with what only a classifier needs.
void prepare(const FamilyRow& row, Expressions& x) {
  define_all(row, x);
  x.give("labels", labels_of(x.fields()));
  if (x.defines("known") && x.value("known") == 0) {
    std::string keys;  // of the config, that the row's condition speaks of
    for (const auto& [key, value] : x.fields().object().items()) {
      if (key.size() > 3 && x.text("known").find(key) != std::string_view::npos)
        keys += (keys.empty() ? "" : ", ") + printable(key);
    }
    x.fields().problem(x.fields().place() + "model_type: this variant of " + std::string(row.type) + " is not known" +
                       (keys.empty() ? std::string() : " (" + keys + ")"));
  }
}

/// The config's sound encoder: its parameters are stored, what it computes is not counted, and that is said.
void add_audio(Expressions& x, const Fields& f, Architecture& spec) {
  const std::string_view key = x.text("audio");
  if (key == "none" || (f.find(key) == nullptr && class_defaults(x.text("audio_type")).empty())) return;
  const Fields part = f.child(key);
  const FamilyRow* row = find_row(part.text_or("model_type", x.text("audio_type")));
  if (row == nullptr || kind_of(*row) != RowKind::kTower) row = find_row(x.text("audio_type"));
  Fields filled = part.with_defaults(class_defaults(row->type));
  Expressions t({}, filled);
  prepare(*row, t);
  spec.other_extra_params += tower_of(t).params;
  spec.other_extra_params += x.value("ax");
  spec.not_counted.push_back(std::string(key) + ": what the sound encoder computes is not counted");
}

/// Whether the output matrix is the input table. The outer class is the one that ties, by its config or its default;
/// some ask the decoder's config first, or tie where either says so.
bool is_tied(const FamilyRow& row, const Fields& f, Expressions& x, const Fields& inner, bool of_inner) {
  const std::int64_t way = x.value("inner_tie");
  if (way == 1 && inner.find("tie_word_embeddings") != nullptr) return of_inner;
  const json& defaults = class_defaults(row.type);
  const bool said = f.find("tie_word_embeddings") != nullptr;
  // A class that is not in the library has no default of its own; its decoder's word stands.
  if (!said && defaults.empty()) return of_inner;
  const bool outer = f.flag("tie_word_embeddings", defaults.value("tie_word_embeddings", false));
  if (way == 3) return of_inner;
  return way == 2 ? outer || of_inner : outer;
}

void build_composite(const FamilyRow& row, const Fields& f, ModelHead head, Architecture& spec) {
  Expressions x({}, f);
  prepare(row, x);
  const std::string_view text = x.text("text"), vision = x.text("vision");
  const Fields inner = f.child(text);
  const bool nested = f.find(text) != nullptr;
  const Fields& source = nested ? inner : f;
  const std::string type = nested ? inner.text_or("model_type", x.text("text_type")) : std::string(x.text("text_type"));
  const bool pair = x.value("pair") != 0;
  const bool image_only = pair && head == ModelHead::kSequence;
  const ModelHead inner_head = x.value("bare") != 0               ? ModelHead::kBare
                               : pair || x.value("headless") != 0 ? ModelHead::kNone
                               : x.value("own_head") != 0         ? ModelHead::kOwn
                                                                  : head;
  read_typed(source, type, nested, inner_head, spec);
  if (head == ModelHead::kOwn && nested) spec.tied = is_tied(row, f, x, source, spec.tied);
  if (head == ModelHead::kOwn && x.value("untied") != 0) spec.tied = false;
  if (f.failed()) return;
  x.give("td", spec.d_model);
  spec.other_matmul_weights += x.value("ttok");
  add_audio(x, f, spec);
  if (f.failed()) return;
  if (x.defines("left_out")) spec.not_counted.emplace_back(x.text("left_out"));
  if (vision == "none") {
    spec.other_extra_params += x.value("jx");
    return;
  }
  if (x.value("lone") != 0 && f.find(vision) == nullptr) return;
  // Most classes take the tower's own defaults; some have others, and a class that is not in the library may have any.
  if ((x.value("ask") != 0 || class_defaults(row.type).empty()) && f.find(vision) == nullptr) {
    f.wrong(vision, "the image tower's config", nullptr);
    return;
  }
  const Fields tower = f.child(vision);
  std::string tower_type = tower.text_or("model_type", x.text("vision_type"));
  if (tower_type.empty() || x.value("fixed") != 0) tower_type = std::string(x.text("vision_type"));
  const FamilyRow* tower_row = find_row(tower_type);
  if (tower_row == nullptr || kind_of(*tower_row) == RowKind::kComposite || tower_type == row.type) {
    // Older files name the whole model there (`qwen2_vl`), or a name of their own.
    if (tower_type == row.type || tower_row != nullptr) tower_type = std::string(x.text("vision_type"));
    tower_row = find_row(tower_type);
  }
  if (tower_row == nullptr || kind_of(*tower_row) != RowKind::kTower) {
    spec.assumed.push_back(std::string(vision) + ".model_type: the tower \"" + tower_type +
                           "\" is not known; only the text model is counted");
    return;
  }
  Fields filled = tower.with_defaults(class_defaults(tower_type));
  Expressions t({}, filled);
  prepare(*tower_row, t);
  VisionSpec v = tower_of(t);
  if (f.failed()) return;
  if (image_only) {  // the image's classifier
    std::vector<std::string> assumed = std::move(spec.assumed);
    const std::string family = spec.family;
    spec = Architecture{};
    spec.family = family;
    spec.assumed = std::move(assumed);
    const std::int64_t labels = labels_of(f);
    spec.d_model = v.width;
    spec.is_encoder = spec.tied = true;
    v.image_flop += Count(2) * v.width * labels;
    spec.other_extra_params = v.params + Count(v.width) * labels + labels;
    v.params = 0;
    spec.vision = v;
    return;
  }
  x.give("vd", v.width);
  x.give("vm", v.merge);
  x.give("vn", v.patches);
  x.give("vL", v.layers);
  x.give("vp", v.params.fits() ? static_cast<std::int64_t>(v.params.u64()) : 0);
  add_projector(x, v);
  if (const std::int64_t merge = x.value("merge"); merge > 1) v.merge = merge;
  v.pooled_tokens = x.value("tokens");
  if (pair) {
    spec.image_per_sequence = true;
    spec.is_encoder = true;
    spec.sequence_weights += x.value("tseq");
  }
  v.image_flop += x.value("iflop");
  v.image_core += x.value("icore");
  v.params += x.value("ix");
  spec.vision = v;
}

}  // namespace

const FamilyRow* find_row(std::string_view model_type) noexcept {
  for (const FamilyRow& row : kRows) {
    if (row.type == model_type) return &row;
  }
  return nullptr;
}

const FamilyRow* generic_row() noexcept {
  static constexpr FamilyRow kGeneric{
      "generic", "_llama",
      "d=hidden_size~d_model~n_embd~dim~0; L=num_hidden_layers~n_layer~n_layers~num_layers~0;"
      "H=num_attention_heads~n_head~n_heads~num_heads~0; K=num_key_value_heads~n_kv_heads~num_kv_heads~H;"
      "E=num_experts~num_local_experts~n_routed_experts~moe_num_experts~0;"
      "k=num_experts_per_token~moe_topk~moe_k~experts_per_token~num_experts_per_tok; "
      "fe=moe_intermediate_size~expert_ffn_hidden_size~f;"
      "f=intermediate_size~ffn_hidden_size~ffn_dim~n_inner~moe_intermediate_size; "
      "qb=attention_bias~qkv_bias~use_bias~0; ob=0;"
      "fs=shared_expert_intermediate_size~((n_shared_experts~num_shared_experts~0)*fe);"
      "mo=E > 0 && i >= first_k_dense_replace~num_dense_layers~0 && (i + 1) % (decoder_sparse_step~1) == 0"};
  return &kGeneric;
}

RowKind kind_of(const FamilyRow& row) noexcept {
  const FamilyRow* r = &row;
  for (int depth = 0; depth < 8 && !r->like.starts_with("_"); ++depth) {
    const FamilyRow* next = find_row(r->like);
    if (next == nullptr) break;
    r = next;
  }
  return r->like == "_tower" || r->like == "_dynamic" ? RowKind::kTower
         : r->like == "_composite"                    ? RowKind::kComposite
                                                      : RowKind::kText;
}

std::vector<std::string_view> row_types() {
  std::vector<std::string_view> types;
  for (const FamilyRow& row : kRows) types.push_back(row.type);
  return types;
}

namespace {

/// The value of `inside` in a row's own text; empty: its keys stand at the top.
std::string_view inside_of(const FamilyRow& row) noexcept {
  constexpr std::string_view kWord = "inside=";
  const std::size_t at = row.text.find(kWord);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = row.text.substr(at + kWord.size());
  return rest.substr(0, rest.find(';'));
}

}  // namespace

void build_row(const FamilyRow& row, const Fields& f, ModelHead head, Architecture& spec) {
  if (kind_of(row) == RowKind::kComposite) {
    build_composite(row, f, head, spec);
    return;
  }
  // A tower whose keys stand inside another config: the row says under which name.
  const std::string_view inside = inside_of(row);
  const Fields part = inside.empty() ? f : f.child(inside);
  const Fields filled = inside.empty() ? f : part.with_defaults(class_defaults(row.like));
  Expressions x({}, filled);
  prepare(row, x);
  if (kind_of(row) == RowKind::kText) {
    build_text_row(x, head, spec);
    return;
  }
  if (x.defines("part")) {
    f.problem(f.place() + "model_type: " + std::string(row.type) + " is known as a part of other models, not alone");
    return;
  }
  if (x.defines("guess") && x.value("guess") != 0) spec.assumed.emplace_back(x.text("guessed"));
  VisionSpec v = tower_of(x);
  if (f.failed()) return;
  // The class that an image classifier is published with, or the bare tower with its pooler; neither where nobody says.
  const bool classifier = head == ModelHead::kSequence, bare = head == ModelHead::kNone;
  if (classifier || bare) v.image_flop += x.value(classifier ? "head_flop" : "base_flop");
  spec.d_model = v.width;
  spec.is_encoder = true;
  spec.tied = true;
  spec.other_extra_params = v.params;
  if (classifier || bare) spec.other_extra_params += x.value(classifier ? "head_x" : "base_x");
  v.params = 0;
  spec.vision = v;
}

}  // namespace mfu

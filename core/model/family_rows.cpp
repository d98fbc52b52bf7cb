#include "core/model/family_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/model/class_defaults.h"
#include "core/model/expression.h"
#include "core/model/family_vision.h"

namespace mfu {
namespace {

using nlohmann::json;

// The names that a text model's row defines. Dimensions are in elements.
// clang-format off
//
//   d L V            width, layers, rows of the output matrix
//   H K h hv         query heads, key/value heads, widths of a query/key head and of a value head
//   f m              MLP width; its matrices, 3 where it is gated
//   kind             none, attention, latent, mamba1, mamba2, delta or linear
//   gate             1: the query projection makes a gate of its own width too
//   window chunk     keys that a query sees: the last ones, or those of its own chunk
//   topk ih id ip    sparse attention: keys that the core sees, heads and width of the index; 1: its heads add up
//   comp             tokens per compressed entry, which a query sees beside its window
//   kv or og         keys and values: 0 own, 1 one projection, 2 one vector, 3 those of a layer below; output projection
//                    by groups: width of each, how many
//   aw cw sf se      further matrices and convolutions per token; state FLOP per token, state elements per sequence
//   causal enc       1: causal; 1: an encoder alone
//   moe E k fe fs    1: this layer has experts; how many, used, their width, that of all shared ones together
//   ei               width that routed experts read, 0: d
//   sg rx ex sx      gate of the shared expert; parameters besides matrices of router, one expert, shared experts
//   layer            parameters of a layer that are no matrix, but those of the next two lines
//   dense_x          biases of a dense MLP
//   attx             biases and vectors of the mixer
//   tied io emb      tied matrices; width of input table and output matrix if not d; elements of the input table
//   out outa pos     parameters outside layers: norms, of the attention, positions
//   tok seq          matrix elements per token and per sequence besides layers
//   htok hx hn ho    the head: matrix elements per token, parameters, of these its norm and others
//   cls_* tc_*       heads of classifiers of sequences and tokens: per token (_tok), sequence (_seq), parameters (_x)
//   base_*           what the bare model has behind its layers, likewise
//   labels           outputs of a classifier (given)
//   max              longest sequence
//   qr kvr nope rope latent attention: ranks of queries and of the latent, widths of a head's two parts
//   mh mi ms mg mc mr  state space: heads, inner width, state, groups, convolution, rank of the step size
//   dkh dk dvh dv    delta net: heads and widths of keys and values
//   eL eH eK eh ef em elayer eout eouta eattx eaw efront    the encoder of an encoder-decoder
//   xH xh xK xi      heads, their width, key/value heads (0: xH) and width of what is attended to (0: d) of the
//                    decoder's attention to the encoder, or a diffusion transformer's to the text
//   cross joint two  1: has it without an encoder; text tokens in the same sequence: 1 both are read after, 2 the image's;
//                    1: text tokens have matrices of their own
//   tc_enc           1: a classifier of tokens has the encoder alone
//   ctx eD           matrix elements per text token; width of the encoder, 0: d
//   mtp mtpx         prediction modules like the last layer; parameters of one besides that layer
//   stored known     copies of the weights where layers share them; 0: a variant that is refused
// clang-format on
constexpr std::string_view kTextBase = R"(
  d=hidden_size; L=num_hidden_layers; H=num_attention_heads; K=num_key_value_heads~H; h=head_dim~(d/H); hv=h;
  f=intermediate_size; m=3; V=vocab_size; tied=tie_word_embeddings~0; io=0; emb=V*(io > 0 ? io : d);
  none=0; attention=1; latent=2; mamba1=3; mamba2=4; delta=5; linear=6; kind=attention;
  qb=attention_bias~0; ob=qb; mb=0; hb=0; nd=d; norms=2; qkn=0; extra=0; max=max_position_embeddings~0;
  biases=qb*(h*(H+K) + hv*K) + ob*d; dense_x=mb*((m-1)*f + d); layer=norms*nd + qkn + extra; out=nd; pos=0; outa=0;
  gate=0; sl=0; slides=has(layer_types) ? atis(layer_types,i,sliding_attention) : sl; window=slides ? sliding_window : 0;
  chunk=0; topk=0; ih=0; id=0; ip=0; comp=0; kv=0; or=0; og=0; qr=0; ei=0; aw=0; cw=0; sf=0; se=0; causal=1; enc=0; tok=0; seq=0; htok=0; hx=hb*V; hn=0; ho=0;
  attx=kind == attention ? biases : 0;
  mo=0; moe=has(mlp_layer_types) ? atis(mlp_layer_types,i,sparse) : mo; fs=0; sg=0; rx=0; ex=0; sx=0;
  cls_tok=d*labels; cls_seq=0; cls_x=0; tc_tok=d*labels; tc_x=labels; base_seq=0; base_x=0; eL=0; tc_enc=0; cross=0; joint=0; two=0; ctx=0; eD=0; xK=0; xi=0; eouta=0; eattx=0;
  mtp=0; mtpx=2*d*d + 3*d; stored=0; known=1)";

struct Named {
  std::string_view name, text;
};

// Rows that others build on.
constexpr Named kBases[] = {
    {"_llama", ""},
    // GPT-2's keys: biases everywhere, learned positions.
    {"_gpt",
     "d=n_embd; L=n_layer; H=n_head; K=H; h=d/H; f=n_inner~(4*d); m=2; nd=2*d; qb=1; mb=1; tied=tie_word_embeddings~1;"
     "max=n_positions; pos=max*d"},
    {"_moe",
     "mo=1; E=num_experts~num_local_experts~n_routed_experts; k=num_experts_per_token~num_experts_per_tok; "
     "fe=moe_intermediate_size"},
    // Latent attention and DeepSeek's experts.
    {"_mla",
     "kind=latent; K=1; qr=q_lora_rank~0; kvr=kv_lora_rank; nope=qk_nope_head_dim; rope=qk_rope_head_dim;"
     "h=nope+rope; hv=v_head_dim; layer=2*d + qr + kvr + extra; attx=(attention_bias~0)*(qr + kvr + rope + d);"
     "mo=i >= first_k_dense_replace~0 && i % (moe_layer_freq~1) == 0; E=n_routed_experts;"
     "k=num_experts_per_tok; fe=moe_intermediate_size; fs=n_shared_experts~0*fe; rx=E"},
    // BERT: post-norm, learned positions and token types, a pooler, a masked-language-model head.
    {"_bert",
     "K=H; h=d/H; m=2; nd=2*d; qb=1; mb=1; tied=tie_word_embeddings~1; causal=0; enc=1; types=type_vocab_size~2;"
     "pos=(max_position_embeddings + types)*d; htok=d*d; hx=V*(2 - tied); hn=2*d; ho=d; base_seq=d*d; base_x=d;"
     "cls_tok=0; cls_seq=d*d + d*labels; cls_x=d + labels"},
    // BART: encoder and decoder with biases, learned positions with two more rows in each.
    {"_bart",
     "d=d_model; L=decoder_layers; H=decoder_attention_heads; K=H; h=d/H; f=decoder_ffn_dim; m=2; nd=2*d; qb=1;"
     "mb=1; tied=tie_word_embeddings~1; emb=V*d*(tied ? 1 : 3); norms=3; rows=2; pos=2*(max_position_embeddings + "
     "rows)*d; out=nd;"
     "extra=h*(H+2*K) + d; xH=H; xh=h; hx=0;"
     "eL=encoder_layers; eH=encoder_attention_heads; eK=eH; eh=d/eH; ef=encoder_ffn_dim; em=m;"
     "elayer=2*nd + 4*d + ef + d; eout=nd; eaw=0; efront=0; cls_tok=0; cls_seq=d*d + d*labels; cls_x=d + labels"},
    // Diffusion transformers: every token sees every other, the step and the pooled text come in once per image.
    {"_dit", "d=H*h; K=H; hv=h; m=2; f=4*d; V=0; emb=0; tied=1; causal=0; enc=1; qb=0; max=0"},
    {"_tower", R"(d=hidden_size; L=num_hidden_layers; H=num_attention_heads; w=d; f=intermediate_size; m=2;
       C=num_channels~3; p=patch_size; hi=high(image_size) // high(patch_size); wi=wide(image_size) // wide(patch_size);
       n=hi*wi; x=0; pe=C*high(patch_size)*wide(patch_size); nd=2*d; ab=1; mb=1; pb=1; rows=n+x; outer=1; extra=0; lx=0;
       qb=3*ab; ob=ab; layer=2*nd + qb*w + ob*d + mb*((m-1)*f + d) + lx; out=pb*d + x*d + rows*d + outer*nd + extra;
       merge=1; window=0; global=0; dynamic=0; image_flop=0; image_x=0; head_flop=0; head_x=0; base_flop=0; base_x=0;
       pooling=0; plain=0; known=1; p1i=0; p1o=0; p2i=0; p2o=0; j1i=0; j1o=0; j2i=0; j2o=0; j3i=0; j3o=0; jn=1; jx=0; tokens=0)"},
    // Towers that take an image as it is, in patches that later merge (Qwen2-VL and its kin).
    {"_dynamic", R"(dynamic=1; n=1; L=depth; H=num_heads; C=in_channels~in_chans~3; p=patch_size~spatial_patch_size~14;
       t=temporal_patch_size~2; pe=C*t*p*p; rows=0;
       hi=1; wi=1; merge=spatial_merge_size~2; mm=merge*merge)"},
    // A text model under `text`, of `text_type` where it does not say; a tower under `vision` likewise. td, vd: their
    // widths. p1i p1o ...: matrices that every patch passes before patches merge; j1i j1o ...: matrices of the
    // projector, in and out; jx: its other parameters; tokens: after pooling. inner_tie: the text model's own word on
    // tying comes first; lone: a file without a tower is a text model.
    // pair: two towers beside each other, an image with every text (CLIP); tseq, iflop, ix: matrix elements per text,
    // FLOP and parameters per image besides; headless: no output matrix; fixed: the
    // tower is this one whatever its file says.
    {"_composite",
     R"(p1i=0; p1o=0; p2i=0; p2o=0; j1i=0; j1o=0; j2i=0; j2o=0; j3i=0; j3o=0; jn=1; jx=0; tokens=0; merge=1; text=text_config; vision=vision_config;
       inner_tie=0; lone=0; pair=0; tseq=0; iflop=0; ix=0; headless=0; fixed=0;
       text_type=llama; vision_type=siglip_vision_model)"},
};

constexpr FamilyRow kRows[] = {
#include "core/model/families.inc"
};

std::string_view base_text(std::string_view name) noexcept {
  for (const Named& base : kBases) {
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
      m.top_keys = x.value("topk");
      m.index_heads = x.value("ih");
      m.index_dim = x.value("id");
      m.index_plain = x.value("ip") != 0;
      m.compress = x.value("comp");
      m.key_values = static_cast<KeyValues>(std::clamp<std::int64_t>(x.value("kv"), 0, 3));
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
                           x.fields().find("num_key_value_heads"));
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

/// Layers one by one where any value depends on the layer, alike ones together.
void build_layers(Expressions& x, std::int64_t layers, bool cross, std::vector<LayerSpec>& out) {
  constexpr std::int64_t kMostPatterned = 100'000;  // no published model comes near
  check_layer_types(x, layers);
  for (std::int64_t i = 0; i < (x.by_layer() ? layers : 1) && !x.fields().failed(); ++i) {
    if (i >= kMostPatterned) {
      x.fields().problem(x.fields().place() + "num_hidden_layers: expected at most " + std::to_string(kMostPatterned) +
                         " where layers differ, got " + std::to_string(layers));
      return;
    }
    x.set_layer(i);
    LayerSpec layer;
    layer.mixer = mixer_of(x);
    layer.mlp = mlp_of(x);
    layer.norm_params = x.value("layer");
    if (cross || x.value("cross") != 0) {
      layer.cross = CrossSpec{x.positive("xH"), x.positive("xh"), x.value("xK"), x.value("xi"), {}, {}};
    }
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
  LayerSpec layer;
  layer.repeat = x.positive("eL");
  layer.mixer.kind = MixerKind::kAttention;
  layer.mixer.causal = false;
  layer.mixer.heads = x.positive("eH");
  layer.mixer.kv_heads = x.positive("eK");
  layer.mixer.qk_dim = layer.mixer.v_dim = x.positive("eh");
  layer.mixer.weights = x.value("eaw");
  layer.mixer.extra_params = x.value("eattx");
  layer.mlp.matrices = x.value("em");
  layer.mlp.width = x.positive("ef");
  layer.norm_params = x.value("elayer");
  spec.encoder.push_back(layer);
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
  if (f.failed()) return;
  spec.is_encoder = x.value("enc") != 0;
  if (encoder_decoder) build_encoder(x, spec);
  spec.encoder_width = x.value("eD");
  spec.context_token_weights = x.value("ctx");
  build_layers(x, layers, encoder_decoder, spec.layers);
  spec.embed_width = x.value("io");
  spec.embed_params = x.value("emb");
  spec.position_params = x.value("pos");
  spec.norm_params = x.value("out");
  spec.attn_extra_params = x.value("outa");
  spec.max_positions = x.value("max");
  spec.other_matmul_weights = x.value("tok");
  spec.sequence_weights = x.value("seq");
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
  switch (head) {
    case ModelHead::kOwn:
      spec.vocab = x.value("V");
      spec.tied = x.value("tied") != 0;
      spec.other_matmul_weights += x.value("htok");
      spec.lm_head_extra_params = x.value("hx");
      spec.norm_params += x.value("hn");
      spec.other_extra_params = x.value("ho");
      break;
    case ModelHead::kNone:
    case ModelHead::kEncoder:
      spec.tied = true;
      spec.sequence_weights += x.value("base_seq");
      spec.other_extra_params = x.value("base_x");
      break;
    case ModelHead::kSequence:
      spec.tied = true;
      spec.other_matmul_weights += x.value("cls_tok");
      spec.sequence_weights += x.value("cls_seq");
      spec.other_extra_params = x.value("cls_x");
      break;
    case ModelHead::kToken:
      spec.tied = true;
      spec.other_matmul_weights += x.value("tc_tok");
      spec.other_extra_params = x.value("tc_x");
      break;
  }
}

/// The definitions of `row` with what only a classifier needs.
void prepare(const FamilyRow& row, Expressions& x) {
  define_all(row, x);
  x.give("labels", labels_of(x.fields()));
  if (x.defines("known") && x.value("known") == 0) {
    x.fields().problem(x.fields().place() + "model_type: this variant of " + std::string(row.type) + " is not known");
  }
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
  read_typed(source, type, nested, pair || x.value("headless") != 0 ? ModelHead::kNone : head, spec);
  // The outer class is the one that ties; where its config does not say, the decoder's own word stands. Older classes
  // have it the other way round.
  const bool inner_says = x.value("inner_tie") != 0 && source.find("tie_word_embeddings") != nullptr;
  if (head == ModelHead::kOwn && nested && !inner_says && f.find("tie_word_embeddings") != nullptr) {
    spec.tied = f.flag("tie_word_embeddings", spec.tied);
  }
  if (f.failed()) return;
  x.give("td", spec.d_model);
  if (vision == "none") {
    spec.other_extra_params += x.value("jx");
    return;
  }
  if (x.value("lone") != 0 && f.find(vision) == nullptr) return;
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
  add_projector(x, v);
  if (const std::int64_t merge = x.value("merge"); merge > 1) v.merge = merge;
  v.pooled_tokens = x.value("tokens");
  if (pair) {
    spec.image_per_sequence = true;
    spec.is_encoder = true;
    spec.sequence_weights += x.value("tseq");
    v.image_flop += x.value("iflop");
    v.params += x.value("ix");
  }
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

void build_row(const FamilyRow& row, const Fields& f, ModelHead head, Architecture& spec) {
  if (kind_of(row) == RowKind::kComposite) {
    build_composite(row, f, head, spec);
    return;
  }
  Expressions x({}, f);
  prepare(row, x);
  if (kind_of(row) == RowKind::kText) {
    build_text_row(x, head, spec);
    return;
  }
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

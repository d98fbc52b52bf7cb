#include "core/model/read_architecture.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/base/edit_distance.h"
#include "core/base/json_fields.h"
#include "core/model/class_defaults.h"
#include "core/model/family_rows.h"

namespace mfu {
namespace {

using nlohmann::json;

/// Patterned stacks are walked layer by layer; no published model comes near this.
constexpr std::int64_t kMaxPatternedLayers = 1'000'000;

/// A yes or no that a family fixes, or reads from a key.
struct Flag {
  const char* key = nullptr;
  bool fallback = false;

  [[nodiscard]] bool read(const Fields& f) const { return key == nullptr ? fallback : f.flag(key, fallback); }
};
constexpr Flag kNo{};
constexpr Flag kYes{nullptr, true};

enum class Norm : std::uint8_t { kNone, kRms, kLayer };  ///< 0, d, 2d parameters

enum class QkNorm : std::uint8_t {
  kNone,
  kPerHead,       ///< one weight vector of the head width for queries and one for keys
  kFullWidth,     ///< one weight per query and key channel
  kPerHeadLayer,  ///< as kPerHead with a bias (Phi-2's qk_layernorm)
};

/// Which layers slide where the config has no `layer_types`.
enum class Slide : std::uint8_t {
  kNever,
  kEvery,    ///< all, if `sliding_window` is set
  kQwen,     ///< from `max_window_layers` on, if `use_sliding_window`
  kEven,     ///< layers 0, 2, ... (Gemma 2)
  kPattern,  ///< layer i unless (i+1) is a multiple of `sliding_window_pattern`
  kGptNeo,   ///< `attention_types`, else every second layer; window `window_size`
  kLlama4,   ///< layers with rotary positions attend within chunks
};

/// Which layers are mixtures of experts.
enum class Experts : std::uint8_t {
  kNever,
  kEvery,
  kQwen,        ///< not in `mlp_only_layers`, and (i+1) % `decoder_sparse_step` == 0
  kDeepseek,    ///< i >= `first_k_dense_replace` and i % `moe_layer_freq` == 0
  kInterleave,  ///< (i+1) % `interleave_moe_layer_step` == 0, or `moe_layers`
  kJamba,       ///< i % `expert_layer_period` == `expert_layer_offset`
};

/// Class defaults of a configuration whose published files leave fields out. Used where the config is nested (as the
/// `text_config` of a vision-language model); a config of its own must say its dimensions.
struct Defaults {
  std::int64_t width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, mlp = 0, vocab = 0, window = 0;
};

struct Family;
using Build = void (*)(const Family&, const Fields&, bool nested, Architecture&);
void build_decoder(const Family&, const Fields&, bool nested, Architecture&);

/// One entry of the table. Key names list alternatives with `|`; "" means that the family has no such key.
struct Family {
  std::string_view model_type;
  Build build = build_decoder;
  const char* layers = "num_hidden_layers";
  const char* width = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads";
  const char* head_dim = "head_dim";
  const char* mlp = "intermediate_size";
  const char* dense_mlp = nullptr;  ///< key of the dense layers' width where experts have another
  std::int64_t mlp_factor = 0;      ///< MLP width when the key is missing: this times the width
  const char* vocab = "vocab_size";
  const char* positions = "max_position_embeddings";
  bool learned_positions = false;
  std::int64_t extra_position_rows = 0;
  std::int64_t matrices = 3;
  Flag qkv_bias{"attention_bias"};
  Flag o_bias{"attention_bias"};
  Flag mlp_bias = kNo;
  Flag lm_head_bias = kNo;
  Flag tied{"tie_word_embeddings", false};
  Norm norm = Norm::kRms;
  std::int64_t norms = 2;  ///< per layer
  bool final_norm = true;
  QkNorm qk_norm = QkNorm::kNone;
  Flag qk_norm_on = kYes;
  Slide slide = Slide::kNever;
  std::int64_t slide_pattern = 0;
  Experts experts = Experts::kNever;
  Defaults defaults{};
};

std::int64_t norm_size(Norm norm, std::int64_t d) noexcept {
  switch (norm) {
    case Norm::kNone:
      return 0;
    case Norm::kRms:
      return d;
    case Norm::kLayer:
      return 2 * d;
  }
  return 0;
}

/// A required dimension; nested configs may fall back to the class default.
std::int64_t dimension(const Fields& f, const char* keys, bool nested, std::int64_t fallback) {
  if (nested && fallback > 0) return f.integer_or(keys, fallback, 1);
  return f.require(keys);
}

struct Heads {
  std::int64_t heads = 1, kv_heads = 1, head_dim = 1;
};

/// Head counts and width, with the sanity rules that every attention layer obeys.
Heads read_heads(const Family& family, const Fields& f, bool nested, std::int64_t d) {
  Heads h;
  h.heads = dimension(f, family.heads, nested, family.defaults.heads);
  h.kv_heads = h.heads;
  if (family.kv_heads[0] != '\0') {
    const std::int64_t fallback = nested && family.defaults.kv_heads > 0 ? family.defaults.kv_heads : h.heads;
    h.kv_heads = f.integer_or(family.kv_heads, fallback, 1);
  }
  std::optional<std::int64_t> head_dim;
  if (family.head_dim[0] != '\0') head_dim = f.integer(family.head_dim, 1);
  if (!head_dim && family.defaults.head_dim > 0) head_dim = family.defaults.head_dim;
  if (f.failed()) return h;
  if (!head_dim) {
    if (d % h.heads != 0) {
      f.wrong(family.heads, "a divisor of the model width " + std::to_string(d) + " where head_dim is not given",
              f.find(family.heads));
      return h;
    }
    head_dim = d / h.heads;
  }
  h.head_dim = *head_dim;
  if (h.heads % h.kv_heads != 0) {
    f.wrong(family.kv_heads[0] != '\0' ? family.kv_heads : family.heads,
            "a divisor of the " + std::to_string(h.heads) + " query heads", f.find(family.kv_heads));
  }
  return h;
}

Count attention_biases(const Heads& h, std::int64_t d, bool qkv, bool o) noexcept {
  Count n;
  if (qkv) n += Count(h.head_dim) * (Count(h.heads) + Count(2) * h.kv_heads);
  if (o) n += d;
  return n;
}

Count qk_norm_params(QkNorm kind, const Heads& h) noexcept {
  switch (kind) {
    case QkNorm::kNone:
      return 0;
    case QkNorm::kPerHead:
      return Count(2) * h.head_dim;
    case QkNorm::kFullWidth:
      return Count(h.head_dim) * (Count(h.heads) + h.kv_heads);
    case QkNorm::kPerHeadLayer:
      return Count(4) * h.head_dim;
  }
  return 0;
}

Count mlp_biases(std::int64_t matrices, std::int64_t width, std::int64_t d) noexcept {
  return Count(matrices - 1) * width + d;
}

/// Grouped attention with `h`.
MixerSpec grouped(const Heads& h) {
  MixerSpec m;
  m.kind = MixerKind::kAttention;
  m.heads = h.heads;
  m.kv_heads = h.kv_heads;
  m.qk_dim = m.v_dim = h.head_dim;
  return m;
}

/// What distinguishes one layer of a stack from another.
struct LayerKind {
  std::int64_t window = 0;
  std::int64_t chunk = 0;
  bool moe = false;
  bool linear = false;  ///< linear_attention or a state-space layer

  friend bool operator<(const LayerKind& a, const LayerKind& b) {
    return std::tie(a.window, a.chunk, a.moe, a.linear) < std::tie(b.window, b.chunk, b.moe, b.linear);
  }
};

/// How many layers of each kind.
using LayerPlan = std::map<LayerKind, std::int64_t>;

/// Sliding window of the config; 0 when it has none.
std::int64_t window_size(const Fields& f, const char* key, std::int64_t fallback = 0) {
  return f.integer_or(key, fallback, 0);
}

/// The window or chunk of layer `i`, or of every layer.
class SlideRule {
 public:
  SlideRule(const Family& family, const Fields& f, bool nested, std::int64_t layers) : f_(f), slide_(family.slide) {
    types_ = f.find("layer_types");
    if (types_ != nullptr && (!types_->is_array() || static_cast<std::int64_t>(types_->size()) != layers)) {
      f.wrong("layer_types", "a list of " + std::to_string(layers) + " layer types", types_);
      types_ = nullptr;
    }
    const std::int64_t fallback =
        nested || family.slide == Slide::kPattern || family.slide == Slide::kEven ? family.defaults.window : 0;
    window_ = f.mentions("sliding_window") ? window_size(f, "sliding_window") : fallback;
    chunk_ = window_size(f, "attention_chunk_size", slide_ == Slide::kLlama4 ? 8192 : 0);
    pattern_ = f.integer_or("sliding_window_pattern|_sliding_window_pattern", family.slide_pattern, 0);
    if (slide_ == Slide::kQwen) {
      if (!f.flag("use_sliding_window", false)) window_ = types_ != nullptr ? window_ : 0;
      first_ = f.integer_or("max_window_layers", layers, 0);
    }
    if (slide_ == Slide::kGptNeo) {
      window_ = window_size(f, "window_size", 256);
      pattern_ = 2;
    }
    if (slide_ == Slide::kLlama4) {
      no_rope_ = f.find("no_rope_layers");
      if (no_rope_ != nullptr && (!no_rope_->is_array() || no_rope_->empty())) no_rope_ = nullptr;
      interval_ = std::max<std::int64_t>(1, f.integer_or("no_rope_layer_interval", 4, 1));
    }
  }

  /// Every layer alike, so that nothing has to be walked.
  [[nodiscard]] bool uniform() const {
    return types_ == nullptr &&
           (slide_ == Slide::kNever || slide_ == Slide::kEvery || (window_ == 0 && slide_ != Slide::kLlama4));
  }

  void apply(std::int64_t i, LayerKind& kind) const {
    if (types_ != nullptr) {
      const json& word = (*types_)[static_cast<std::size_t>(i)];
      const std::string text = word.is_string() ? word.get<std::string>() : std::string();
      if (text == "full_attention" || text == "attention") return;
      if (text == "sliding_attention") {
        if (window_ <= 0)
          f_.wrong("sliding_window", "an integer > 0, since layer_types has sliding_attention",
                   f_.find("sliding_window"));
        kind.window = window_;
      } else if (text == "chunked_attention") {
        if (chunk_ <= 0)
          f_.wrong("attention_chunk_size", "an integer > 0, since layer_types has chunked_attention",
                   f_.find("attention_chunk_size"));
        kind.chunk = chunk_;
      } else if (text == "linear_attention") {
        kind.linear = true;
      } else {
        f_.wrong("layer_types", "full_attention, sliding_attention, chunked_attention or linear_attention", &word);
      }
      return;
    }
    switch (slide_) {
      case Slide::kNever:
        break;
      case Slide::kEvery:
        kind.window = window_;
        break;
      case Slide::kQwen:
        kind.window = i >= first_ ? window_ : 0;
        break;
      case Slide::kEven:
        kind.window = i % 2 == 0 ? window_ : 0;
        break;
      case Slide::kPattern:
        kind.window = pattern_ > 0 && (i + 1) % pattern_ != 0 ? window_ : 0;
        break;
      case Slide::kGptNeo:
        kind.window = i % 2 == 1 ? window_ : 0;
        break;
      case Slide::kLlama4: {
        bool rotary = (i + 1) % interval_ != 0;
        if (no_rope_ != nullptr && static_cast<std::size_t>(i) < no_rope_->size()) {
          const json& word = (*no_rope_)[static_cast<std::size_t>(i)];
          if (word.is_number_integer()) rotary = word.get<std::int64_t>() != 0;
        }
        kind.chunk = rotary ? chunk_ : 0;
        break;
      }
    }
  }

 private:
  const Fields& f_;
  Slide slide_;
  const json* types_ = nullptr;
  const json* no_rope_ = nullptr;
  std::int64_t window_ = 0, chunk_ = 0, pattern_ = 0, first_ = 0, interval_ = 4;
};

/// Whether layer `i` is a mixture of experts.
class ExpertRule {
 public:
  ExpertRule(const Family& family, const Fields& f) : rule_(family.experts) {
    switch (rule_) {
      case Experts::kNever:
      case Experts::kEvery:
        break;
      case Experts::kQwen:
        step_ = f.integer_or("decoder_sparse_step", 1, 1);
        listed_ = list(f, "mlp_only_layers");
        break;
      case Experts::kDeepseek:
        first_ = f.integer_or("first_k_dense_replace", 0, 0);
        step_ = f.integer_or("moe_layer_freq", 1, 1);
        break;
      case Experts::kInterleave:
        step_ = f.integer_or("interleave_moe_layer_step", 1, 1);
        has_list_ = f.find("moe_layers") != nullptr;
        listed_ = list(f, "moe_layers");
        break;
      case Experts::kJamba:
        step_ = f.integer_or("expert_layer_period", 2, 1);
        first_ = f.integer_or("expert_layer_offset", 1, 0);
        break;
    }
  }

  [[nodiscard]] bool uniform() const {
    return rule_ == Experts::kNever || rule_ == Experts::kEvery ||
           (rule_ == Experts::kQwen && step_ == 1 && listed_.empty()) ||
           (rule_ == Experts::kDeepseek && first_ == 0 && step_ == 1);
  }

  [[nodiscard]] bool at(std::int64_t i) const {
    const bool listed = std::binary_search(listed_.begin(), listed_.end(), i);
    switch (rule_) {
      case Experts::kNever:
        return false;
      case Experts::kEvery:
        return true;
      case Experts::kQwen:
        return !listed && (i + 1) % step_ == 0;
      case Experts::kDeepseek:
        return i >= first_ && i % step_ == 0;
      case Experts::kInterleave:
        return has_list_ ? listed : (i + 1) % step_ == 0;
      case Experts::kJamba:
        return i % step_ == first_ % step_;
    }
    return false;
  }

 private:
  static std::vector<std::int64_t> list(const Fields& f, const char* key) {
    std::vector<std::int64_t> values;
    const json* array = f.find(key);
    if (array == nullptr) return values;
    if (!array->is_array()) {
      f.wrong(key, "a list of layer numbers", array);
      return values;
    }
    for (const json& value : *array) {
      if (value.is_number_integer()) {
        values.push_back(value.get<std::int64_t>());
      } else {
        f.wrong(key, "a list of layer numbers", &value);
      }
    }
    std::sort(values.begin(), values.end());
    return values;
  }

  Experts rule_;
  bool has_list_ = false;
  std::int64_t step_ = 1, first_ = 0;
  std::vector<std::int64_t> listed_;
};

LayerPlan plan_layers(const Fields& f, std::int64_t layers, const SlideRule& slide, const ExpertRule& experts) {
  LayerPlan plan;
  if (f.failed()) return plan;
  if (slide.uniform() && experts.uniform()) {
    LayerKind kind;
    slide.apply(0, kind);
    kind.moe = experts.at(0);
    plan[kind] = layers;
    return plan;
  }
  if (layers > kMaxPatternedLayers) {
    f.problem(f.place() + "num_hidden_layers: expected at most " + std::to_string(kMaxPatternedLayers) +
              " where layers differ, got " + std::to_string(layers));
    return plan;
  }
  for (std::int64_t i = 0; i < layers && !f.failed(); ++i) {
    LayerKind kind;
    slide.apply(i, kind);
    kind.moe = experts.at(i);
    ++plan[kind];
  }
  return plan;
}

/// The routed and shared experts of a family, by the keys of notes in each published configuration class.
MlpSpec read_experts(const Family& family, const Fields& f, std::int64_t d) {
  MlpSpec m;
  m.matrices = family.matrices;
  m.experts = f.require("num_local_experts|num_experts|n_routed_experts");
  m.top_k = f.require("num_experts_per_tok|experts_per_token");
  if (!f.failed() && m.top_k > m.experts) {
    f.wrong("num_experts_per_tok", "at most the " + std::to_string(m.experts) + " experts",
            f.find("num_experts_per_tok|experts_per_token"));
  }
  const std::string_view type = family.model_type;
  if (family.experts == Experts::kQwen || family.experts == Experts::kDeepseek) {
    m.expert_width = f.require("moe_intermediate_size");
  } else {
    m.expert_width = f.require(family.mlp);
  }
  if (family.experts == Experts::kQwen) {
    m.shared_width = f.integer_or("shared_expert_intermediate_size", 0, 0);
    m.shared_gate = m.shared_width > 0;
  } else if (family.experts == Experts::kDeepseek) {
    const std::int64_t shared = f.integer_or("n_shared_experts", 0, 0);
    const Count width = Count(shared) * m.expert_width;
    if (width.fits() && width.u64() <= static_cast<std::uint64_t>(INT64_MAX))
      m.shared_width = static_cast<std::int64_t>(width.u64());
    // Auxiliary-loss-free balancing adds one correction per expert (DeepSeek-V3, arXiv:2412.19437).
    if (type != "deepseek_v2" && type != "deepseek") m.router_extra_params = m.experts;
  } else if (family.experts == Experts::kInterleave) {
    m.shared_width = m.expert_width;
  }
  if (type == "gpt_oss") {
    m.router_extra_params = m.experts;
    m.expert_extra_params = mlp_biases(m.matrices, m.expert_width, d);
  }
  return m;
}

/// The dense MLP of a family.
MlpSpec read_dense(const Family& family, const Fields& f, bool nested, std::int64_t d) {
  MlpSpec m;
  m.matrices = family.matrices;
  if (family.mlp_factor > 0) {
    const auto width = f.integer(family.mlp, 1);
    const Count fallback = Count(family.mlp_factor) * d;
    m.width = width.value_or(static_cast<std::int64_t>(fallback.u64()));
  } else {
    m.width = dimension(f, family.dense_mlp != nullptr ? family.dense_mlp : family.mlp, nested, family.defaults.mlp);
  }
  if (family.mlp_bias.read(f)) m.extra_params = mlp_biases(m.matrices, m.width, d);
  return m;
}

/// Embedding, output matrix and positions, alike in every decoder.
void read_io(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  spec.vocab = dimension(f, family.vocab, nested, family.defaults.vocab);
  spec.tied = family.tied.read(f);
  spec.embed_params = Count(spec.vocab) * spec.io_width();
  if (family.lm_head_bias.read(f)) spec.lm_head_extra_params = spec.vocab;
  if (family.learned_positions) {
    const std::int64_t rows = f.require(family.positions);
    spec.position_params = (Count(rows) + family.extra_position_rows) * spec.d_model;
    spec.max_positions = rows;
  } else if (family.positions[0] != '\0') {
    spec.max_positions = f.integer_or(family.positions, 0, 0, INT64_MAX);
  }
}

void build_decoder(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  const std::int64_t d = spec.d_model = dimension(f, family.width, nested, family.defaults.width);
  const std::int64_t layers = dimension(f, family.layers, nested, family.defaults.layers);
  const Heads h = read_heads(family, f, nested, d);
  read_io(family, f, nested, spec);
  if (f.failed()) return;
  const ExpertRule expert_rule(family, f);
  const LayerPlan plan = plan_layers(f, layers, SlideRule(family, f, nested, layers), expert_rule);
  const Count attention_extra = attention_biases(h, d, family.qkv_bias.read(f), family.o_bias.read(f)) +
                                (family.model_type == "gpt_oss" ? Count(h.heads) : Count(0));  // one sink per head
  Count qk_norm;
  if (family.qk_norm != QkNorm::kNone && family.qk_norm_on.read(f)) qk_norm = qk_norm_params(family.qk_norm, h);
  for (const auto& [kind, repeat] : plan) {
    LayerSpec layer;
    layer.repeat = repeat;
    layer.mixer = grouped(h);
    layer.mixer.window = kind.window;
    layer.mixer.chunk = kind.chunk;
    layer.mixer.extra_params = attention_extra;
    if (kind.linear)
      f.problem(f.place() + "layer_types: linear_attention is not known for model_type " +
                std::string(family.model_type));
    layer.mlp = kind.moe ? read_experts(family, f, d) : read_dense(family, f, nested, d);
    layer.norm_params = Count(family.norms) * norm_size(family.norm, d) + qk_norm;
    spec.layers.push_back(layer);
  }
  if (family.final_norm) spec.norm_params = norm_size(family.norm, d);
}

// ------------------------------------------------------------------ families with rules of their own

void build_nanogpt(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  build_decoder(family, f, nested, spec);
  if (!f.flag("bias", true)) {  // LayerNorms lose their bias too
    for (LayerSpec& layer : spec.layers) {
      layer.mixer.extra_params = 0;
      layer.mlp.extra_params = 0;
      layer.norm_params = Count(2) * spec.d_model;
    }
    spec.norm_params = spec.d_model;
  }
}

void build_opt(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  spec.embed_width = f.integer_or("word_embed_proj_dim", 0, 0);
  build_decoder(family, f, nested, spec);
  if (spec.embed_width == spec.d_model) spec.embed_width = 0;
  if (spec.embed_width > 0) spec.other_matmul_weights = Count(2) * spec.embed_width * spec.d_model;
  spec.embed_params = Count(spec.vocab) * spec.io_width();
  if (!f.flag("do_layer_norm_before", true) || f.flag("_remove_final_layer_norm", false)) spec.norm_params = 0;
  if (!f.flag("enable_bias", true)) {
    for (LayerSpec& layer : spec.layers) layer.mixer.extra_params = layer.mlp.extra_params = 0;
  }
  if (!f.flag("layer_norm_elementwise_affine", true)) {
    for (LayerSpec& layer : spec.layers) layer.norm_params = 0;
    spec.norm_params = 0;
  }
}

void build_bloom(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  build_decoder(family, f, nested, spec);
  spec.norm_params += Count(2) * spec.d_model;  // LayerNorm after the embedding
}

void build_falcon(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  const bool new_decoder = f.flag("new_decoder_architecture", false);
  const bool parallel = f.flag("parallel_attn", true);
  Family own = family;
  own.kv_heads = new_decoder ? "num_kv_heads|n_head_kv" : "";
  own.norms = new_decoder ? f.integer_or("num_ln_in_parallel_attn", 2, 1, 2) : parallel ? 1 : 2;
  build_decoder(own, f, nested, spec);
  if (!new_decoder && f.flag("multi_query", true)) {
    // `num_kv_heads` of the old decoder is ignored by the model's code.
    for (LayerSpec& layer : spec.layers) {
      layer.mixer.kv_heads = 1;
      const Heads h{layer.mixer.heads, 1, layer.mixer.qk_dim};
      layer.mixer.extra_params = attention_biases(h, spec.d_model, family.qkv_bias.read(f), family.o_bias.read(f));
    }
  }
}

void build_gpt_bigcode(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  build_decoder(family, f, nested, spec);
  if (!f.flag("multi_query", true)) return;
  for (LayerSpec& layer : spec.layers) {
    layer.mixer.kv_heads = 1;
    layer.mixer.extra_params = attention_biases({layer.mixer.heads, 1, layer.mixer.qk_dim}, spec.d_model, true, true);
  }
}

void build_mpt(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  build_decoder(family, f, nested, spec);
  if (f.failed()) return;
  const std::int64_t factor = f.integer_or("expansion_ratio", 4, 1, 1024);
  const Fields attention = f.child("attn_config");
  const std::string attention_type = attention.text_or("attn_type", "multihead_attention");
  const std::int64_t kv_heads =
      attention_type == "multiquery_attention"
          ? 1
          : attention.integer_or("kv_n_heads", spec.layers.empty() ? 1 : spec.layers[0].mixer.heads, 1);
  for (LayerSpec& layer : spec.layers) {
    if (layer.mixer.heads % kv_heads != 0)
      attention.wrong("kv_n_heads", "a divisor of n_heads", attention.find("kv_n_heads"));
    layer.mixer.kv_heads = kv_heads;
    layer.mlp.width = static_cast<std::int64_t>((Count(factor) * spec.d_model).u64());
    const bool biased = !f.flag("no_bias", true);
    layer.mixer.extra_params =
        attention_biases({layer.mixer.heads, kv_heads, layer.mixer.qk_dim}, spec.d_model, biased, biased);
    layer.mlp.extra_params = biased ? mlp_biases(2, layer.mlp.width, spec.d_model) : Count(0);
    if (attention.flag("qk_ln", false)) layer.norm_params += Count(2) * spec.d_model;
  }
  // ALiBi has no table; llm-foundry models without it learn positions.
  if (f.find("attn_config") != nullptr && !attention.flag("alibi", true) && !attention.flag("rope", false)) {
    spec.position_params = Count(f.require("max_seq_len")) * spec.d_model;
  }
}

void build_stablelm(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  Family own = family;
  own.norms = f.flag("use_parallel_residual", false) ? 1 : 2;
  build_decoder(own, f, nested, spec);
}

void build_chatglm(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  Family own = family;
  own.kv_heads = f.flag("multi_query_attention", false) ? "multi_query_group_num" : "";
  const bool linear_bias = f.flag("add_bias_linear", false);
  own.qkv_bias = linear_bias || f.flag("add_qkv_bias", false) ? kYes : kNo;
  own.o_bias = own.mlp_bias = linear_bias ? kYes : kNo;
  own.norm = f.flag("rmsnorm", true) ? Norm::kRms : Norm::kLayer;
  build_decoder(own, f, nested, spec);
  if (!f.flag("post_layer_norm", true)) spec.norm_params = 0;
}

/// Multi-head latent attention with DeepSeek's mixture of experts.
void build_deepseek(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  if (!f.flag("use_mla", true)) {
    // DeepSeek-OCR's decoder: plain heads; the latent dimensions in the file are 0 or null and mean nothing.
    Family own = family;
    own.head_dim = "";
    build_decoder(own, f, nested, spec);
    return;
  }
  const std::int64_t d = spec.d_model = f.require(family.width);
  const std::int64_t layers = f.require(family.layers);
  read_io(family, f, nested, spec);
  MixerSpec m;
  m.kind = MixerKind::kLatent;
  m.heads = f.require(family.heads);
  m.kv_heads = 1;
  // Null means no low rank; a missing key means the class default of DeepSeek-V2 and V3.
  m.q_rank = f.mentions("q_lora_rank") ? f.integer_or("q_lora_rank", 0, 0) : 1536;
  m.kv_rank = f.require("kv_lora_rank");
  m.nope_dim = f.require("qk_nope_head_dim");
  m.rope_dim = f.require("qk_rope_head_dim");
  m.v_dim = f.require("v_head_dim");
  m.qk_dim = m.nope_dim + m.rope_dim;
  if (f.flag("attention_bias", false)) m.extra_params = Count(m.q_rank) + m.kv_rank + m.rope_dim + d;
  if (f.failed()) return;
  const LayerPlan plan = plan_layers(f, layers, SlideRule(family, f, nested, layers), ExpertRule(family, f));
  for (const auto& [kind, repeat] : plan) {
    LayerSpec layer;
    layer.repeat = repeat;
    layer.mixer = m;
    layer.mlp = kind.moe ? read_experts(family, f, d) : read_dense(family, f, nested, d);
    layer.norm_params = Count(2) * d + m.q_rank + m.kv_rank;
    spec.layers.push_back(layer);
  }
  spec.norm_params = d;
  spec.mtp_layers = f.integer_or("num_nextn_predict_layers", 0, 0, 1024);
  if (spec.mtp_layers > 0 && !f.failed()) {
    // One more layer of the last kind, the projection of the two concatenated states and three norms. Embedding and
    // output matrix are shared with the main model (README_WEIGHTS of DeepSeek-V3).
    Architecture one;
    one.d_model = d;
    LayerSpec last;
    last.mixer = m;
    last.mlp = read_experts(family, f, d);
    last.norm_params = Count(2) * d + m.q_rank + m.kv_rank;
    one.layers.push_back(last);
    one.tied = true;
    spec.mtp_params = (count_params(one).text_total() + Count(2) * d * d + Count(3) * d) * spec.mtp_layers;
  }
}

/// T5: encoder and decoder stacks with cross attention, relative position biases in the first layer of each.
void build_t5(const Family& family, const Fields& f, bool, Architecture& spec) {
  const std::int64_t d = spec.d_model = f.require("d_model");
  const std::int64_t encoder_layers = f.require("num_layers");
  const std::int64_t decoder_layers = f.integer_or("num_decoder_layers", encoder_layers, 1);
  Heads h;
  h.heads = h.kv_heads = f.require("num_heads");
  h.head_dim = f.require("d_kv");
  MlpSpec mlp;
  mlp.width = f.require("d_ff");
  mlp.matrices = f.flag("is_gated_act", f.text_or("feed_forward_proj", "relu").starts_with("gated")) ? 3 : 2;
  spec.vocab = f.require("vocab_size");
  spec.tied = family.tied.read(f);
  spec.embed_params = Count(spec.vocab) * d;
  const Count buckets = Count(f.integer_or("relative_attention_num_buckets", 32, 0)) * h.heads;
  const bool per_layer = family.model_type == "umt5";
  LayerSpec encoder;
  encoder.repeat = encoder_layers;
  encoder.mixer = grouped(h);
  encoder.mixer.causal = false;
  encoder.mlp = mlp;
  encoder.norm_params = Count(2) * d;
  LayerSpec decoder = encoder;
  decoder.repeat = decoder_layers;
  decoder.mixer.causal = true;
  decoder.cross = CrossSpec{h.heads, h.head_dim, {}, {}};
  decoder.norm_params = Count(3) * d;
  if (per_layer) {
    encoder.mixer.extra_params = decoder.mixer.extra_params = buckets;
  } else {
    spec.attn_extra_params = spec.encoder_attn_extra_params = buckets;
  }
  spec.encoder.push_back(encoder);
  spec.layers.push_back(decoder);
  spec.norm_params = spec.encoder_norm_params = d;
  spec.max_positions = f.integer_or("n_positions", 0, 0, INT64_MAX);
}

/// Gated delta net and full attention in turn, experts in every layer (Qwen3-Next).
void build_qwen3_next(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  const std::int64_t d = spec.d_model = f.require(family.width);
  const std::int64_t layers = f.require(family.layers);
  const Heads h = read_heads(family, f, nested, d);
  read_io(family, f, nested, spec);
  MixerSpec linear;
  linear.kind = MixerKind::kDeltaNet;
  linear.heads = f.require("linear_num_key_heads");
  linear.kv_heads = f.require("linear_num_value_heads");
  linear.qk_dim = f.require("linear_key_head_dim");
  linear.v_dim = f.require("linear_value_head_dim");
  linear.conv_kernel = f.require("linear_conv_kernel_dim");
  linear.extra_params = Count(2) * linear.kv_heads + linear.v_dim;  // A_log, dt_bias, norm
  const std::int64_t interval = f.integer_or("full_attention_interval", 4, 1);
  const json* types = f.find("layer_types");
  const ExpertRule experts(family, f);
  const SlideRule slide(family, f, nested, layers);
  if (f.failed()) return;
  if (layers > kMaxPatternedLayers) {
    f.wrong("num_hidden_layers", "at most " + std::to_string(kMaxPatternedLayers), f.find("num_hidden_layers"));
    return;
  }
  LayerPlan plan;
  for (std::int64_t i = 0; i < layers && !f.failed(); ++i) {
    LayerKind kind;
    if (types != nullptr) {
      slide.apply(i, kind);
    } else {
      kind.linear = (i + 1) % interval != 0;
    }
    kind.moe = experts.at(i);
    ++plan[kind];
  }
  for (const auto& [kind, repeat] : plan) {
    LayerSpec layer;
    layer.repeat = repeat;
    layer.norm_params = Count(2) * d;
    if (kind.linear) {
      layer.mixer = linear;
    } else {
      layer.mixer = grouped(h);
      layer.mixer.window = kind.window;
      layer.mixer.output_gate = true;
      layer.mixer.extra_params = attention_biases(h, d, family.qkv_bias.read(f), family.o_bias.read(f));
      layer.norm_params += Count(2) * h.head_dim;
    }
    layer.mlp = kind.moe ? read_experts(family, f, d) : read_dense(family, f, nested, d);
    spec.layers.push_back(layer);
  }
  spec.norm_params = d;
}

void build_mamba2(const Family& family, const Fields& f, bool, Architecture& spec) {
  const std::int64_t d = spec.d_model = f.require("hidden_size");
  LayerSpec layer;
  layer.repeat = f.require("num_hidden_layers");
  spec.vocab = f.require("vocab_size");
  spec.tied = family.tied.read(f);
  spec.embed_params = Count(spec.vocab) * d;
  MixerSpec& m = layer.mixer;
  m.kind = MixerKind::kMamba2;
  m.heads = f.require("num_heads");
  const std::int64_t head_dim = f.require("head_dim");
  m.inner = f.integer_or("expand", 2, 1, 1024) * d;
  m.state = f.require("state_size");
  m.groups = f.integer_or("n_groups", 1, 1);
  m.conv_kernel = f.integer_or("conv_kernel", 4, 1);
  if (!f.failed() && !(Count(m.heads) * head_dim == Count(m.inner))) {
    f.wrong("head_dim", "expand * hidden_size / num_heads", f.find("head_dim"));
  }
  const Count convolved = Count(m.inner) + Count(2) * m.groups * m.state;
  m.extra_params = Count(3) * m.heads + m.inner;  // dt_bias, A_log, D; norm of the gated output
  if (f.flag("use_conv_bias", true)) m.extra_params += convolved;
  if (f.flag("use_bias", false)) m.extra_params += Count(m.inner) + convolved + m.heads + d;
  layer.mlp.matrices = 2;
  layer.norm_params = d;
  spec.layers.push_back(layer);
  spec.norm_params = d;
}

/// Mamba-1 blocks, alone (`mamba`) or between attention layers (`jamba`).
MixerSpec read_mamba1(const Fields& f, std::int64_t d, const char* prefix, bool inner_norms) {
  const std::string p = prefix;
  MixerSpec m;
  m.kind = MixerKind::kMamba1;
  m.inner = f.integer_or(p.empty() ? "intermediate_size" : "-", 0, 0);
  if (m.inner == 0) m.inner = f.integer_or(p + "expand", 2, 1, 1024) * d;
  m.state = f.integer_or(p.empty() ? "state_size" : p + "d_state", 16, 1);
  m.conv_kernel = f.integer_or(p.empty() ? "conv_kernel" : p + "d_conv", 4, 1);
  const std::int64_t automatic = (d + 15) / 16;
  const json* rank = f.find(p.empty() ? "time_step_rank" : p + "dt_rank");
  m.dt_rank = rank != nullptr && rank->is_number()
                  ? f.integer_or(p.empty() ? "time_step_rank" : p + "dt_rank", automatic, 1)
                  : automatic;
  // Convolution (depthwise, outside the matmul rule), dt bias, A_log, D.
  m.extra_params = Count(m.inner) * m.conv_kernel + Count(m.inner) + Count(m.inner) * m.state + m.inner;
  if (f.flag(p.empty() ? "use_conv_bias" : p + "conv_bias", true)) m.extra_params += m.inner;
  if (f.flag(p.empty() ? "use_bias" : p + "proj_bias", false)) m.extra_params += Count(2) * m.inner + d;
  if (inner_norms) m.extra_params += Count(m.dt_rank) + Count(2) * m.state;
  return m;
}

void build_mamba(const Family& family, const Fields& f, bool, Architecture& spec) {
  const std::int64_t d = spec.d_model = f.require("hidden_size");
  LayerSpec layer;
  layer.repeat = f.require("num_hidden_layers");
  spec.vocab = f.require("vocab_size");
  spec.tied = family.tied.read(f);
  spec.embed_params = Count(spec.vocab) * d;
  layer.mixer = read_mamba1(f, d, "", false);
  layer.norm_params = d;
  spec.layers.push_back(layer);
  spec.norm_params = d;
}

void build_jamba(const Family& family, const Fields& f, bool nested, Architecture& spec) {
  const std::int64_t d = spec.d_model = f.require(family.width);
  const std::int64_t layers = f.require(family.layers);
  const Heads h = read_heads(family, f, nested, d);
  read_io(family, f, nested, spec);
  const MixerSpec mamba = read_mamba1(f, d, "mamba_", true);
  const std::int64_t period = f.integer_or("attn_layer_period", 8, 1);
  const std::int64_t offset = f.integer_or("attn_layer_offset", 4, 0);
  const ExpertRule experts(family, f);
  const std::int64_t expert_count = f.integer_or("num_experts", 16, 1);
  if (f.failed()) return;
  if (layers > kMaxPatternedLayers) {
    f.wrong("num_hidden_layers", "at most " + std::to_string(kMaxPatternedLayers), f.find("num_hidden_layers"));
    return;
  }
  LayerPlan plan;
  for (std::int64_t i = 0; i < layers; ++i) {
    LayerKind kind;
    kind.linear = i % period != offset % period;
    kind.moe = expert_count > 1 && experts.at(i);
    ++plan[kind];
  }
  for (const auto& [kind, repeat] : plan) {
    LayerSpec layer;
    layer.repeat = repeat;
    layer.mixer = kind.linear ? mamba : grouped(h);
    layer.mlp = kind.moe ? read_experts(family, f, d) : read_dense(family, f, nested, d);
    layer.norm_params = Count(2) * d;
    spec.layers.push_back(layer);
  }
  spec.norm_params = d;
}

// ------------------------------------------------------------------ vision towers

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

/// Dimensions that CLIP, SigLIP and ViT configs share.
VisionSpec read_vit(const Fields& f, const Defaults& defaults, std::int64_t image, std::int64_t patch) {
  VisionSpec v;
  v.width = dimension(f, "hidden_size", true, defaults.width);
  v.layers = dimension(f, "num_hidden_layers", true, defaults.layers);
  v.heads = dimension(f, "num_attention_heads", true, defaults.heads);
  v.mlp_width = dimension(f, "intermediate_size", true, defaults.mlp);
  v.image = f.integer_or("image_size", image, 1, 1 << 20);
  v.patch = f.integer_or("patch_size", patch, 1, 1 << 16);
  const std::int64_t channels = f.integer_or("num_channels", 3, 1, 4096);
  v.patch_elements = channels * v.patch * v.patch;
  if (!f.failed() && v.image < v.patch) f.wrong("patch_size", "at most image_size", f.find("patch_size"));
  return v;
}

/// CLIP's image tower: class token, no patch bias, norms before and after the blocks.
VisionSpec read_clip(const Fields& f) {
  VisionSpec v = read_vit(f, {768, 12, 12, 0, 0, 3072, 0, 0}, 224, 32);
  v.extra_tokens = 1;
  const Count patches = Count(v.image / v.patch) * (v.image / v.patch);
  v.params = Count(v.width) + Count(v.patch_elements) * v.width + (patches + 1) * v.width + Count(4) * v.width +
             vit_block_params(v, 2 * v.width);
  return v;
}

/// SigLIP's image tower: patch bias, no class token. \param head: with the attention pooling head.
VisionSpec read_siglip(const Fields& f) {
  VisionSpec v = read_vit(f, {768, 12, 12, 0, 0, 3072, 0, 0}, 224, 16);
  const Count patches = Count(v.image / v.patch) * (v.image / v.patch);
  v.params = Count(v.patch_elements) * v.width + v.width + patches * v.width + Count(2) * v.width +
             vit_block_params(v, 2 * v.width);
  return v;
}

const Family* find_family(std::string_view model_type);

/// The decoder of a vision-language model: under `key`, or the top level where the keys are repeated there.
void build_text(const Fields& f, std::string_view key, std::string_view fallback_type, Architecture& spec) {
  const Fields text = f.child(key);
  const bool nested = f.find(key) != nullptr;
  const Fields& source = nested ? text : f;
  const std::string type = nested ? source.text_or("model_type", fallback_type) : std::string(fallback_type);
  read_typed(source, type, nested, ModelHead::kOwn, spec);
  // The decoder's own word on tying comes first; only where it says nothing does the outer config decide.
  if (nested && source.find("tie_word_embeddings") == nullptr && f.find("tie_word_embeddings") != nullptr) {
    spec.tied = f.flag("tie_word_embeddings", spec.tied);
  }
}

void build_llava(const Family&, const Fields& f, bool, Architecture& spec) {
  build_text(f, "text_config", "llama", spec);
  const Fields vision = f.child("vision_config");
  const std::string type = vision.text_or("model_type", "clip_vision_model");
  if (type != "clip_vision_model" && type != "siglip_vision_model") {
    vision.wrong("model_type", "clip_vision_model or siglip_vision_model", vision.find("model_type"));
    return;
  }
  VisionSpec v = type == "clip_vision_model" ? read_clip(vision) : read_siglip(vision);
  if (v.width > 0 && type == "clip_vision_model" && f.text_or("vision_feature_select_strategy", "default") == "full") {
    v.pooled_tokens = (v.image / v.patch) * (v.image / v.patch) + 1;
  }
  v.projector = {{v.width, spec.d_model}, {spec.d_model, spec.d_model}};
  v.params += projector_params(v, f.flag("multimodal_projector_bias", true));
  spec.vision = v;
}

void build_gemma3(const Family&, const Fields& f, bool, Architecture& spec) {
  build_text(f, "text_config", "gemma3_text", spec);
  if (f.find("vision_config") == nullptr) return;
  VisionSpec v = read_siglip(f.child("vision_config"));
  v.pooled_tokens = f.integer_or("mm_tokens_per_image", 256, 1);
  v.projector = {{v.width, spec.d_model}};
  v.params += projector_params(v, false) + v.width;  // the projector's norm
  spec.vision = v;
}

void build_qwen2_vl(const Family& family, const Fields& f, bool, Architecture& spec) {
  build_text(f, "text_config", "qwen2", spec);
  if (f.find("vision_config") == nullptr) return;
  const bool newer = family.model_type == "qwen2_5_vl";
  const Fields c = f.child("vision_config");
  VisionSpec v;
  v.kind = VisionKind::kDynamic;
  v.width = newer ? c.require("hidden_size") : c.require("embed_dim");
  v.layers = c.require("depth");
  v.heads = c.require("num_heads");
  v.patch = c.integer_or("patch_size|spatial_patch_size", 14, 1, 4096);
  v.merge = c.integer_or("spatial_merge_size", 2, 1, 64);
  const std::int64_t temporal = c.integer_or("temporal_patch_size", 2, 1, 64);
  const std::int64_t channels = c.integer_or("in_chans|in_channels", 3, 1, 64);
  v.patch_elements = channels * v.patch * v.patch * temporal;
  if (newer) {
    v.mlp_width = c.require("intermediate_size");
    v.mlp_matrices = 3;
    v.window = c.integer_or("window_size", 112, 1, 1 << 20) / (v.patch * v.merge) * v.merge;
    const json* global = c.find("fullatt_block_indexes");
    v.global_layers = global != nullptr && global->is_array() ? static_cast<std::int64_t>(global->size()) : 4;
    v.global_layers = std::min(v.global_layers, v.layers);
  } else {
    const auto ratio = c.number("mlp_ratio", 0).value_or(4);
    const double width = static_cast<double>(v.width) * ratio;
    if (!(width < static_cast<double>(kMaxDimension))) c.wrong("mlp_ratio", "a small number", c.find("mlp_ratio"));
    v.mlp_width = c.failed() ? 1 : static_cast<std::int64_t>(width);
  }
  const Count merged = Count(v.width) * v.merge * v.merge;
  const std::int64_t merged_width =
      merged.fits() && merged.u64() < INT64_MAX ? static_cast<std::int64_t>(merged.u64()) : INT64_MAX;
  v.projector = {{merged_width, merged_width}, {merged_width, spec.d_model}};
  const std::int64_t norm = newer ? v.width : 2 * v.width;
  v.params = Count(v.patch_elements) * v.width + vit_block_params(v, norm) + norm + projector_params(v, true);
  spec.vision = v;
}

/// DeepSeek-OCR: decoder without latent attention, SAM-B and CLIP-L in front (its published modelling code).
void build_deepseek_ocr(const Family&, const Fields& f, bool, Architecture& spec) {
  build_text(f, "language_config", "deepseek_v2", spec);
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

/// Llama 4: patches through a ViT with a class token, 2x2 of them shuffled into one, a two-layer adapter, a projection.
void build_llama4(const Family&, const Fields& f, bool, Architecture& spec) {
  build_text(f, "text_config", "llama4_text", spec);
  if (f.failed() || f.find("vision_config") == nullptr) return;
  const Fields c = f.child("vision_config");
  VisionSpec v = read_vit(c, {768, 34, 16, 0, 0, 5632, 0, 0}, 448, 14);
  v.extra_tokens = 1;
  const double ratio = c.number("pixel_shuffle_ratio", 0).value_or(0.5);
  v.merge = ratio > 0.01 && ratio <= 1 ? static_cast<std::int64_t>(1 / ratio + 0.5) : 1;
  const std::int64_t inner = c.integer_or("projector_input_dim", 4096, 1);
  const std::int64_t adapted = c.integer_or("projector_output_dim", 4096, 1);
  const std::int64_t outer = c.integer_or("vision_output_dim", 7680, 1);
  v.projector = {{v.mlp_width, inner}, {adapted, adapted}, {outer, spec.d_model}};
  if (f.failed()) return;
  const Count patches = Count(v.image / v.patch) * (v.image / v.patch);
  v.params = Count(v.patch_elements) * v.width + v.width + (patches + 1) * v.width + Count(4) * v.width +
             vit_block_params(v, 2 * v.width) + projector_params(v, false);
  spec.vision = v;
}

// ------------------------------------------------------------------ the table

constexpr Flag kTied{"tie_word_embeddings", true};
constexpr Flag kUntied{"tie_word_embeddings", false};
constexpr Defaults kLlamaDefaults{4096, 32, 32, 0, 0, 11008, 32000, 0};
constexpr Defaults kMistralDefaults{4096, 32, 32, 8, 0, 14336, 32000, 4096};
constexpr Defaults kGemma3Defaults{2304, 26, 8, 4, 256, 9216, 262208, 4096};

/// GPT-2's names and habits, which several families share.
constexpr Family gpt2_like(std::string_view type) {
  Family f{};
  f.model_type = type;
  f.layers = "n_layer";
  f.width = "n_embd";
  f.heads = "n_head";
  f.kv_heads = "";
  f.head_dim = "";
  f.mlp = "n_inner";
  f.mlp_factor = 4;
  f.positions = "n_positions";
  f.learned_positions = true;
  f.matrices = 2;
  f.qkv_bias = f.o_bias = f.mlp_bias = kYes;
  f.tied = kTied;
  f.norm = Norm::kLayer;
  return f;
}

/// Llama's names; nothing biased unless the config says so.
constexpr Family llama_like(std::string_view type) {
  Family f{};
  f.model_type = type;
  return f;
}

template <typename Change>
constexpr Family with(Family base, Change change) {
  change(base);
  return base;
}

// One entry, one paragraph.
// clang-format off
constexpr Family kFamilies[] = {
    // --- GPT-2 and its relatives
    gpt2_like("gpt2"),
    with(gpt2_like("nanogpt"), [](Family& f) { f.build = build_nanogpt; f.positions = "block_size"; f.mlp = ""; }),
    with(gpt2_like("gpt_bigcode"), [](Family& f) { f.build = build_gpt_bigcode; }),
    with(gpt2_like("gptj"), [](Family& f) { f.learned_positions = false; f.qkv_bias = f.o_bias = kNo; f.norms = 1;
      f.lm_head_bias = kYes; f.tied = kUntied; }),
    with(gpt2_like("codegen"), [](Family& f) { f.learned_positions = false; f.qkv_bias = f.o_bias = kNo;
      f.norms = 1; f.lm_head_bias = kYes; f.tied = kUntied; }),
    with(gpt2_like("gpt_neo"), [](Family& f) { f.layers = "num_layers"; f.width = "hidden_size";
      f.heads = "num_heads"; f.mlp = "intermediate_size"; f.positions = "max_position_embeddings"; f.qkv_bias = kNo;
      f.slide = Slide::kGptNeo; }),
    with(gpt2_like("gpt_neox"), [](Family& f) { f.layers = "num_hidden_layers"; f.width = "hidden_size";
      f.heads = "num_attention_heads"; f.mlp = "intermediate_size"; f.mlp_factor = 0; f.learned_positions = false;
      f.positions = "max_position_embeddings"; f.qkv_bias = f.o_bias = Flag{"attention_bias", true};
      f.tied = kUntied; }),
    with(gpt2_like("opt"), [](Family& f) { f.build = build_opt; f.layers = "num_hidden_layers";
      f.width = "hidden_size"; f.heads = "num_attention_heads"; f.mlp = "ffn_dim"; f.mlp_factor = 0;
      f.positions = "max_position_embeddings"; f.extra_position_rows = 2; }),
    with(gpt2_like("bloom"), [](Family& f) { f.build = build_bloom; f.layers = "n_layer|num_hidden_layers";
      f.width = "hidden_size|n_embed"; f.heads = "n_head|num_attention_heads"; f.learned_positions = false;
      f.positions = "seq_length"; }),
    with(gpt2_like("falcon"), [](Family& f) { f.build = build_falcon; f.layers = "num_hidden_layers|n_layer";
      f.width = "hidden_size"; f.heads = "num_attention_heads|n_head"; f.mlp = "ffn_hidden_size";
      f.learned_positions = false; f.positions = "max_position_embeddings";
      f.qkv_bias = f.o_bias = f.mlp_bias = Flag{"bias", false}; }),
    with(gpt2_like("mpt"), [](Family& f) { f.build = build_mpt; f.layers = "n_layers"; f.width = "d_model";
      f.heads = "n_heads"; f.mlp = ""; f.learned_positions = false; f.positions = "max_seq_len";
      f.qkv_bias = f.o_bias = f.mlp_bias = kNo; f.norm = Norm::kRms; }),
    // --- Llama and its relatives
    with(llama_like("llama"), [](Family& f) { f.mlp_bias = Flag{"mlp_bias"}; f.defaults = kLlamaDefaults; }),
    with(llama_like("granite"), [](Family& f) { f.mlp_bias = Flag{"mlp_bias"}; }),
    with(llama_like("smollm3"), [](Family& f) { f.mlp_bias = Flag{"mlp_bias"}; f.tied = kTied;
      f.slide = Slide::kQwen; }),
    with(llama_like("mistral"), [](Family& f) { f.qkv_bias = f.o_bias = kNo; f.slide = Slide::kEvery;
      f.defaults = kMistralDefaults; }),
    with(llama_like("mixtral"), [](Family& f) { f.qkv_bias = f.o_bias = kNo; f.slide = Slide::kEvery;
      f.experts = Experts::kEvery; }),
    with(llama_like("qwen2"), [](Family& f) { f.qkv_bias = kYes; f.o_bias = kNo; f.slide = Slide::kQwen; }),
    with(llama_like("qwen2_vl_text"), [](Family& f) { f.qkv_bias = kYes; f.o_bias = kNo; f.slide = Slide::kQwen; }),
    with(llama_like("qwen2_5_vl_text"), [](Family& f) { f.qkv_bias = kYes; f.o_bias = kNo; f.slide = Slide::kQwen;
      }),
    with(llama_like("qwen2_moe"), [](Family& f) { f.qkv_bias = Flag{"qkv_bias", true}; f.o_bias = kNo;
      f.slide = Slide::kQwen; f.experts = Experts::kQwen; }),
    with(llama_like("qwen3"), [](Family& f) { f.qk_norm = QkNorm::kPerHead; f.slide = Slide::kQwen;
      f.defaults.head_dim = 128; }),
    with(llama_like("qwen3_moe"), [](Family& f) { f.qk_norm = QkNorm::kPerHead; f.slide = Slide::kQwen;
      f.experts = Experts::kQwen; }),
    with(llama_like("qwen3_next"), [](Family& f) { f.build = build_qwen3_next; f.experts = Experts::kQwen;
      f.defaults.head_dim = 256; }),
    with(llama_like("gemma"), [](Family& f) { f.tied = kTied; f.defaults.head_dim = 256; }),
    with(llama_like("gemma2"), [](Family& f) { f.tied = kTied; f.norms = 4; f.slide = Slide::kEven;
      f.defaults.head_dim = 256; f.defaults.window = 4096; }),
    with(llama_like("gemma3_text"), [](Family& f) { f.tied = kTied; f.norms = 4; f.qk_norm = QkNorm::kPerHead;
      f.slide = Slide::kPattern; f.slide_pattern = 6; f.defaults = kGemma3Defaults; }),
    with(llama_like("phi3"), [](Family& f) { f.qkv_bias = f.o_bias = kNo; f.head_dim = ""; f.slide = Slide::kEvery;
      }),
    with(llama_like("phi"), [](Family& f) { f.matrices = 2; f.head_dim = "";
      f.qkv_bias = f.o_bias = f.mlp_bias = f.lm_head_bias = kYes; f.norm = Norm::kLayer; f.norms = 1;
      f.qk_norm = QkNorm::kPerHeadLayer; f.qk_norm_on = Flag{"qk_layernorm", false}; }),
    with(llama_like("stablelm"), [](Family& f) { f.build = build_stablelm; f.qkv_bias = Flag{"use_qkv_bias", false};
      f.o_bias = kNo; f.head_dim = ""; f.norm = Norm::kLayer; f.qk_norm = QkNorm::kFullWidth;
      f.qk_norm_on = Flag{"qk_layernorm", false}; }),
    with(llama_like("starcoder2"), [](Family& f) { f.matrices = 2; f.head_dim = "";
      f.qkv_bias = f.o_bias = f.mlp_bias = Flag{"use_bias", true}; f.norm = Norm::kLayer; f.tied = kTied;
      f.slide = Slide::kEvery; }),
    with(llama_like("cohere"), [](Family& f) { f.tied = kTied; f.norms = 1; f.qk_norm = QkNorm::kFullWidth;
      f.qk_norm_on = Flag{"use_qk_norm", false}; }),
    with(llama_like("cohere2"), [](Family& f) { f.tied = kTied; f.norms = 1; f.slide = Slide::kPattern;
      f.slide_pattern = 4; f.defaults.window = 4096; }),
    with(llama_like("olmo"), [](Family& f) { f.norm = Norm::kNone; }),
    with(llama_like("olmo2"), [](Family& f) { f.qk_norm = QkNorm::kFullWidth; }),
    with(llama_like("olmo3"), [](Family& f) { f.qk_norm = QkNorm::kFullWidth; f.slide = Slide::kPattern;
      f.slide_pattern = 4; f.defaults.window = 4096; }),
    with(llama_like("glm"), [](Family& f) { f.o_bias = kNo; }),
    with(llama_like("glm4"), [](Family& f) { f.o_bias = kNo; f.norms = 4; }),
    with(llama_like("chatglm"), [](Family& f) { f.build = build_chatglm; f.layers = "num_layers";
      f.head_dim = "kv_channels"; f.mlp = "ffn_hidden_size"; f.vocab = "padded_vocab_size";
      f.positions = "seq_length"; }),
    with(llama_like("gpt_oss"), [](Family& f) { f.qkv_bias = f.o_bias = Flag{"attention_bias", true};
      f.experts = Experts::kEvery; f.slide = Slide::kEven; f.defaults.window = 128; }),
    with(llama_like("llama4_text"), [](Family& f) { f.dense_mlp = "intermediate_size_mlp"; f.slide = Slide::kLlama4;
      f.experts = Experts::kInterleave; }),
    // --- DeepSeek and its relatives
    with(llama_like("deepseek_v2"), [](Family& f) { f.build = build_deepseek; f.qkv_bias = f.o_bias = kNo;
      f.experts = Experts::kDeepseek; }),
    with(llama_like("deepseek_v3"), [](Family& f) { f.build = build_deepseek; f.qkv_bias = f.o_bias = kNo;
      f.experts = Experts::kDeepseek; }),
    with(llama_like("kimi_k2"), [](Family& f) { f.build = build_deepseek; f.qkv_bias = f.o_bias = kNo;
      f.experts = Experts::kDeepseek; }),
    with(llama_like("glm4_moe"), [](Family& f) { f.o_bias = kNo; f.qk_norm = QkNorm::kPerHead;
      f.qk_norm_on = Flag{"use_qk_norm", false}; f.experts = Experts::kDeepseek; }),
    // --- state-space and hybrid
    with(llama_like("mamba"), [](Family& f) { f.build = build_mamba; f.tied = kTied; }),
    with(llama_like("mamba2"), [](Family& f) { f.build = build_mamba2; }),
    with(llama_like("jamba"), [](Family& f) { f.build = build_jamba; f.qkv_bias = f.o_bias = kNo; f.head_dim = "";
      f.experts = Experts::kJamba; }),
    // --- encoders and encoder-decoders
    with(llama_like("t5"), [](Family& f) { f.build = build_t5; f.tied = kTied; }),
    with(llama_like("mt5"), [](Family& f) { f.build = build_t5; f.tied = kUntied; }),
    with(llama_like("umt5"), [](Family& f) { f.build = build_t5; f.tied = kUntied; }),
    // --- vision
    with(llama_like("llava"), [](Family& f) { f.build = build_llava; }),
    with(llama_like("gemma3"), [](Family& f) { f.build = build_gemma3; }),
    with(llama_like("qwen2_vl"), [](Family& f) { f.build = build_qwen2_vl; }),
    with(llama_like("qwen2_5_vl"), [](Family& f) { f.build = build_qwen2_vl; }),
    with(llama_like("deepseek_vl_v2"), [](Family& f) { f.build = build_deepseek_ocr; }),
    with(llama_like("llama4"), [](Family& f) { f.build = build_llama4; }),
};
// clang-format on

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

// ------------------------------------------------------------------ number formats

WeightFormat format_of(DType dtype) {
  WeightFormat f;
  f.name = std::string(name(dtype));
  switch (dtype) {
    case DType::kFp64:
      f.bits_num = 64;
      break;
    case DType::kFp32:
    case DType::kTf32:
      f.bits_num = 32;
      break;
    case DType::kBf16:
    case DType::kFp16:
      f.bits_num = 16;
      break;
    case DType::kFp8:
    case DType::kInt8:
      f.bits_num = 8;
      break;
    case DType::kFp6:
      f.bits_num = 6;
      break;
    case DType::kFp4:
    case DType::kInt4:
      f.bits_num = 4;
      break;
    case DType::kMxfp4:
      f.bits_num = 17, f.bits_den = 4;
      break;  // 4 + 8/32
    case DType::kNvfp4:
      f.bits_num = 9, f.bits_den = 2;
      break;  // 4 + 8/16
    case DType::kNf4:
      f.bits_num = 9, f.bits_den = 2;
      break;  // 4 + 32/64
  }
  return f;
}

/// Integer weights in groups of `group` with a 16-bit scale and a zero point of the weights' own width.
WeightFormat grouped_format(std::int64_t bits, std::int64_t group) {
  WeightFormat f;
  f.name = "int" + std::to_string(bits);
  if (group > 0) {
    f.bits_num = bits * group + 16 + bits;
    f.bits_den = group;
  } else {
    f.bits_num = bits;
  }
  return f;
}

/// torch_dtype of the file. float32 says how a checkpoint was saved, not what its matmuls run in: not taken.
std::optional<DType> stated_dtype(const Fields& f) {
  for (const Fields& source : {f, f.child("text_config"), f.child("language_config")}) {
    const json* value = source.find("torch_dtype|dtype");
    if (value == nullptr || !value->is_string()) continue;
    const auto dtype = parse_dtype(value->get<std::string>());
    if (dtype && *dtype != DType::kFp32) return dtype;
    return std::nullopt;
  }
  return std::nullopt;
}

/// True if some name that is not of one layer mentions `part`.
bool excludes(const json* names, std::string_view part) {
  if (names == nullptr || !names->is_array()) return false;
  for (const json& entry : *names) {
    if (!entry.is_string()) continue;
    const std::string text = entry.get<std::string>();
    if (text.find(part) == std::string::npos) continue;
    const bool one_layer = std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!one_layer) return true;
  }
  return false;
}

/// `quantization_config`: which matrices are stored how, and the operands' dtype where it decides it.
void read_quantization(const Fields& f, Architecture& spec) {
  WeightStorage& s = spec.storage;
  const DType base = spec.compute_dtype.value_or(DType::kBf16);
  s.plain = format_of(base);
  const json* quantization = f.find("quantization_config");
  if (quantization == nullptr) quantization = f.child("text_config").find("quantization_config");
  if (quantization == nullptr || !quantization->is_object()) return;
  std::optional<Error> ignored;  // a strange field here costs the bytes, not the FLOP
  const Fields q(*quantization, f.place() + "quantization_config.", &ignored);
  s.method = q.text_or("quant_method", q.text_or("quant_algo", ""));
  s.attention = s.mlp = s.experts = true;
  if (s.method == "mxfp4") {
    s.quantised = format_of(DType::kMxfp4);
    s.attention = s.mlp = false;  // routed experts only (gpt-oss)
  } else if (s.method == "fp8" || s.method == "fbgemm_fp8") {
    s.quantised = format_of(DType::kFp8);
    const json* block = q.find("weight_block_size");
    if (block != nullptr && block->is_array() && block->size() == 2 && (*block)[0].is_number_integer() &&
        (*block)[1].is_number_integer()) {
      const std::int64_t rows = (*block)[0].get<std::int64_t>(), columns = (*block)[1].get<std::int64_t>();
      if (rows > 0 && columns > 0 && rows <= 65536 && columns <= 65536) {  // one FP32 scale per block
        s.quantised.bits_num = 8 * rows * columns + 32;
        s.quantised.bits_den = rows * columns;
      }
    }
    if (q.text_or("activation_scheme", "dynamic") != "none") spec.compute_dtype = DType::kFp8;
  } else if (s.method == "awq" || s.method == "gptq") {
    const std::int64_t bits = q.integer_or("bits|w_bit", 4, 2, 8);
    const std::int64_t group = q.integer("group_size|q_group_size", -1, 1 << 20).value_or(128);
    s.quantised = grouped_format(bits, group);
  } else if (s.method == "bitsandbytes") {
    if (q.flag("load_in_8bit|_load_in_8bit", false)) {
      s.quantised = format_of(DType::kInt8);
    } else {
      s.quantised = format_of(q.text_or("bnb_4bit_quant_type", "fp4") == "nf4" ? DType::kNf4 : DType::kFp4);
      s.quantised.bits_num = 9, s.quantised.bits_den = 2;
      if (q.flag("bnb_4bit_use_double_quant", false)) {  // 4 + 8/64 + 32/(64*256)
        s.quantised.bits_num = 4 * 16384 + 2048 + 32;
        s.quantised.bits_den = 16384;
      }
    }
  } else if (s.method == "compressed-tensors" || s.method == "modelopt") {
    const json* groups = q.find("config_groups");
    const json* weights = nullptr;
    const json* activations = nullptr;
    if (groups != nullptr && groups->is_object() && !groups->empty()) {
      const Fields group(groups->begin().value(), "", &ignored);
      weights = group.find("weights");
      activations = group.find("input_activations");
    }
    const std::string algorithm = q.text_or("quant_algo", "");
    if (weights != nullptr && weights->is_object()) {
      const Fields w(*weights, "", &ignored);
      const std::int64_t bits = w.integer_or("num_bits", 8, 2, 16);
      const std::int64_t size = w.integer("group_size", -1, 1 << 20).value_or(0);
      const bool is_float = w.text_or("type", "int") == "float";
      if (is_float) {
        s.quantised = bits == 4 ? format_of(DType::kNvfp4) : format_of(DType::kFp8);
      } else {
        s.quantised = size > 0 ? grouped_format(bits, size) : grouped_format(bits, 0);
      }
      if (activations != nullptr && activations->is_object()) {
        const Fields a(*activations, "", &ignored);
        const std::int64_t width = a.integer_or("num_bits", 8, 2, 16);
        if (a.text_or("type", "int") == "float") {
          spec.compute_dtype = width == 4 ? DType::kNvfp4 : DType::kFp8;
        } else if (width == 8) {
          spec.compute_dtype = DType::kInt8;
        }
      }
    } else if (algorithm == "FP8") {
      s.quantised = format_of(DType::kFp8);
      spec.compute_dtype = DType::kFp8;
    } else if (algorithm == "NVFP4") {
      s.quantised = format_of(DType::kNvfp4);
      spec.compute_dtype = DType::kNvfp4;
    } else {
      s.known = false;
    }
  } else {
    s.known = false;
  }
  const json* skipped = q.find("modules_to_not_convert|ignore|ignored_layers|llm_int8_skip_modules");
  if (excludes(skipped, "self_attn")) s.attention = false;
  if (excludes(skipped, "mlp") && s.method != "mxfp4" && !excludes(skipped, "mlp.gate")) s.mlp = s.experts = false;
  if (ignored) s.known = false;
}

// ------------------------------------------------------------------ the own schema

MixerSpec read_own_attention(const Fields& f) {
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
    for (const std::string& unknown : e.unknown_keys({"repeat", "attention", "mlp", "cross"})) {
      e.wrong(unknown, "one of repeat, attention, mlp, cross", e.find(unknown));
    }
    LayerSpec layer;
    layer.repeat = e.integer_or("repeat", 1, 1);
    if (e.find("attention") != nullptr) layer.mixer = read_own_attention(e.child("attention"));
    if (e.find("mlp") != nullptr) layer.mlp = read_own_mlp(e.child("mlp"));
    if (e.find("cross") != nullptr) {
      const Fields c = e.child("cross");
      layer.cross = CrossSpec{c.require("heads"), c.require("head_dim"), {}, {}};
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

void read_own(const Fields& f, std::optional<Error>* problem, Architecture& spec) {
  for (const std::string& unknown :
       f.unknown_keys({"d_model", "vocab_size", "tied", "layers", "encoder", "dtype", "family"})) {
    f.wrong(unknown, "one of d_model, vocab_size, tied, layers, encoder, dtype", f.find(unknown));
  }
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
  const auto read = [&dtype](const char* key) -> std::optional<DType> {
    const json* value = dtype.find(key);
    if (value == nullptr) return std::nullopt;
    const auto parsed = value->is_string() ? parse_dtype(value->get<std::string>()) : std::nullopt;
    if (!parsed) dtype.wrong(key, "a number format such as bf16 or fp8", value);
    return parsed;
  };
  spec.compute_dtype = read("compute");
  spec.storage.plain = format_of(read("weights").value_or(spec.compute_dtype.value_or(DType::kBf16)));
  spec.kv_dtype = read("kv");
}

/// Messages about a missing type say how to go on.
std::string ways_on() {
  return "name the family that it is like (--as FAMILY, or model_type), or describe it as {\"d_model\", "
         "\"vocab_size\", "
         "\"layers\": [...]} or {\"params\": N}; mfu flops --list prints what is known";
}

/// True if `f` has what the generic reader needs to count a decoder.
bool looks_like_decoder(const Fields& f) {
  return f.find("hidden_size|d_model|n_embd|dim") != nullptr &&
         f.find("num_hidden_layers|n_layer|n_layers|num_layers") != nullptr &&
         f.find("num_attention_heads|n_head|n_heads|num_heads") != nullptr && f.find("vocab_size") != nullptr;
}

/// The object with the language model of a config whose type nobody knows: itself, or a part by its usual name.
Fields decoder_part(const Fields& f) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config", "decoder_config"}) {
    const json* part = f.find(key);
    if (part != nullptr && part->is_object()) return decoder_part(f.child(key));
  }
  return f;
}

/// Keys of `f` that tell of parts which the generic reader does not know: those are refused, never counted as a plain
/// decoder. nullptr: none.
const char* beyond_generic(const Fields& f) {
  for (const char* key : {"conv_dim",
                          "num_feat_extract_layers",
                          "image_size",
                          "patch_size",
                          "num_mel_bins",
                          "num_codebooks",
                          "codebook_size",
                          "type_vocab_size",
                          "hidden_size_per_layer_input",
                          "per_layer_config",
                          "swa_num_key_value_heads",
                          "index_n_heads",
                          "sparse_attention_config",
                          "num_global_key_value_heads",
                          "max_relative_positions",
                          "num_random_blocks",
                          "is_encoder_decoder",
                          "kv_lora_rank",
                          "index_topk",
                          "linear_num_key_heads",
                          "linear_num_heads",
                          "linear_attn_config",
                          "mamba_d_state",
                          "ssm_state_size",
                          "state_size",
                          "mamba_num_heads",
                          "conv_L_cache",
                          "hybrid_override_pattern",
                          "layers_block_type",
                          "attn_type_list",
                          "encoder_layers",
                          "num_encoder_layers",
                          "block_configs",
                          "hc_mult",
                          "altup_num_inputs",
                          "num_kv_shared_layers",
                          "cross_attention_layers",
                          "rwkv",
                          "block_types",
                          "zero_expert_num",
                          "lru_width"}) {
    const json* value = f.find(key);
    if (value == nullptr || (value->is_number() && value->get<double>() == 0) ||
        (value->is_boolean() && !value->get<bool>()))
      continue;
    return key;
  }
  return nullptr;
}

/// A dense or mixture-of-experts decoder by the usual key names, for types that nobody has heard of.
void read_generic(const Fields& f, std::string_view type, ModelHead head, Architecture& spec) {
  const Fields text = decoder_part(f);
  const std::string inner = text.text_or("model_type", type);
  if (&text.object() != &f.object() && (find_row(inner) != nullptr || find_family(inner) != nullptr)) {
    read_typed(text, inner, true, head, spec);
    spec.assumed.push_back("model_type: \"" + std::string(type) + "\" is not known; only its language model, " + inner +
                           ", is counted");
    return;
  }
  const json* list = f.find("architectures");
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string() &&
      list->front().get<std::string>().ends_with("ForMaskedLM")) {
    f.problem(f.place() + "model_type: \"" + std::string(type) +
              "\" is not known, and its class is that of an encoder; nearest: " + nearest_model_types(type) + "; " +
              ways_on());
    return;
  }
  if (const char* key = beyond_generic(text)) {
    f.problem(f.place() + "model_type: \"" + std::string(type) + "\" is not known, and its " + key +
              " is beyond a plain decoder; nearest: " + nearest_model_types(type) + "; " + ways_on());
    return;
  }
  const FamilyRow* row = generic_row();
  build_row(*row, text, head, spec);
  spec.assumed.push_back("model_type: \"" + std::string(type) +
                         "\" is not known; counted as a decoder by the usual key names, without biases");
}

/// EAGLE-3's draft head: one layer that sees the hidden state beside the embedding, three of the target's states in, an
/// output matrix of its own vocabulary (arXiv:2503.01840 and its published code). The embedding is the target's.
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

/// What the class in `architectures` puts behind the layers. A class that is not known is taken for the family's own,
/// and said.
ModelHead head_of(const Fields& f, Architecture& spec) {
  const json* list = f.find("architectures");
  if (list == nullptr || !list->is_array() || list->empty() || !list->front().is_string()) return ModelHead::kOwn;
  const std::string name = list->front().get<std::string>();
  const auto ends = [&name](std::string_view word) { return name.ends_with(word); };
  for (std::string_view own :
       {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining", "DoubleHeadsModel",
        "ChatGLMModel", "ForSpeechSeq2Seq", "ForCTC", "ForSeq2SeqLM", "MTModel"}) {
    if (ends(own)) return ModelHead::kOwn;
  }
  if (ends("ForSequenceClassification") || ends("ForRewardModel") || ends("ForMultipleChoice") ||
      ends("ForImageClassification") || ends("ForVideoClassification") || ends("ForAudioClassification"))
    return ModelHead::kSequence;
  if (ends("ForTokenClassification") || ends("ForQuestionAnswering")) return ModelHead::kToken;
  if (ends("EncoderModel")) return ModelHead::kEncoder;
  if (ends("Model") || ends("Encoder") || ends("Transformer") || ends("Backbone")) return ModelHead::kNone;
  spec.assumed.push_back("architectures: \"" + name + "\" is not known; counted as the family's own class");
  return ModelHead::kOwn;
}

void read_any(const Fields& f, std::optional<Error>* problem, Architecture& spec) {
  if (const json* type = f.find("model_type")) {
    const std::string text = type->is_string() ? type->get<std::string>() : std::string();
    const Family* family = find_family(text);
    spec.family = text;
    const ModelHead head = head_of(f, spec);
    if (const json* list = f.find("architectures"); list != nullptr && list->is_array() && !list->empty() &&
                                                    list->front().is_string() &&
                                                    list->front().get<std::string>().ends_with("Eagle3")) {
      spec.assumed.clear();
      read_eagle3(f, spec);
    } else if ((family != nullptr || find_row(text) != nullptr) && text != "nanogpt") {
      read_typed(f, text, false, head, spec);
    } else if (!text.empty() && looks_like_decoder(decoder_part(f))) {
      read_generic(f, text, head, spec);
    } else {
      f.problem(f.place() + "model_type: expected a supported model type, got " + brief(*type) +
                "; nearest: " + nearest_model_types(text) + "; " + ways_on());
    }
    if (f.failed()) return;
    spec.compute_dtype = stated_dtype(f);
    read_quantization(f, spec);
    return;
  }
  if (f.find("n_layer") != nullptr && f.find("n_head") != nullptr && f.find("n_embd") != nullptr) {
    // nanoGPT's GPTConfig: block_size 1024, vocab_size 50304, bias true unless given.
    json args = f.object();
    if (f.find("block_size") == nullptr) args["block_size"] = 1024;
    if (f.find("vocab_size") == nullptr) args["vocab_size"] = 50304;
    const Fields filled(args, f.place(), problem);
    spec.family = "nanogpt";
    build_nanogpt(*find_family("nanogpt"), filled, false, spec);
    if (f.failed()) return;
    spec.compute_dtype = stated_dtype(f);
    read_quantization(f, spec);
    return;
  }
  if (f.find("layers") != nullptr) {
    read_own(f, problem, spec);
    return;
  }
  if (f.find("params") != nullptr) {
    spec.family = "params";
    spec.flat_params = f.require("params", 1, std::int64_t{1} << 60);
    spec.compute_dtype = stated_dtype(f);
    read_quantization(f, spec);
    return;
  }
  f.problem(f.place() + "model_type: expected a model type, but it is missing; " + ways_on());
}

}  // namespace

void read_typed(const Fields& f, std::string_view type, bool nested, ModelHead head, Architecture& spec) {
  if (const FamilyRow* row = find_row(type)) {
    build_row(*row, nested ? f.with_defaults(class_defaults(type)) : f, head, spec);
    return;
  }
  const Family* family = find_family(type);
  if (family == nullptr) {
    f.problem(f.place() + "model_type: unknown decoder \"" + std::string(type) + "\"");
    return;
  }
  family->build(*family, f, nested, spec);
  if (!f.failed()) replace_head(head, f, spec);
}

WeightFormat weight_format(DType dtype) { return format_of(dtype); }

Result<Architecture> read_model(std::string_view text, std::string_view place) {
  Result<json> parsed = parse_json(text, place.substr(0, place.find(": ")));
  if (!parsed) return parsed.error();
  return read_parsed_model(*parsed, place);
}

Result<Architecture> read_parsed_model(const json& config, std::string_view place) {
  if (!config.is_object()) return Error{std::string(place) + "expected a JSON object, got " + brief(config)};
  std::optional<Error> problem;
  Architecture spec;
  const Fields fields(config, std::string(place), &problem);
  read_any(fields, &problem, spec);
  if (problem) return *problem;
  const ParamGroups groups = count_params(spec);
  if (!groups.total().fits() || !groups.active().fits()) {
    return Error{std::string(place) + "params: the parameter count is beyond 2^64; check the dimensions"};
  }
  return spec;
}

std::string nearest_model_types(std::string_view type, std::size_t most) {
  std::string wanted;
  for (char c : type.substr(0, 64)) wanted += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (std::string_view known : known_model_types()) {
    // A shared beginning counts more than length: qwen3_omni is nearer to qwen3_vl than to any short name.
    const auto same = static_cast<std::size_t>(
        std::mismatch(wanted.begin(), wanted.end(), known.begin(), known.end()).first - wanted.begin());
    const std::size_t distance = 2 * edit_distance(wanted, known);
    ranked.emplace_back(distance > same ? distance - same : 0, known);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i)
    text += (i > 0 ? ", " : "") + std::string(ranked[i].second);
  return text;
}

std::vector<std::string_view> known_model_types() {
  std::vector<std::string_view> types;
  for (const Family& family : kFamilies) types.push_back(family.model_type);
  for (std::string_view type : row_types()) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  return types;
}

}  // namespace mfu

#include "core/model/flops_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/model/vision.h"

namespace mfu {
namespace {

constexpr std::pair<Convention, std::string_view> kConventions[] = {
    {Convention::kExact, "exact"},           {Convention::kPalm, "palm"},         {Convention::kNanogpt, "nanogpt"},
    {Convention::kTorchtitan, "torchtitan"}, {Convention::kMegatron, "megatron"}, {Convention::kKaplan, "kaplan"},
    {Convention::kChinchilla, "chinchilla"}, {Convention::k6nd, "6nd"},
};

Mask mask_of(const MixerSpec& m) noexcept { return {m.causal, m.window, m.chunk}; }

/// The pairs of the core: of sparse attention the chosen keys, which are as many as a window of that size would show.
Mask core_mask_of(const MixerSpec& m) noexcept {
  Mask mask = mask_of(m);
  if (m.top_keys > 0 && (mask.window == 0 || m.top_keys < mask.window)) mask.window = m.top_keys;
  return mask;
}

bool has_attention(const MixerSpec& m) noexcept {
  return m.kind == MixerKind::kAttention || m.kind == MixerKind::kLatent;
}

/// Elements of the recurrent state of one sequence in one layer.
Count state_elements(const MixerSpec& m) noexcept {
  if (m.kind == MixerKind::kMamba1 || m.kind == MixerKind::kMamba2) return Count(m.inner) * m.state;
  if (m.kind == MixerKind::kDeltaNet) return Count(m.kv_heads) * m.qk_dim * m.v_dim;
  return m.state_elements;
}

/// Cached elements per token in one layer.
Count cache_elements(const MixerSpec& m) noexcept {
  if (m.kind == MixerKind::kAttention) return Count(m.kv_heads) * (Count(m.qk_dim) + m.v_dim) + m.index_dim;
  if (m.kind == MixerKind::kLatent) return Count(m.kv_rank) + m.rope_dim + m.index_dim;
  return 0;
}

/// The passes over one group as the context mode sees them.
PassSeries series_of(const SequenceGroup& group, std::int64_t passes, ContextMode mode) noexcept {
  PassSeries series{group.past, group.fed, passes, true};
  if (mode == ContextMode::kFixed) series.grows = false;
  if (mode == ContextMode::kMax && passes > 1) {
    series.grows = false;
    const Count last = Count(group.past) + Count(group.fed) * (passes - 1);
    series.past = last.fits() && last.u64() <= INT64_MAX ? static_cast<std::int64_t>(last.u64()) : -1;
  }
  return series;
}

struct Totals {
  Count fed;        ///< tokens of all passes
  Count sequences;  ///< sequences that feed anything, per pass
};

Totals totals_of(const CountRequest& r) noexcept {
  Totals t;
  for (const SequenceGroup& g : r.sequences) {
    t.fed += Count(g.count) * g.fed * r.passes;
    if (g.fed > 0) t.sequences += g.count;
  }
  return t;
}

/// Sum over all sequences of the pairs in one layer with this mask.
Count pairs_of(const CountRequest& r, const Mask& mask, AttentionMode mode, ContextMode context) noexcept {
  Count sum;
  for (const SequenceGroup& g : r.sequences) {
    sum += attention_pairs(series_of(g, r.passes, context), mask, mode) * g.count;
  }
  return sum;
}

/// FLOP of LoRA adapters per token of one layer: 2*r*(K+N) for every adapted K x N matrix.
Count lora_flop_per_token(const LoraConfig& lora, const LayerSpec& layer, std::int64_t d) noexcept {
  const MixerSpec& m = layer.mixer;
  Count edges;
  const auto add = [&edges](bool on, Count in, Count out) {
    if (on) edges += in + out;
  };
  if (m.kind == MixerKind::kAttention) {
    add(lora.q, d, Count(m.heads) * m.qk_dim);
    add(lora.k, d, Count(m.kv_heads) * m.qk_dim);
    add(lora.v, d, Count(m.kv_heads) * m.v_dim);
    add(lora.o, Count(m.heads) * m.v_dim, d);
  } else if (m.kind == MixerKind::kLatent) {
    const Count query_out = Count(m.heads) * (Count(m.nope_dim) + m.rope_dim);
    add(lora.q, m.q_rank > 0 ? Count(m.q_rank) : Count(d), query_out);
    add(lora.k, d, Count(m.kv_rank) + m.rope_dim);
    add(lora.v, m.kv_rank, Count(m.heads) * (Count(m.nope_dim) + m.v_dim));
    add(lora.o, Count(m.heads) * m.v_dim, d);
  }
  const auto add_mlp = [&](std::int64_t width, std::int64_t times) {
    for (std::int64_t i = 0; i < (width > 0 ? 1 : 0); ++i) {
      Count before = edges;
      add(lora.gate && layer.mlp.matrices == 3, d, width);
      add(lora.up, d, width);
      add(lora.down, width, d);
      edges = before + (edges - before) * times;
    }
  };
  if (layer.mlp.experts > 0) {
    add_mlp(layer.mlp.expert_width, layer.mlp.top_k);
    add_mlp(layer.mlp.shared_width, 1);
  } else {
    add_mlp(layer.mlp.width, 1);
  }
  return Count(2) * lora.rank * edges * layer.repeat;
}

/// Forward components of one stack. `head_other` is what `other` holds besides layers.
struct StackCount {
  FlopParts parts;
  Count mlp_dense, mlp_routed, mlp_shared;
  Count absorbed_scores, absorbed_av;
  Count adapters;
};

/// \param tokens that run through the stack; \param encoder_tokens through cross key/value projections.
StackCount count_stack(const std::vector<LayerSpec>& layers, std::int64_t d, Count tokens, const CountRequest& r,
                       AttentionMode mode, ContextMode context, const std::optional<LoraConfig>& lora,
                       Count cross_pairs, Count encoder_tokens) noexcept {
  StackCount out;
  for (const LayerSpec& layer : layers) {
    const LayerWeights w = layer_weights(layer, d);
    const Count rows = tokens * 2 * layer.repeat;  // two FLOP per element and token
    const MixerSpec& m = layer.mixer;
    out.parts.qkv += rows * w.qkv;
    out.parts.o_proj += rows * w.o_proj;
    out.parts.other += rows * w.other + tokens * layer.repeat * state_flop_per_token(m);
    out.parts.router += rows * w.router;
    out.mlp_dense += rows * w.mlp_dense;
    out.mlp_routed += rows * w.expert * layer.mlp.top_k;
    out.mlp_shared += rows * w.mlp_shared;
    if (has_attention(m)) {
      const Count pairs = pairs_of(r, core_mask_of(m), mode, context) * 2 * layer.repeat * m.heads;
      out.parts.attn_scores += pairs * m.qk_dim;
      if (m.index_heads > 0) {  // the index scores every visible key
        const Count seen = pairs_of(r, mask_of(m), mode, context) * 2 * layer.repeat;
        out.parts.attn_scores += seen * m.index_heads * (Count(m.index_dim) + 1);  // and weighs its heads
      }
      out.parts.attn_av += pairs * m.v_dim;
      if (m.kind == MixerKind::kLatent) {
        out.absorbed_scores += pairs * (Count(m.kv_rank) + m.rope_dim);
        out.absorbed_av += pairs * m.kv_rank;
      }
    }
    if (layer.cross) {
      out.parts.cross_qkv += rows * w.cross_query + encoder_tokens * 2 * layer.repeat * w.cross_kv;
      out.parts.cross_o_proj += rows * w.cross_output;
      const Count core = cross_pairs * 2 * layer.repeat * layer.cross->heads * layer.cross->head_dim;
      out.parts.cross_scores += core;
      out.parts.cross_av += core;
    }
    if (lora) out.adapters += tokens * lora_flop_per_token(*lora, layer, d);
  }
  out.parts.mlp = out.mlp_dense + out.mlp_routed + out.mlp_shared;
  return out;
}

/// Backward FLOP of one stack: 2x where the weight is trained, 1x where gradients only pass through, 2x for the core.
Count backward_of(const FlopParts& p, const TrainableConfig& t) noexcept {
  if (t.none) return 0;
  const bool frozen = t.lora.has_value();  // every matrix of the base model
  const std::int64_t attention = t.attention && !frozen ? 2 : 1;
  const std::int64_t mlp = t.mlp && !frozen ? 2 : 1;
  const std::int64_t head = t.lm_head && !frozen ? 2 : 1;
  return (p.qkv + p.o_proj + p.cross_qkv + p.cross_o_proj) * attention + (p.mlp + p.router) * mlp + p.logits * head +
         p.other * (frozen ? 1 : 2) + (p.attn_scores + p.attn_av + p.cross_scores + p.cross_av) * 2;
}

Count core_of(const FlopParts& p) noexcept { return p.attn_scores + p.attn_av + p.cross_scores + p.cross_av; }

FlopParts operator+(const FlopParts& a, const FlopParts& b) noexcept {
  return {a.qkv + b.qkv,
          a.attn_scores + b.attn_scores,
          a.attn_av + b.attn_av,
          a.o_proj + b.o_proj,
          a.mlp + b.mlp,
          a.router + b.router,
          a.logits + b.logits,
          a.cross_qkv + b.cross_qkv,
          a.cross_scores + b.cross_scores,
          a.cross_av + b.cross_av,
          a.cross_o_proj + b.cross_o_proj,
          a.vision + b.vision,
          a.other + b.other};
}

FlopParts operator*(const FlopParts& a, Count n) noexcept {
  return {a.qkv * n,          a.attn_scores * n, a.attn_av * n,   a.o_proj * n,       a.mlp * n,
          a.router * n,       a.logits * n,      a.cross_qkv * n, a.cross_scores * n, a.cross_av * n,
          a.cross_o_proj * n, a.vision * n,      a.other * n};
}

/// Sum over attention layers of heads * (dq + dv), and of heads.
struct HeadSums {
  Count width, heads;
};

HeadSums head_sums(const std::vector<LayerSpec>& layers) noexcept {
  HeadSums s;
  for (const LayerSpec& layer : layers) {
    if (!has_attention(layer.mixer)) continue;
    const Count heads = Count(layer.repeat) * layer.mixer.heads;
    s.heads += heads;
    s.width += heads * (Count(layer.mixer.qk_dim) + layer.mixer.v_dim);
  }
  return s;
}

/// Router matrices of all layers, without biases.
Count router_weights(const Architecture& model) noexcept {
  Count sum;
  for (const LayerSpec& layer : model.layers) sum += Count(layer.repeat) * layer_weights(layer, model.d_model).router;
  return sum;
}

/// Parameters and sums that the named conventions need, worked out once per model.
struct ConventionTerms {
  Count active, position, embed, lm_head, router, matmul;
  HeadSums heads;
};

/// Forward FLOP by a named convention. `pairs_full` is the sum of fed x context over all passes, windows ignored;
/// `pairs_half2` is twice the half square: 2*n*p + n*n.
Count convention_forward(Convention c, const ConventionTerms& t, const Architecture& model, Count tokens,
                         Count pairs_full, Count pairs_half2) noexcept {
  const Count full = t.heads.width * pairs_full;
  switch (c) {
    case Convention::kExact:
      break;
    case Convention::kPalm:
      return tokens * 2 * t.active + full * 2;
    case Convention::kNanogpt:
      return tokens * 2 * (t.active - t.position) + full * 2;
    case Convention::kTorchtitan:
      return tokens * 2 * (t.active - (model.tied ? Count(0) : t.embed)) + full * 2;
    case Convention::kMegatron:
      return tokens * 2 * (t.matmul - t.router) + (model.is_encoder ? full * 2 : t.heads.width * pairs_half2);
    case Convention::kKaplan:
      return tokens * 2 * (t.active - t.embed - t.position - t.lm_head) + full;
    case Convention::kChinchilla:
      return tokens * 2 * t.matmul + tokens * 2 * model.vocab * model.d_model + full * 2 +
             pairs_full * 3 * t.heads.heads;
    case Convention::k6nd:
      return tokens * 2 * t.active;
  }
  return 0;
}

/// Pairs without windows, as the named conventions bill them.
struct PlainPairs {
  Count full, half2;
};

PlainPairs plain_pairs(const CountRequest& r, ContextMode context) noexcept {
  PlainPairs p;
  for (const SequenceGroup& g : r.sequences) {
    const PassSeries s = series_of(g, r.passes, context);
    const Count full = attention_pairs(s, {}, AttentionMode::kFull);
    p.full += full * g.count;
    // Per pass 2np + n^2 = 2n(p + n) - n^2.
    p.half2 += (full * 2 - Count(s.fed) * s.fed * s.passes) * g.count;
  }
  return p;
}

/// A tower that is the whole model: its parts under their own names, one image per sequence unless sizes are given.
FlopParts vision_parts(const Architecture& model, const CountRequest& r) noexcept {
  FlopParts parts;
  const auto add = [&](std::int64_t height, std::int64_t width, Count times) {
    const VisionCount v = count_image(*model.vision, height, width);
    parts.qkv += v.qkv * times;
    parts.attn_scores += v.attn_scores * times;
    parts.attn_av += v.attn_av * times;
    parts.o_proj += v.o_proj * times;
    parts.mlp += v.mlp * times;
    parts.other += (v.patch_embed + v.projector + v.other) * times;
  };
  if (r.images.empty()) {
    Count images;
    for (const SequenceGroup& g : r.sequences) images += g.count;
    const auto [height, width] = default_image(*model.vision);
    add(height, width, images);
  }
  for (const auto& [height, width] : r.images) add(height, width, 1);
  return parts;
}

/// The components, backward and recomputation; `total` by the exact rule.
FlopCount count_components(const Architecture& model, const FlopsOptions& o, const CountRequest& r) noexcept {
  FlopCount out;
  const Totals t = totals_of(r);
  out.tokens = t.fed;
  const bool train = is_training(r.phase);
  const Count repeats = train ? o.grad_accum : 1;
  if (model.flat_params) {
    out.parts.other = t.fed * 2 * *model.flat_params * repeats;
    out.forward = out.parts.other;
    out.backward = train && !o.trainable.none ? out.forward * (o.trainable.lora ? 1 : 2) : Count(0);
    if (train && o.recompute == Recompute::kFull) out.recompute = out.forward;
    out.total = out.forward + out.backward;
    out.tokens *= repeats;
    return out;
  }
  StackCount encoder;
  Count cross_pairs, encoder_tokens;
  if (model.is_encoder_decoder()) {
    for (const SequenceGroup& g : r.sequences) {
      cross_pairs += Count(g.count) * g.fed * r.passes * r.encoder_len;
      if (r.encoder_runs) encoder_tokens += Count(g.count) * r.encoder_len;
    }
    if (r.encoder_runs && r.encoder_len > 0) {
      Count sequences;
      for (const SequenceGroup& g : r.sequences) sequences += g.count;
      const SequenceGroup one{1, 0, r.encoder_len};
      CountRequest pass{r.phase, {&one, 1}, 1, 0, false, {}};
      encoder = count_stack(model.encoder, model.d_model, r.encoder_len, pass, o.attention, ContextMode::kAuto,
                            o.trainable.lora, 0, 0);
      encoder.parts.other += Count(r.encoder_len) * 2 * model.encoder_token_weights;
      encoder.parts = encoder.parts * sequences;
      encoder.mlp_dense *= sequences;
      encoder.mlp_routed *= sequences;
      encoder.mlp_shared *= sequences;
      encoder.adapters *= sequences;
    }
  }
  StackCount stack = count_stack(model.layers, model.d_model, t.fed, r, o.attention, o.context_mode, o.trainable.lora,
                                 cross_pairs, encoder_tokens);
  const Count head_other = t.fed * 2 * model.other_matmul_weights + t.sequences * r.passes * 2 * model.sequence_weights;
  const bool all = o.logits == LogitsMode::kAll || (o.logits == LogitsMode::kByPhase && (train || model.is_encoder));
  const Count rows = all ? t.fed : t.sequences * r.passes;
  FlopParts head;
  head.logits = rows * 2 * model.vocab * model.io_width();
  head.other = head_other;
  Count vision;
  if (model.vision && model.is_vision_only()) {
    head = head + vision_parts(model, r);
  } else if (model.vision) {
    for (const auto& [height, width] : r.images) vision += count_image(*model.vision, height, width).sum();
  }

  const Count layers_forward = stack.parts.sum() + encoder.parts.sum();
  const Count adapters = stack.adapters + encoder.adapters;
  out.encoder_forward = encoder.parts.sum();
  Count backward, recompute;
  if (train) {
    backward = backward_of(stack.parts + head, o.trainable);
    if (o.trainable.encoder) backward += backward_of(encoder.parts, o.trainable);
    if (o.trainable.vision && !o.trainable.none && !o.trainable.lora) backward += vision * 2;
    if (!o.trainable.none) backward += adapters * 2;
    const Count core = core_of(stack.parts) + core_of(encoder.parts);
    if (o.recompute == Recompute::kFull) recompute = layers_forward + adapters;
    if (o.recompute == Recompute::kSelective) recompute = core;
    if (o.recompute == Recompute::kFlash) {
      recompute = stack.parts.attn_scores + stack.parts.cross_scores + encoder.parts.attn_scores;
    }
  }
  if (o.mla_absorbed && !train && !stack.absorbed_scores.is_zero()) {
    const Count executed = stack.absorbed_scores + stack.absorbed_av;
    const Count modelled = stack.parts.attn_scores + stack.parts.attn_av;
    if (modelled < executed) recompute += executed - modelled;
  }
  out.parts = (stack.parts + encoder.parts + head) * repeats;
  out.parts.vision = vision * repeats;
  out.parts.other += adapters * repeats;
  out.mlp_dense = (stack.mlp_dense + encoder.mlp_dense) * repeats;
  out.mlp_routed = (stack.mlp_routed + encoder.mlp_routed) * repeats;
  out.mlp_shared = (stack.mlp_shared + encoder.mlp_shared) * repeats;
  out.absorbed_scores = stack.absorbed_scores * repeats;
  out.absorbed_av = stack.absorbed_av * repeats;
  out.encoder_forward *= repeats;
  out.forward = out.parts.sum();
  out.backward = backward * repeats;
  out.recompute = recompute * repeats;
  out.total = out.forward + out.backward;
  out.tokens *= repeats;
  return out;
}

FlopCount count_all(const Architecture& model, const ConventionTerms& terms, const FlopsOptions& o,
                    const CountRequest& r) noexcept {
  FlopCount out = count_components(model, o, r);
  if (o.convention == Convention::kExact || (model.flat_params && o.convention == Convention::k6nd)) return out;
  const bool train = is_training(r.phase);
  const PlainPairs pairs = plain_pairs(r, o.context_mode);
  const Count forward = convention_forward(o.convention, terms, model, totals_of(r).fed, pairs.full, pairs.half2);
  out.total = train ? forward * 3 * o.grad_accum : forward;
  return out;
}

// ---------------------------------------------------------------- bytes

/// Bits of `elements` stored in a format, as a Count of bytes times (8 * den) avoided: rounds down at the end only.
Count format_bytes(Count elements, const WeightFormat& f) noexcept {
  return (elements * f.bits_num).divided_by(8 * f.bits_den);
}

std::int64_t dtype_bits(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFp64:
      return 64;
    case DType::kFp32:
    case DType::kTf32:
      return 32;
    case DType::kBf16:
    case DType::kFp16:
      return 16;
    case DType::kFp8:
    case DType::kInt8:
      return 8;
    case DType::kFp6:
      return 6;
    default:
      return 4;
  }
}

/// Elements of the weights that one pass reads, by how they are stored. Experts apart, per expert.
struct PassWeights {
  Count plain, quantised;
};

struct ExpertBytes {
  long double expected = 0;
  Count min, max;
};

void add_layer_weights(const std::vector<LayerSpec>& layers, std::int64_t d, const WeightStorage& storage,
                       bool cross_kv, PassWeights& out) noexcept {
  for (const LayerSpec& layer : layers) {
    const LayerWeights w = layer_weights(layer, d);
    const Count n = layer.repeat;
    Count attention = w.qkv + w.o_proj;
    out.plain += n * (w.other + layer.mixer.extra_params + layer.norm_params + w.router);
    if (layer.cross) {
      attention += w.cross_query + w.cross_output;
      out.plain += n * layer.cross->extra_params;
      if (cross_kv) {
        attention += w.cross_kv;
        out.plain += n * layer.cross->kv_extra_params;
      }
    }
    const Count mlp = w.mlp_dense + w.mlp_shared;
    if (layer.mlp.experts > 0) {
      out.plain += n * (layer.mlp.router_extra_params + layer.mlp.shared_extra_params);
    } else {
      out.plain += n * layer.mlp.extra_params;
    }
    (storage.attention ? out.quantised : out.plain) += n * attention;
    (storage.mlp ? out.quantised : out.plain) += n * mlp;
  }
}

/// Mean number of distinct experts that `tokens` tokens hit when each picks k of E uniformly: E*(1-(1-k/E)^tokens).
long double distinct_experts(std::int64_t experts, std::int64_t top_k, long double tokens) noexcept {
  if (top_k >= experts) return tokens > 0 ? static_cast<long double>(experts) : 0.0L;
  const long double miss = std::log1p(-static_cast<long double>(top_k) / static_cast<long double>(experts));
  return -static_cast<long double>(experts) * std::expm1(tokens * miss);
}

ExpertBytes expert_bytes(const std::vector<LayerSpec>& layers, std::int64_t d, const WeightStorage& storage,
                         Count tokens) noexcept {
  ExpertBytes out;
  for (const LayerSpec& layer : layers) {
    const MlpSpec& f = layer.mlp;
    if (f.experts <= 0) continue;
    const WeightFormat& format = storage.experts ? storage.quantised : storage.plain;
    const Count matrices = layer_weights(layer, d).expert * layer.repeat;
    const Count extra = f.expert_extra_params * layer.repeat;
    const long double bytes_per_expert =
        static_cast<long double>(matrices.to_double()) * format.bits_num / (8.0L * format.bits_den) +
        static_cast<long double>(extra.to_double()) * storage.plain.bits_num / (8.0L * storage.plain.bits_den);
    out.expected += bytes_per_expert * distinct_experts(f.experts, f.top_k, tokens.to_double());
    Count most = tokens * f.top_k;
    if (Count(f.experts) < most) most = f.experts;
    const Count least = tokens.is_zero() ? Count(0) : Count(f.top_k);
    out.min += format_bytes(matrices * least, format) + format_bytes(extra * least, storage.plain);
    out.max += format_bytes(matrices * most, format) + format_bytes(extra * most, storage.plain);
  }
  return out;
}

Count rounded(long double value) noexcept {
  if (!(value >= 0) || value >= 9.2e18L) return Count(-1);
  return static_cast<std::int64_t>(std::llround(value));
}

WeightStorage effective_storage(const Architecture& model, const FlopsOptions& o) {
  if (!o.weight_format) return model.storage;
  WeightStorage storage;
  storage.plain = *o.weight_format;
  return storage;
}

std::int64_t kv_bits(const Architecture& model, const FlopsOptions& o) noexcept {
  if (o.kv_dtype) return dtype_bits(*o.kv_dtype);
  if (model.kv_dtype) return dtype_bits(*model.kv_dtype);
  if (model.compute_dtype == DType::kFp32 || model.compute_dtype == DType::kFp64)
    return dtype_bits(*model.compute_dtype);
  return 16;
}

ByteCount count_all_bytes(const Architecture& model, const WeightStorage& storage, const FlopsOptions& o,
                          const CountRequest& r) noexcept {
  ByteCount out;
  const Totals t = totals_of(r);
  Count tokens_per_pass, sequences;
  for (const SequenceGroup& g : r.sequences) {
    tokens_per_pass += Count(g.count) * g.fed;
    sequences += g.count;
  }
  const std::int64_t cache_bits = kv_bits(model, o);
  const bool encoder_runs = model.is_encoder_decoder() && r.encoder_runs;
  if (model.flat_params) {
    out.weights_read = format_bytes(*model.flat_params, storage.plain) * r.passes;
    out.weights_read_min = out.weights_read_max = out.weights_read;
    return out;
  }
  PassWeights weights;
  add_layer_weights(model.layers, model.d_model, storage, encoder_runs, weights);
  weights.plain += model.norm_params + model.attn_extra_params + model.other_matmul_weights + model.other_extra_params +
                   model.sequence_weights + model.lm_head_extra_params + Count(model.vocab) * model.io_width();
  PassWeights encoder;
  if (encoder_runs) {
    add_layer_weights(model.encoder, model.d_model, storage, true, encoder);
    encoder.plain += model.encoder_norm_params + model.encoder_attn_extra_params + model.encoder_token_weights;
  }
  const ExpertBytes experts = expert_bytes(model.layers, model.d_model, storage, tokens_per_pass);
  const Count dense = format_bytes(weights.plain, storage.plain) + format_bytes(weights.quantised, storage.quantised);
  const Count encoder_once =
      format_bytes(encoder.plain, storage.plain) + format_bytes(encoder.quantised, storage.quantised);
  out.weights_read = dense * r.passes + encoder_once;
  if (experts.expected > 0) out.experts_read = rounded(experts.expected * static_cast<long double>(r.passes));
  out.weights_read += out.experts_read;
  out.weights_read_min = (dense + experts.min) * r.passes + encoder_once;
  out.weights_read_max = (dense + experts.max) * r.passes + encoder_once;

  if (model.vision && !r.images.empty()) {
    const Count tower = format_bytes(model.vision->params, storage.plain);  // once per pass over the images
    out.weights_read += tower;
    out.weights_read_min += tower;
    out.weights_read_max += tower;
  }

  const Count encoder_tokens = model.is_encoder_decoder() ? sequences * r.encoder_len : Count(0);
  Count rows = t.fed;
  if (encoder_runs) rows += encoder_tokens;
  out.embedding_rows = format_bytes(rows * model.io_width(), storage.plain);
  if (model.is_encoder) return out;

  Count read, written, resident, resident_windowed;
  for (const LayerSpec& layer : model.layers) {
    const MixerSpec& m = layer.mixer;
    const Count n = layer.repeat;
    if (has_attention(m)) {
      const Count elements = cache_elements(m) * n;
      Count seen;
      for (const SequenceGroup& g : r.sequences) {
        seen += entries_seen(series_of(g, r.passes, o.context_mode), mask_of(m)) * g.count;
        const Count end = Count(g.past) + Count(g.fed) * r.passes;
        resident += elements * end * g.count;
        const std::int64_t limit = m.window > 0 ? m.window : m.chunk;
        resident_windowed += elements * (limit > 0 && Count(limit) < end ? Count(limit) : end) * g.count;
      }
      read += elements * seen;
      written += elements * t.fed;
    } else if (const Count state = state_elements(m) * n; !state.is_zero()) {
      // The recurrent state goes in and out once per pass and sequence, whatever the context.
      read += state * t.sequences * r.passes;
      written += state * t.sequences * r.passes;
      resident += state * sequences;
      resident_windowed += state * sequences;
    }
    if (layer.cross) {
      const Count elements = Count(2) * layer.cross->heads * layer.cross->head_dim * n * encoder_tokens;
      read += elements * r.passes;
      if (encoder_runs) written += elements;
      resident += elements;
      resident_windowed += elements;
    }
  }
  const auto cached = [cache_bits](Count elements) { return (elements * cache_bits).divided_by(8); };
  out.kv_read = cached(read);
  out.kv_write = cached(written);
  out.kv_resident_end = cached(resident);
  out.kv_resident_end_windowed = cached(resident_windowed);
  return out;
}

/// The `model` block of `mfu flops --json`.
std::string make_model_json(const Architecture& model) {
  using Json = nlohmann::ordered_json;
  Json j;
  j["family"] = model.family;
  const ParamGroups groups = count_params(model);
  const auto number = [](Count c) -> Json { return c.fits() ? Json(c.u64()) : Json(nullptr); };
  Json params;
  params["total"] = number(groups.total());
  params["active"] = number(groups.active());
  params["embedding"] = number(groups.embed);
  if (!groups.vision.is_zero()) params["vision"] = number(groups.vision);
  if (!groups.mtp.is_zero()) params["mtp"] = number(groups.mtp);
  params["non_embedding"] =
      number(groups.total() - groups.embed - groups.position - groups.lm_head - groups.vision - groups.mtp);
  params["matmul_per_token"] = number(matmul_weights_per_token(model));
  j["params"] = params;
  Count attention, ffn;
  Json group_size = nullptr;
  for (const auto* stack : {&model.layers, &model.encoder}) {
    for (const LayerSpec& layer : *stack) {
      const LayerWeights w = layer_weights(layer, model.d_model);
      attention += Count(layer.repeat) * (w.qkv + w.o_proj + w.other + w.cross_query + w.cross_output + w.cross_kv);
      ffn += Count(layer.repeat) * (w.mlp_dense + w.mlp_shared + w.expert * layer.mlp.top_k);
      if (group_size.is_null() && has_attention(layer.mixer) && layer.mixer.kv_heads > 0) {
        group_size = layer.mixer.heads / layer.mixer.kv_heads;
      }
    }
  }
  if (!model.assumed.empty()) j["assumed"] = model.assumed;
  j["gqa_group_size"] = group_size;
  j["attention_to_ffn_ratio"] = ffn.is_zero() || ffn.overflowed() || attention.overflowed()
                                    ? Json(nullptr)
                                    : Json(attention.to_double() / ffn.to_double());
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// This rank's share of what the whole job does.
struct Shares {
  double flop = 1;     ///< of every FLOP; the sum over ranks is the whole model
  double weights = 1;  ///< of the bytes of dense weights
  double experts = 1;
  double cache = 1;
  double tokens = 1;
};

Shares shares_of(const ParallelConfig& p, const Architecture& model) noexcept {
  Shares s;
  const double tp = static_cast<double>(p.tp), pp = static_cast<double>(p.pp), cp = static_cast<double>(p.cp),
               ep = static_cast<double>(p.ep), dp = static_cast<double>(p.dp);
  s.flop = 1.0 / (pp * std::max(tp * cp * dp, ep));
  s.weights = 1.0 / (tp * pp);
  s.experts = 1.0 / (pp * std::max(tp, ep));
  double head_split = tp;  // the cache of grouped heads splits no further than its heads; a latent not at all
  for (const LayerSpec& layer : model.layers) {
    if (has_attention(layer.mixer)) head_split = std::min(head_split, static_cast<double>(layer.mixer.kv_heads));
  }
  s.cache = 1.0 / (std::max(1.0, head_split) * pp * cp * dp);
  s.tokens = 1.0 / dp;
  return s;
}

}  // namespace

std::string_view name(Convention convention) noexcept {
  for (const auto& [value, text] : kConventions) {
    if (value == convention) return text;
  }
  return "exact";
}

std::string_view name(AttentionMode mode) noexcept {
  switch (mode) {
    case AttentionMode::kCausal:
      return "causal";
    case AttentionMode::kFull:
      return "full";
    case AttentionMode::kFullWindowed:
      return "full_windowed";
  }
  return "causal";
}

std::optional<Convention> parse_convention(std::string_view text) noexcept {
  for (const auto& [value, known] : kConventions) {
    if (known == text) return value;
  }
  if (text == "causal") return Convention::kExact;
  return std::nullopt;
}

std::optional<AttentionMode> parse_attention_mode(std::string_view text) noexcept {
  for (AttentionMode mode : {AttentionMode::kCausal, AttentionMode::kFull, AttentionMode::kFullWindowed}) {
    if (text == name(mode)) return mode;
  }
  return std::nullopt;
}

struct FlopsModel::Impl {
  Architecture spec;
  FlopsOptions options;
  WeightStorage storage;
  ConventionTerms terms;
  Shares shares;
  bool needs_context = false;
  std::string convention;
  std::string json;
};

FlopsModel FlopsModel::make(Architecture spec, FlopsOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->storage = effective_storage(spec, options);
  const ParamGroups groups = count_params(spec);
  impl->terms = {groups.active(),       groups.position,      groups.embed,
                 groups.lm_head,        router_weights(spec), matmul_weights_per_token(spec),
                 head_sums(spec.layers)};
  impl->shares = shares_of(options.parallel, spec);
  for (const LayerSpec& layer : spec.layers) impl->needs_context |= has_attention(layer.mixer);
  impl->convention = std::string(name(options.convention));
  if (options.convention == Convention::kExact && options.attention != AttentionMode::kCausal) {
    impl->convention += options.attention == AttentionMode::kFull ? "-full" : "-full_windowed";
  }
  impl->json = make_model_json(spec);
  impl->spec = std::move(spec);
  impl->options = std::move(options);
  FlopsModel model;
  model.impl_ = std::move(impl);
  return model;
}

std::optional<DType> FlopsModel::dtype() const noexcept { return impl_->spec.compute_dtype; }
const std::string& FlopsModel::convention() const noexcept { return impl_->convention; }
const std::string& FlopsModel::model_json() const noexcept { return impl_->json; }
const Architecture& FlopsModel::spec() const noexcept { return impl_->spec; }
const FlopsOptions& FlopsModel::options() const noexcept { return impl_->options; }

Result<FlopCount> FlopsModel::count_flop(const CountRequest& request) const {
  const Architecture& spec = impl_->spec;
  const Convention convention = impl_->options.convention;
  if (convention != Convention::kExact && convention != Convention::k6nd && spec.flat_params) {
    return Error{"convention " + impl_->convention +
                 ": needs the model's layers, but only `params` is given; use exact or 6nd"};
  }
  if (convention != Convention::kExact && spec.is_encoder_decoder()) {
    return Error{"convention " + impl_->convention + ": is not defined for an encoder-decoder model; use exact"};
  }
  FlopCount count = count_all(spec, impl_->terms, impl_->options, request);
  const std::pair<const char*, Count> parts[] = {{"qkv", count.parts.qkv},
                                                 {"attn_scores", count.parts.attn_scores},
                                                 {"attn_av", count.parts.attn_av},
                                                 {"o_proj", count.parts.o_proj},
                                                 {"mlp", count.parts.mlp},
                                                 {"router", count.parts.router},
                                                 {"logits", count.parts.logits},
                                                 {"cross_qkv", count.parts.cross_qkv},
                                                 {"cross_scores", count.parts.cross_scores},
                                                 {"vision", count.parts.vision},
                                                 {"other", count.parts.other},
                                                 {"forward", count.forward},
                                                 {"backward", count.backward},
                                                 {"recompute", count.recompute},
                                                 {"total", count.total},
                                                 {"absorbed", count.absorbed_scores + count.absorbed_av}};
  for (const auto& [part, value] : parts) {
    if (!value.fits())
      return Error{std::string("flop.") + part + ": the product is beyond 2^64; check the dimensions and the shape"};
  }
  return count;
}

Result<ByteCount> FlopsModel::count_bytes(const CountRequest& request) const {
  if (is_training(request.phase)) return Error{"bytes: a training step has no agreed minimum"};
  if (!impl_->storage.known) {
    return Error{"bytes: quantization_config.quant_method: unknown method \"" + impl_->storage.method +
                 "\"; give --weight-dtype"};
  }
  ByteCount count = count_all_bytes(impl_->spec, impl_->storage, impl_->options, request);
  const std::pair<const char*, Count> parts[] = {
      {"weights_read", count.weights_read}, {"weights_read_max", count.weights_read_max}, {"kv_read", count.kv_read},
      {"kv_write", count.kv_write},         {"kv_resident_end", count.kv_resident_end},   {"moved", count.moved()}};
  for (const auto& [part, value] : parts) {
    if (!value.fits())
      return Error{std::string("bytes.") + part + ": the product is beyond 2^64; check the dimensions and the shape"};
  }
  return count;
}

namespace {

/// `tokens` over `batch` sequences as evenly as integers allow: at most two groups.
std::size_t split_evenly(std::int64_t tokens, std::int64_t batch, std::int64_t past, SequenceGroup* out) noexcept {
  if (batch <= 0 || tokens <= 0) return 0;
  const std::int64_t longer = tokens % batch;
  std::size_t used = 0;
  if (longer > 0) out[used++] = {longer, past, tokens / batch + 1};
  if (batch > longer && tokens / batch > 0) out[used++] = {batch - longer, past, tokens / batch};
  return used;
}

bool negative(const Shape& s) noexcept {
  for (const auto& value :
       {s.batch, s.seq_len, s.context, s.new_tokens, s.tokens, s.gen_batch, s.gen_tokens, s.encoder_len}) {
    if (value && *value < 0) return true;
  }
  return false;
}

}  // namespace

Work FlopsModel::work(Phase phase, const Shape& shape) const noexcept {
  Work out;
  if (!impl_ || phase == Phase::kNone) return out;
  const Impl& m = *impl_;
  const Architecture& spec = m.spec;
  if (negative(shape)) {
    out.missing = "values >= 0";
    return out;
  }
  if (phase == Phase::kVision) {
    if (!spec.vision) {
      out.missing = "a model with a vision tower";
      return out;
    }
    Count flop;
    std::int64_t tokens = 0;
    const auto fixed = default_image(*spec.vision);
    if (!m.options.images.empty()) {
      for (const auto& [height, width] : m.options.images) flop += count_image(*spec.vision, height, width).sum();
      if (shape.batch) flop *= *shape.batch;
    } else if (fixed.first > 0) {
      flop = count_image(*spec.vision, fixed.first, fixed.second).sum() * shape.batch.value_or(1);
    } else {
      out.missing = "workload.images";
      return out;
    }
    out.flop_known = !flop.overflowed();
    out.flop = flop.to_double() * m.shares.flop;
    out.hfu_flop = out.flop;
    out.tokens = tokens;
    return out;
  }

  SequenceGroup groups[4];
  std::size_t used = 0;
  CountRequest request;
  request.phase = phase;
  request.images = m.options.images;
  request.encoder_len = shape.encoder_len.value_or(0);
  if (spec.is_encoder_decoder() && !shape.encoder_len) {
    out.missing = "encoder_len";
    return out;
  }
  request.encoder_runs = phase != Phase::kDecode;
  switch (phase) {
    case Phase::kTrain:
    case Phase::kForward:
    case Phase::kBackward:
    case Phase::kPrefill: {
      const std::int64_t past = phase == Phase::kPrefill ? shape.context.value_or(0) : 0;
      if (spec.is_vision_only()) {
        groups[used++] = {shape.batch.value_or(1), 0, 0};
      } else if (shape.seq_len) {
        std::int64_t batch = 1;
        if (shape.batch) {
          batch = *shape.batch;
        } else if (shape.tokens && *shape.seq_len > 0) {
          batch = std::max<std::int64_t>(1, *shape.tokens / *shape.seq_len);
        }
        groups[used++] = {batch, past, *shape.seq_len};
      } else if (shape.tokens) {
        used = split_evenly(*shape.tokens, shape.batch.value_or(1), past, groups);
      } else if (spec.is_encoder_decoder() && phase == Phase::kPrefill) {
        groups[used++] = {shape.batch.value_or(1), 0, 1};  // the encoder, and the first decoder token
      } else {
        out.missing = "seq_len or tokens";
        return out;
      }
      break;
    }
    case Phase::kDecode: {
      const bool context_matters = m.needs_context && !spec.flat_params;
      if (context_matters && !shape.context) {
        out.missing = "context";
        return out;
      }
      if (!shape.batch && !shape.seq_len && !shape.context && !shape.new_tokens && !shape.tokens) {
        out.missing = "batch, new_tokens or tokens";
        return out;
      }
      const std::int64_t fed = std::max<std::int64_t>(1, shape.seq_len.value_or(1));
      const std::int64_t batch = shape.batch.value_or(1);
      const Count per_pass = Count(batch) * fed;
      std::int64_t passes = 1;
      if (shape.new_tokens) {
        passes = *shape.new_tokens;
      } else if (shape.tokens && per_pass.fits() && per_pass.u64() > 0 && per_pass.u64() <= INT64_MAX) {
        passes = std::max<std::int64_t>(*shape.tokens > 0 ? 1 : 0,
                                        *shape.tokens / static_cast<std::int64_t>(per_pass.u64()));
      }
      groups[used++] = {batch, shape.context.value_or(0), fed};
      request.passes = passes;
      break;
    }
    case Phase::kMixed: {
      if (!shape.tokens && !shape.seq_len && !shape.gen_batch && !shape.gen_tokens) {
        out.missing = "tokens or gen_batch";
        return out;
      }
      if (shape.tokens) {
        used = split_evenly(*shape.tokens, shape.batch.value_or(1), 0, groups);
      } else if (shape.seq_len) {
        groups[used++] = {shape.batch.value_or(1), 0, *shape.seq_len};
      }
      const std::int64_t generating = shape.gen_batch.value_or(shape.gen_tokens.value_or(0));
      if (generating > 0) {
        if (m.needs_context && !spec.flat_params && !shape.context) {
          out.missing = "context";
          return out;
        }
        const std::int64_t fed = std::max(generating, shape.gen_tokens.value_or(generating));
        used += split_evenly(fed, generating, shape.context.value_or(0), groups + used);
      }
      break;
    }
    default:
      return out;
  }
  request.sequences = {groups, used};

  const FlopCount flop = count_all(spec, m.terms, m.options, request);
  if (flop.total.overflowed() || flop.recompute.overflowed()) {
    out.missing = "dimensions whose product stays below 2^128";
    return out;
  }
  out.flop_known = true;
  out.flop = flop.total.to_double() * m.shares.flop;
  out.hfu_flop = (flop.total.to_double() + flop.recompute.to_double()) * m.shares.flop;
  if (phase == Phase::kForward || phase == Phase::kBackward) {
    // A convention gives one number for the step; its parts are as the exact count has them.
    const double forward = flop.forward.to_double(), both = forward + flop.backward.to_double();
    const double part = both > 0 ? (phase == Phase::kForward ? forward : both - forward) / both : 0;
    const double recompute = phase == Phase::kForward ? 0 : out.hfu_flop - out.flop;
    out.flop *= part;
    out.hfu_flop = out.flop + recompute;
  }
  const double tokens = flop.tokens.to_double() * m.shares.tokens;
  out.tokens = tokens < 9.2e18 ? static_cast<std::int64_t>(std::llround(tokens)) : 0;

  if (!is_training(phase) && m.storage.known) {
    const ByteCount bytes = count_all_bytes(spec, m.storage, m.options, request);
    if (!bytes.moved().overflowed() && !bytes.weights_read_min.overflowed()) {
      const double experts = bytes.experts_read.to_double();
      out.bytes = (bytes.weights_read.to_double() - experts) * m.shares.weights + experts * m.shares.experts +
                  (bytes.kv_read.to_double() + bytes.kv_write.to_double()) * m.shares.cache;
      out.bytes_known = true;
    }
  }
  return out;
}

}  // namespace mfu

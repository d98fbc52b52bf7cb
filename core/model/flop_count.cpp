#include "core/model/flop_count.h"

#include <algorithm>
#include <span>

#include "core/model/vision.h"

namespace mfu {

Count FlopParts::sum() const noexcept {
  Count all;
  for (const auto& [name, part] : kFlopParts) all += this->*part;
  return all;
}

bool all_logits(const Architecture& model, LogitsMode mode, Phase phase) noexcept {
  return mode == LogitsMode::kAll || (mode == LogitsMode::kByPhase && (is_training(phase) || model.is_encoder));
}

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

Totals totals_of(const CountRequest& r) noexcept {
  Totals t;
  for (const SequenceGroup& g : r.sequences) {
    t.fed += Count(g.count) * g.fed * r.passes;
    if (g.fed > 0) t.sequences += g.count;
  }
  return t;
}

ImageContext image_context_of(const Architecture& model, const CountRequest& r) noexcept {
  ImageContext out;
  Count sequences, fed;
  for (const SequenceGroup& g : r.sequences) {
    sequences += g.count;
    fed += Count(g.count) * g.fed * r.passes;
  }
  Count shown;
  if (model.vision) {
    for (const auto& [height, width] : r.images) shown += count_image(*model.vision, height, width).tokens_out;
  } else if (r.encoder_runs) {
    shown = sequences * r.encoder_len;
  }
  out.kept = r.encoder_len > 0 ? sequences * r.encoder_len : shown;
  if (r.phase != Phase::kDecode) out.projected = shown;  // there they are in the cache
  // Images are spread evenly where only their sum is known.
  if (sequences.fits() && !sequences.is_zero())
    out.pairs = (fed * out.kept).divided_by(static_cast<std::int64_t>(sequences.u64()));
  return out;
}

namespace {

std::int64_t rows_of(std::int64_t tokens, std::int64_t share) noexcept {
  return share > 1 ? tokens / share + (tokens % share != 0 ? 1 : 0) : tokens;
}

/// The pairs of the core: of sparse attention the chosen keys, which are as many as a window of that size would show.
Mask core_mask_of(const MixerSpec& m) noexcept {
  Mask mask = mask_of(m);
  if (m.compress == 0 && m.top_keys > 0 && (mask.window == 0 || m.top_keys < mask.window)) mask.window = m.top_keys;
  return mask;
}

/// Sum over all sequences of the pairs in one layer with this mask, which has one row for `share` tokens.
Count pairs_of(const CountRequest& r, const Mask& mask, AttentionMode mode, ContextMode context,
               std::int64_t share = 1) noexcept {
  Count sum;
  for (const SequenceGroup& g : r.sequences) {
    const SequenceGroup rows{g.count, rows_of(g.past, share), rows_of(g.fed, share)};
    sum += attention_pairs(series_of(rows, r.passes, context), mask, mode) * g.count;
  }
  return sum;
}

/// Rows of all sequences and passes in a layer that has one for `share` tokens.
Count rows_in(const CountRequest& r, std::int64_t share) noexcept {
  Count sum;
  for (const SequenceGroup& g : r.sequences) sum += Count(g.count) * rows_of(g.fed, share) * r.passes;
  return sum;
}

/// The same where `context` text tokens stand in every sequence and everything sees everything.
Count joint_pairs_of(const CountRequest& r, std::int64_t context) noexcept {
  Count sum;
  for (const SequenceGroup& g : r.sequences) {
    const Count rows = Count(g.fed) + context;
    sum += rows * rows * g.count * r.passes;
  }
  return sum;
}

/// Sum over all sequences of the pairs with compressed entries in one layer, at most `most` per query.
Count compressed_pairs_of(const CountRequest& r, std::int64_t rate, std::int64_t most, AttentionMode mode,
                          ContextMode context) noexcept {
  Count sum;
  for (const SequenceGroup& g : r.sequences)
    sum += compressed_pairs(series_of(g, r.passes, context), rate, most, mode) * g.count;
  return sum;
}

/// Relative positions beside the keys of one layer: their projections and their scores [FLOP].
struct PositionFlop {
  Count projected, scored;
};

PositionFlop positions_of(const CountRequest& r, const MixerSpec& m, std::int64_t d) noexcept {
  PositionFlop out;
  if (m.position_rows == 0) return out;
  const auto rows = [&m](std::int64_t tokens) {
    return m.positions_grow ? std::min(Count(2) * tokens, Count(m.position_rows)) : Count(m.position_rows);
  };
  const Count width = Count(m.heads) * m.qk_dim;
  Count projected;  // rows
  std::int64_t longest = 0;
  for (const SequenceGroup& g : r.sequences) {
    out.scored += rows(g.fed) * g.fed * g.count * r.passes * 2 * width * m.position_scores;
    projected += rows(g.fed) * g.count * r.passes;
    longest = std::max(longest, g.fed);
  }
  if (!m.positions_per_sequence) projected = longest > 0 ? rows(longest) * r.passes : Count(0);
  out.projected = projected * 2 * d * width * m.position_projections;
  return out;
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
    const int adapted = (lora.gate && layer.mlp.matrices == 3 ? 1 : 0) + (lora.up ? 1 : 0) + (lora.down ? 1 : 0);
    if (width > 0) edges += (Count(d) + width) * adapted * times;
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
StackCount count_stack(std::span<const LayerSpec> layers, std::int64_t model_width, Count all_tokens,
                       const CountRequest& r, AttentionMode mode, ContextMode context,
                       const std::optional<LoraConfig>& lora, Count all_cross_pairs, Count encoder_tokens) noexcept {
  StackCount out;
  for (const LayerSpec& layer : layers) {
    if (layer.with_images && all_cross_pairs.is_zero()) continue;
    const std::int64_t d = layer.width > 0 ? layer.width : model_width;
    Count tokens = all_tokens, cross_pairs = all_cross_pairs;
    if (layer.rows_share > 1) {
      tokens = rows_in(r, layer.rows_share);
      cross_pairs = tokens * r.encoder_len;
    }
    const LayerWeights w = layer_weights(layer, d);
    const Count rows = tokens * 2 * layer.repeat;  // two FLOP per element and token
    const bool joint = layer.joint != Joint::kNone;
    const Count with_text = joint ? (tokens + encoder_tokens) * 2 * layer.repeat : rows;
    const Count read_after = layer.joint == Joint::kBoth ? with_text : rows;
    const MixerSpec& m = layer.mixer;
    out.parts.qkv += with_text * w.qkv;
    out.parts.o_proj += read_after * w.o_proj;
    out.parts.other += rows * w.other + tokens * layer.repeat * state_flop_per_token(m);
    out.parts.router += rows * w.router;
    out.mlp_dense += read_after * w.mlp_dense;
    out.mlp_routed += rows * w.expert * layer.mlp.top_k;
    out.mlp_shared += rows * w.mlp_shared;
    if (has_attention(m)) {
      Count seen =
          joint ? joint_pairs_of(r, r.encoder_len) : pairs_of(r, core_mask_of(m), mode, context, layer.rows_share);
      if (m.compress > 0) seen += compressed_pairs_of(r, m.compress, m.top_keys, mode, context);
      const Count pairs = seen * 2 * layer.repeat * m.heads;
      out.parts.attn_scores += pairs * m.qk_dim;
      const PositionFlop positions = positions_of(r, m, d);
      out.parts.qkv += positions.projected * layer.repeat;
      out.parts.attn_scores += positions.scored * layer.repeat;
      if (m.index_heads > 0) {  // the index scores every visible key, and weighs its heads
        const Count scored = m.compress > 0 ? compressed_pairs_of(r, m.compress, 0, mode, context)
                                            : pairs_of(r, mask_of(m), mode, context);
        out.parts.attn_scores +=
            scored * 2 * layer.repeat * m.index_heads * (Count(m.index_dim) + (m.index_plain ? 0 : 1));
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

/// Of the backward pass of the first layer, what LoRA leaves out: below the first adapter nothing is trained, so no
/// gradient is asked for of the inputs of the matrices up to it, nor of the adapters beside them. PyTorch computes
/// none (its products on torch 2.15 with peft 0.21 are counted in tests/frameworks).
Count below_first_adapter(std::span<const LayerSpec> layers, std::int64_t d, Count tokens, const CountRequest& r,
                          const FlopsOptions& o) noexcept {
  if (layers.empty() || layers.front().mixer.kind != MixerKind::kAttention || layers.front().joint != Joint::kNone)
    return 0;
  const LayerSpec& first = layers.front();
  const LoraConfig& lora = *o.trainable.lora;
  const FlopParts p = count_stack({&first, 1}, d, tokens, r, o.attention, o.context_mode, {}, 0, 0).parts;
  const std::int64_t n = first.repeat;
  const Count of_input = tokens * 2 * lora.rank;  // of the gradient of one element of an adapter's input
  Count saved = p.qkv.divided_by(n);
  const int inputs = (lora.q ? 1 : 0) + (lora.k ? 1 : 0) + (lora.v ? 1 : 0);
  if (inputs != 0) return saved + of_input * d * inputs;
  saved += (p.attn_scores + p.attn_av).divided_by(n) * 2 + p.o_proj.divided_by(n);
  if (lora.o) return saved + of_input * first.mixer.heads * first.mixer.v_dim;
  // Adapters of the MLP: the router and the matrices that they stand beside.
  const MlpSpec& f = first.mlp;
  const std::int64_t beside_input = f.matrices - 1;  // gate and up, or up alone
  const std::int64_t experts = f.experts > 0 ? f.top_k + (f.shared_width > 0 ? 1 : 0) : 1;
  saved += p.router.divided_by(n);
  if (lora.gate || lora.up)
    return saved + p.mlp.divided_by(n * f.matrices) * beside_input +
           of_input * d * ((lora.gate && f.matrices == 3 ? 1 : 0) + (lora.up ? 1 : 0)) * experts;
  const Count width = f.experts > 0 ? Count(f.expert_width) * f.top_k + f.shared_width : Count(f.width);
  return lora.down ? saved + p.mlp.divided_by(n) + of_input * width : Count(0);
}

Count core_of(const FlopParts& p) noexcept { return p.attn_scores + p.attn_av + p.cross_scores + p.cross_av; }

FlopParts operator+(FlopParts a, const FlopParts& b) noexcept {
  for (const auto& [name, part] : kFlopParts) a.*part += b.*part;
  return a;
}

FlopParts operator*(FlopParts a, Count n) noexcept {
  for (const auto& [name, part] : kFlopParts) a.*part *= n;
  return a;
}

constexpr Count StackCount::*kStackCounts[] = {
    &StackCount::mlp_dense,       &StackCount::mlp_routed,  &StackCount::mlp_shared,
    &StackCount::absorbed_scores, &StackCount::absorbed_av, &StackCount::adapters,
};

StackCount operator+(StackCount a, const StackCount& b) noexcept {
  a.parts = a.parts + b.parts;
  for (const auto count : kStackCounts) a.*count += b.*count;
  return a;
}

StackCount operator*(StackCount a, Count n) noexcept {
  a.parts = a.parts * n;
  for (const auto count : kStackCounts) a.*count *= n;
  return a;
}

/// A tower that is the whole model: its parts under their own names.
FlopParts vision_parts(const Architecture& model, const CountRequest& r) noexcept {
  const VisionCount v = count_images(model, *model.vision, r);
  FlopParts parts;
  parts.qkv = v.qkv;
  parts.attn_scores = v.attn_scores;
  parts.attn_av = v.attn_av;
  parts.o_proj = v.o_proj;
  parts.mlp = v.mlp;
  parts.other = v.patch_embed + v.projector + v.other;
  return parts;
}

/// Without layers: N parameters, 2 N FLOP per token.
FlopCount flat_count(const Architecture& model, const FlopsOptions& o, const CountRequest& r) noexcept {
  FlopCount out;
  const bool train = is_training(r.phase);
  const Count repeats = train ? o.grad_accum : 1;
  out.tokens = totals_of(r).fed * repeats;
  out.parts.other = out.tokens * 2 * *model.flat_params;
  out.forward = out.parts.other;
  out.backward = train && !o.trainable.none ? out.forward * (o.trainable.lora ? 1 : 2) : Count(0);
  if (train && o.recompute == Recompute::kFull) out.recompute = out.forward;
  out.total = out.forward + out.backward;
  return out;
}

/// Tokens beside their own that the layers see: an encoder's output, text, images.
struct ContextWork {
  Count pairs;   ///< with it, in one layer
  Count tokens;  ///< of it that are projected to keys and values
};

ContextWork context_of(const Architecture& model, const CountRequest& r) noexcept {
  ContextWork out;
  if (model.image_context) {
    const ImageContext seen = image_context_of(model, r);
    out = {seen.pairs, seen.projected};
  }
  if (!model.reads_context() && !model.is_encoder_decoder()) return out;
  for (const SequenceGroup& g : r.sequences) {
    out.pairs += Count(g.count) * g.fed * r.passes * r.encoder_len;
    // Text is projected in every pass, an encoder's output once.
    if (!model.is_encoder_decoder())
      out.tokens += Count(g.count) * r.passes * r.encoder_len;
    else if (r.encoder_runs)
      out.tokens += Count(g.count) * r.encoder_len;
  }
  return out;
}

/// The encoder of an encoder-decoder model over all sequences.
StackCount encoder_of(const Architecture& model, const FlopsOptions& o, const CountRequest& r) noexcept {
  if (!model.is_encoder_decoder() || !r.encoder_runs || r.encoder_len <= 0) return {};
  Count sequences;
  for (const SequenceGroup& g : r.sequences) sequences += g.count;
  const SequenceGroup one{1, 0, r.encoder_len};
  const CountRequest pass{r.phase, {&one, 1}, 1, 0, false, {}};
  StackCount out = count_stack(model.encoder, model.encoder_d(), r.encoder_len, pass, o.attention, ContextMode::kAuto,
                               o.trainable.lora, 0, 0);
  out.parts.other += Count(r.encoder_len) * 2 * model.encoder_token_weights;
  return out * sequences;
}

/// Matrices beside the layers, used once per token, sequence or row of logits.
FlopParts head_of(const Architecture& model, const FlopsOptions& o, const CountRequest& r, const Totals& t,
                  Count context_tokens) noexcept {
  const Count rows = all_logits(model, o.logits, r.phase) ? t.fed : t.sequences * r.passes;
  FlopParts head;
  const std::int64_t modules = is_training(r.phase) && model.trained_mtp ? model.trained_mtp->repeat : 0;
  head.logits = rows * 2 * model.vocab * model.io_width() * (1 + modules);
  head.other = t.fed * 4 * model.d_model * model.d_model * modules +
               t.fed * 2 * (model.other_matmul_weights + model.front_weights) +
               t.sequences * r.passes * 2 * (model.sequence_weights + model.front_sequence_weights) +
               context_tokens * 2 * model.context_token_weights;
  return model.is_vision_only() && model.vision ? head + vision_parts(model, r) : head;
}

/// The forward pass of one micro-batch.
struct ForwardCount {
  StackCount stack, encoder;
  FlopParts head;
  Count vision;
};

Count backward_of_step(const ForwardCount& f, const Architecture& model, const FlopsOptions& o, const CountRequest& r,
                       Count fed) noexcept {
  Count backward = backward_of(f.stack.parts + f.head, o.trainable);
  if (o.trainable.encoder) backward += backward_of(f.encoder.parts, o.trainable);
  if (o.trainable.vision && !o.trainable.none && !o.trainable.lora) backward += f.vision * 2;
  if (!o.trainable.none) backward += (f.stack.adapters + f.encoder.adapters) * 2;
  if (!o.trainable.none && o.trainable.lora)
    backward = backward - below_first_adapter(model.layers, model.d_model, fed, r, o);
  return backward;
}

/// FLOP that the backward pass computes again, and those that absorbed latent attention executes beyond the model's.
Count recompute_of(const ForwardCount& f, const FlopsOptions& o, bool train) noexcept {
  const FlopParts &stack = f.stack.parts, &encoder = f.encoder.parts;
  if (train && o.recompute == Recompute::kFull)
    return stack.sum() + encoder.sum() + f.stack.adapters + f.encoder.adapters;
  if (train && o.recompute == Recompute::kSelective) return core_of(stack) + core_of(encoder);
  if (train && o.recompute == Recompute::kFlash) return stack.attn_scores + stack.cross_scores + encoder.attn_scores;
  if (train || !o.mla_absorbed || f.stack.absorbed_scores.is_zero()) return 0;
  const Count executed = f.stack.absorbed_scores + f.stack.absorbed_av;
  const Count modelled = stack.attn_scores + stack.attn_av;
  return modelled < executed ? executed - modelled : Count(0);
}

}  // namespace

VisionCount count_images(const Architecture& model, const VisionSpec& tower, const CountRequest& r) noexcept {
  VisionCount out;
  const bool alone = model.is_vision_only();
  if (r.images.empty() && (alone || model.image_per_sequence)) {
    Count sequences;
    for (const SequenceGroup& g : r.sequences) sequences += alone || g.fed > 0 ? g.count : 0;
    const auto [height, width] = default_image(tower);
    return count_image(tower, height, width) * sequences;
  }
  if (r.phase == Phase::kDecode && !alone) return out;  // there the images are in the cache
  for (const auto& [height, width] : r.images) out += count_image(tower, height, width);
  return out;
}

FlopCount count_components(const Architecture& model, const FlopsOptions& o, const CountRequest& r) noexcept {
  if (model.flat_params) return flat_count(model, o, r);
  const Totals t = totals_of(r);
  const bool train = is_training(r.phase);
  const Count repeats = train ? o.grad_accum : 1;
  const ContextWork context = context_of(model, r);
  const auto stack_of = [&](std::span<const LayerSpec> layers) {
    return count_stack(layers, model.d_model, t.fed, r, o.attention, o.context_mode, o.trainable.lora, context.pairs,
                       context.tokens);
  };
  StackCount stack = stack_of(model.layers);
  if (train && model.trained_mtp) stack = stack + stack_of({&*model.trained_mtp, 1});
  const ForwardCount f{
      stack, encoder_of(model, o, r), head_of(model, o, r, t, context.tokens),
      model.vision && !model.is_vision_only() ? count_images(model, *model.vision, r).sum() : Count(0)};
  FlopCount out;
  out.tokens = t.fed * repeats;
  out.parts = (f.stack.parts + f.encoder.parts + f.head) * repeats;
  out.parts.vision = f.vision * repeats;
  out.parts.other += (f.stack.adapters + f.encoder.adapters) * repeats;
  out.mlp_dense = (f.stack.mlp_dense + f.encoder.mlp_dense) * repeats;
  out.mlp_routed = (f.stack.mlp_routed + f.encoder.mlp_routed) * repeats;
  out.mlp_shared = (f.stack.mlp_shared + f.encoder.mlp_shared) * repeats;
  out.absorbed_scores = f.stack.absorbed_scores * repeats;
  out.absorbed_av = f.stack.absorbed_av * repeats;
  out.encoder_forward = f.encoder.parts.sum() * repeats;
  out.forward = out.parts.sum();
  if (train) out.backward = backward_of_step(f, model, o, r, t.fed) * repeats;
  out.recompute = recompute_of(f, o, train) * repeats;
  out.total = out.forward + out.backward;
  return out;
}

}  // namespace mfu

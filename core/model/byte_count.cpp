#include "core/model/byte_count.h"

#include <cmath>

#include "core/model/flop_count.h"

namespace mfu {
namespace {

/// Elements of the recurrent state of one sequence in one layer.
Count state_elements(const MixerSpec& m) noexcept {
  if (m.kind == MixerKind::kMamba1 || m.kind == MixerKind::kMamba2) return Count(m.inner) * m.state;
  if (m.kind == MixerKind::kDeltaNet) return Count(m.kv_heads) * m.qk_dim * m.v_dim;
  return m.state_elements;
}

/// Cached elements per token in one layer.
Count cache_elements(const MixerSpec& m) noexcept {
  if (m.kind == MixerKind::kAttention) {
    const Count entry =
        Count(m.kv_heads) * (m.key_values == KeyValues::kOneVector ? Count(m.qk_dim) : Count(m.qk_dim) + m.v_dim);
    return m.compress > 0 ? entry : entry + m.index_dim;
  }
  if (m.kind == MixerKind::kLatent) return Count(m.kv_rank) + m.rope_dim + m.index_dim;
  return 0;
}

/// Bits of `elements` stored in a format, as a Count of bytes times (8 * den) avoided: rounds down at the end only.
Count format_bytes(Count elements, const WeightFormat& f) noexcept {
  return (elements * f.bits_num).divided_by(8 * f.bits_den);
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
                       bool cross_kv, bool images, PassWeights& out) noexcept {
  for (const LayerSpec& layer : layers) {
    if (layer.with_images && !images) continue;
    const LayerWeights w = layer_weights(layer, d);
    const Count n = layer.repeat;
    const Count copies = layer.streams, read_after = layer.joint == Joint::kKeys ? 1 : layer.streams;
    Count attention = w.qkv * copies + w.o_proj * read_after;
    out.plain += n * (w.other + layer.mixer.extra_params + layer.norm_params + w.router);
    if (layer.cross) {
      attention += w.cross_query + w.cross_output;
      out.plain += n * layer.cross->extra_params;
      if (cross_kv) {
        attention += w.cross_kv;
        out.plain += n * layer.cross->kv_extra_params;
      }
    }
    const Count mlp = w.mlp_dense * read_after + w.mlp_shared;
    if (layer.mlp.experts > 0)
      out.plain += n * (layer.mlp.router_extra_params + layer.mlp.shared_extra_params);
    else
      out.plain += n * layer.mlp.extra_params;
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

std::int64_t kv_bits(const Architecture& model, const FlopsOptions& o) noexcept {
  if (o.kv_dtype) return dtype_bits(*o.kv_dtype);
  if (model.kv_dtype) return dtype_bits(*model.kv_dtype);
  if (model.compute_dtype == DType::kFp32 || model.compute_dtype == DType::kFp64)
    return dtype_bits(*model.compute_dtype);
  return 16;
}

/// Elements of the cache and of recurrent states, over all layers.
struct CacheCount {
  Count read, written, resident, resident_windowed;

  void keep(Count elements, Count windowed) noexcept {
    resident += elements;
    resident_windowed += windowed;
  }
};

/// Compressed entries and their index keys of one group, one per `compress` tokens (DeepSeek-V4).
void add_compressed(const MixerSpec& m, std::int64_t layers, const SequenceGroup& g, const PassSeries& series,
                    Count end, CacheCount& out) noexcept {
  const Count entry = (Count(m.kv_heads) * m.qk_dim + m.index_dim) * layers * g.count;
  // Each pass reads all entries that exist at its end: the pairs of `fed` equal rows, divided by `fed`.
  const Count entries =
      g.fed > 0 ? compressed_pairs(series, m.compress, 0, AttentionMode::kFull).divided_by(g.fed) : Count(0);
  const Count at_end = end.divided_by(m.compress);
  out.read += entry * entries;
  out.written += entry * (at_end - Count(g.past).divided_by(m.compress));
  out.keep(entry * at_end, entry * at_end);
}

void add_attention_cache(const MixerSpec& m, std::int64_t layers, const CountRequest& r, ContextMode mode,
                         CacheCount& out) noexcept {
  const Count elements = cache_elements(m) * layers;
  const bool keeps = m.key_values != KeyValues::kReused;
  for (const SequenceGroup& g : r.sequences) {
    const PassSeries series = series_of(g, r.passes, mode);
    const Count end = Count(g.past) + Count(g.fed) * r.passes;
    out.read += elements * entries_seen(series, mask_of(m)) * g.count;
    if (m.compress > 0) add_compressed(m, layers, g, series, end, out);
    if (!keeps) continue;
    out.written += elements * g.count * g.fed * r.passes;
    const std::int64_t limit = m.window > 0 ? m.window : m.chunk;
    out.keep(elements * end * g.count, elements * (limit > 0 && Count(limit) < end ? Count(limit) : end) * g.count);
  }
}

/// \param sequences in all; \param fed those that feed anything; \param context_tokens of an encoder or of images;
/// \param context_written they are made in this work
CacheCount cache_of(const Architecture& model, const CountRequest& r, ContextMode mode, Count sequences, Count fed,
                    Count context_tokens, bool context_written) noexcept {
  CacheCount out;
  for (const LayerSpec& layer : model.layers) {
    if (has_attention(layer.mixer)) add_attention_cache(layer.mixer, layer.repeat, r, mode, out);
    if (const Count state = state_elements(layer.mixer) * layer.repeat; !state.is_zero()) {
      // The recurrent state is read and written once per pass and sequence, at any context.
      out.read += state * fed * r.passes;
      out.written += state * fed * r.passes;
      out.keep(state * sequences, state * sequences);
    }
    if (layer.cross) {
      const std::int64_t heads = layer.cross->kv_heads > 0 ? layer.cross->kv_heads : layer.cross->heads;
      const Count elements = Count(2) * heads * layer.cross->head_dim * layer.repeat * context_tokens;
      out.read += elements * r.passes;
      if (context_written) out.written += elements;
      out.keep(elements, elements);
    }
  }
  return out;
}

/// \param encoder_runs so that its weights are read too; \param images are seen by layers that attend to them
void add_weights(const Architecture& model, const WeightStorage& storage, const CountRequest& r, Count tokens_per_pass,
                 bool encoder_runs, bool images, ByteCount& out) noexcept {
  const auto bytes = [&storage](const PassWeights& w) {
    return format_bytes(w.plain, storage.plain) + format_bytes(w.quantised, storage.quantised);
  };
  PassWeights weights, encoder;
  add_layer_weights(model.layers, model.d_model, storage, encoder_runs, images, weights);
  weights.plain += model.norm_params + model.attn_extra_params + model.other_matmul_weights + model.other_extra_params +
                   model.sequence_weights + model.context_token_weights + model.lm_head_extra_params +
                   Count(model.vocab) * model.io_width();
  if (encoder_runs) {
    add_layer_weights(model.encoder, model.encoder_d(), storage, true, true, encoder);
    encoder.plain += model.encoder_norm_params + model.encoder_attn_extra_params + model.encoder_token_weights;
  }
  Count once = bytes(encoder);
  if (model.vision && r.phase != Phase::kDecode && (!r.images.empty() || model.image_per_sequence))
    once += format_bytes(model.vision->params, storage.plain);  // per pass over the images
  const ExpertBytes experts = expert_bytes(model.layers, model.d_model, storage, tokens_per_pass);
  if (experts.expected > 0) out.experts_read = rounded(experts.expected * static_cast<long double>(r.passes));
  const Count dense = bytes(weights);
  out.weights_read = dense * r.passes + once + out.experts_read;
  out.weights_read_min = (dense + experts.min) * r.passes + once;
  out.weights_read_max = (dense + experts.max) * r.passes + once;
}

}  // namespace

WeightStorage effective_storage(const Architecture& model, const FlopsOptions& o) {
  if (!o.weight_format) return model.storage;
  WeightStorage storage;
  storage.plain = *o.weight_format;
  return storage;
}

ByteCount count_all_bytes(const Architecture& model, const WeightStorage& storage, const FlopsOptions& o,
                          const CountRequest& r) noexcept {
  ByteCount out;
  if (model.flat_params) {
    out.weights_read = format_bytes(*model.flat_params, storage.plain) * r.passes;
    out.weights_read_min = out.weights_read_max = out.weights_read;
    return out;
  }
  const Totals t = totals_of(r);
  Count tokens_per_pass, sequences;
  for (const SequenceGroup& g : r.sequences) {
    tokens_per_pass += Count(g.count) * g.fed;
    sequences += g.count;
  }
  const ImageContext images = model.image_context ? image_context_of(model, r) : ImageContext{};
  const bool encoder_runs = model.is_encoder_decoder() ? r.encoder_runs : !images.projected.is_zero();
  add_weights(model, storage, r, tokens_per_pass, encoder_runs, !images.kept.is_zero(), out);

  const Count context_tokens = model.is_encoder_decoder() ? sequences * r.encoder_len : images.kept;
  const Count rows = encoder_runs && model.is_encoder_decoder() ? t.fed + context_tokens : t.fed;
  out.embedding_rows = format_bytes(rows * model.io_width(), storage.plain);
  if (model.is_encoder) return out;

  const CacheCount cache = cache_of(model, r, o.context_mode, sequences, t.sequences, context_tokens, encoder_runs);
  const std::int64_t cache_bits = kv_bits(model, o);
  const auto cached = [cache_bits](Count elements) { return (elements * cache_bits).divided_by(8); };
  out.kv_read = cached(cache.read);
  out.kv_write = cached(cache.written);
  out.kv_resident_end = cached(cache.resident);
  out.kv_resident_end_windowed = cached(cache.resident_windowed);
  return out;
}

}  // namespace mfu

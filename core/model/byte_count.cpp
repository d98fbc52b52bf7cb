#include "core/model/byte_count.h"

#include <cmath>

#include "core/model/flop_count.h"

namespace mfu {
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

std::int64_t kv_bits(const Architecture& model, const FlopsOptions& o) noexcept {
  if (o.kv_dtype) return dtype_bits(*o.kv_dtype);
  if (model.kv_dtype) return dtype_bits(*model.kv_dtype);
  if (model.compute_dtype == DType::kFp32 || model.compute_dtype == DType::kFp64)
    return dtype_bits(*model.compute_dtype);
  return 16;
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
  const Totals t = totals_of(r);
  Count tokens_per_pass, sequences;
  for (const SequenceGroup& g : r.sequences) {
    tokens_per_pass += Count(g.count) * g.fed;
    sequences += g.count;
  }
  const std::int64_t cache_bits = kv_bits(model, o);
  const ImageContext images = model.image_context ? image_context_of(model, r) : ImageContext{};
  const bool encoder_runs = model.is_encoder_decoder() ? r.encoder_runs : !images.projected.is_zero();
  if (model.flat_params) {
    out.weights_read = format_bytes(*model.flat_params, storage.plain) * r.passes;
    out.weights_read_min = out.weights_read_max = out.weights_read;
    return out;
  }
  PassWeights weights;
  add_layer_weights(model.layers, model.d_model, storage, encoder_runs, !images.kept.is_zero(), weights);
  weights.plain += model.norm_params + model.attn_extra_params + model.other_matmul_weights + model.other_extra_params +
                   model.sequence_weights + model.context_token_weights + model.lm_head_extra_params +
                   Count(model.vocab) * model.io_width();
  PassWeights encoder;
  if (encoder_runs) {
    add_layer_weights(model.encoder, model.encoder_d(), storage, true, true, encoder);
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

  if (model.vision && r.phase != Phase::kDecode && (!r.images.empty() || model.image_per_sequence)) {
    const Count tower = format_bytes(model.vision->params, storage.plain);  // once per pass over the images
    out.weights_read += tower;
    out.weights_read_min += tower;
    out.weights_read_max += tower;
  }

  const Count encoder_tokens = model.is_encoder_decoder() ? sequences * r.encoder_len : images.kept;
  Count rows = t.fed;
  if (encoder_runs && model.is_encoder_decoder()) rows += encoder_tokens;
  out.embedding_rows = format_bytes(rows * model.io_width(), storage.plain);
  if (model.is_encoder) return out;

  Count read, written, resident, resident_windowed;
  for (const LayerSpec& layer : model.layers) {
    const MixerSpec& m = layer.mixer;
    const Count n = layer.repeat;
    if (has_attention(m)) {
      const Count elements = cache_elements(m) * n;
      const bool keeps = m.key_values != KeyValues::kReused;
      // Compressed entries and their index keys, one per `compress` tokens (DeepSeek-V4).
      const Count compressed = m.compress > 0 ? (Count(m.kv_heads) * m.qk_dim + m.index_dim) * n : Count(0);
      Count seen;
      for (const SequenceGroup& g : r.sequences) {
        const PassSeries series = series_of(g, r.passes, o.context_mode);
        seen += entries_seen(series, mask_of(m)) * g.count;
        const Count end = Count(g.past) + Count(g.fed) * r.passes;
        if (m.compress > 0) {
          // Each pass reads all entries that there are at its end: what `fed` equal rows see, divided by them.
          const Count entries =
              g.fed > 0 ? compressed_pairs(series, m.compress, 0, AttentionMode::kFull).divided_by(g.fed) : Count(0);
          const Count made = end.divided_by(m.compress) - Count(g.past).divided_by(m.compress);
          read += compressed * entries * g.count;
          written += compressed * made * g.count;
          resident += compressed * end.divided_by(m.compress) * g.count;
          resident_windowed += compressed * end.divided_by(m.compress) * g.count;
        }
        if (!keeps) continue;
        resident += elements * end * g.count;
        const std::int64_t limit = m.window > 0 ? m.window : m.chunk;
        resident_windowed += elements * (limit > 0 && Count(limit) < end ? Count(limit) : end) * g.count;
      }
      read += elements * seen;
      if (keeps) written += elements * t.fed;
    }
    if (const Count state = state_elements(m) * n; !state.is_zero()) {
      // The recurrent state goes in and out once per pass and sequence, whatever the context.
      read += state * t.sequences * r.passes;
      written += state * t.sequences * r.passes;
      resident += state * sequences;
      resident_windowed += state * sequences;
    }
    if (layer.cross) {
      const std::int64_t heads = layer.cross->kv_heads > 0 ? layer.cross->kv_heads : layer.cross->heads;
      const Count elements = Count(2) * heads * layer.cross->head_dim * n * encoder_tokens;
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

}  // namespace mfu

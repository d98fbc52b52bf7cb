#include "core/model/request.h"

#include <algorithm>

#include "core/base/count.h"
#include "core/model/flop_count.h"

namespace mfu {
namespace {

/// `tokens` over `batch` sequences as evenly as integers allow: at most two groups.
void split_evenly(std::int64_t tokens, std::int64_t batch, std::int64_t past, ShapeRequest& out) noexcept {
  if (batch <= 0 || tokens <= 0) return;
  const std::int64_t longer = tokens % batch;
  if (longer > 0) out.add({longer, past, tokens / batch + 1});
  if (batch > longer && tokens / batch > 0) out.add({batch - longer, past, tokens / batch});
}

bool needs_context(const Architecture& model) noexcept {
  return !model.flat_params && std::any_of(model.layers.begin(), model.layers.end(),
                                           [](const LayerSpec& layer) { return has_attention(layer.mixer); });
}

/// Sequences that are seen for the first time, as a whole or behind `past` cached tokens.
void whole_sequences(const Architecture& model, const Shape& shape, ShapeRequest& out) noexcept {
  const std::int64_t past = out.phase == Phase::kPrefill ? shape.context.value_or(0) : 0;
  if (model.is_vision_only()) {
    out.add({shape.batch.value_or(1), 0, 0});
  } else if (shape.seq_len) {
    std::int64_t batch = shape.batch.value_or(1);
    if (!shape.batch && shape.tokens && *shape.seq_len > 0)
      batch = std::max<std::int64_t>(1, *shape.tokens / *shape.seq_len);
    out.add({batch, past, *shape.seq_len});
  } else if (shape.tokens) {
    split_evenly(*shape.tokens, shape.batch.value_or(1), past, out);
  } else if (model.is_encoder_decoder() && out.phase == Phase::kPrefill) {
    out.add({shape.batch.value_or(1), 0, 1});  // the encoder, and the first decoder token
  } else {
    out.missing = "seq_len or tokens";
  }
}

/// Passes that feed each sequence `seq_len` tokens, one unless it says otherwise, on a cache that grows; or one pass of
/// `gen_tokens` in all.
void decode_passes(const Architecture& model, const Shape& shape, ShapeRequest& out) noexcept {
  if (!shape.context && needs_context(model)) {
    out.missing = "context";
    return;
  }
  if (!shape.batch && !shape.seq_len && !shape.context && !shape.new_tokens && !shape.tokens && !shape.gen_tokens) {
    out.missing = "batch, new_tokens or tokens";
    return;
  }
  if (shape.gen_tokens) return split_evenly(*shape.gen_tokens, shape.batch.value_or(1), shape.context.value_or(0), out);
  const std::int64_t fed = std::max<std::int64_t>(1, shape.seq_len.value_or(1));
  const std::int64_t batch = shape.batch.value_or(1);
  const Count per_pass = Count(batch) * fed;
  if (shape.new_tokens) {
    out.passes = *shape.new_tokens;
  } else if (shape.tokens && per_pass.fits() && per_pass.u64() > 0 && per_pass.u64() <= INT64_MAX) {
    out.passes =
        std::max<std::int64_t>(*shape.tokens > 0 ? 1 : 0, *shape.tokens / static_cast<std::int64_t>(per_pass.u64()));
  }
  out.add({batch, shape.context.value_or(0), fed});
}

/// One pass over prompts and over sequences that generate.
void mixed_pass(const Architecture& model, const Shape& shape, ShapeRequest& out) noexcept {
  if (!shape.tokens && !shape.seq_len && !shape.gen_batch && !shape.gen_tokens) {
    out.missing = "tokens or gen_batch";
    return;
  }
  if (shape.tokens) {
    split_evenly(*shape.tokens, shape.batch.value_or(1), shape.ctx_context.value_or(0), out);
  } else if (shape.seq_len) {
    out.add({shape.batch.value_or(1), shape.ctx_context.value_or(0), *shape.seq_len});
  }
  const std::int64_t generating = shape.gen_batch.value_or(shape.gen_tokens.value_or(0));
  if (generating <= 0) return;
  if (!shape.context && needs_context(model)) {
    out.missing = "context";
    return;
  }
  const std::int64_t fed = std::max(generating, shape.gen_tokens.value_or(generating));
  split_evenly(fed, generating, shape.context.value_or(0), out);
}

}  // namespace

Shape unpacked(Shape s, std::int64_t documents) noexcept {
  if (documents <= 1 || !s.seq_len || *s.seq_len <= 0) return s;
  const std::int64_t batch = s.batch.value_or(s.tokens ? std::max<std::int64_t>(1, *s.tokens / *s.seq_len) : 1);
  std::int64_t tokens = 0, sequences = 0;
  if (__builtin_mul_overflow(batch, *s.seq_len, &tokens) || __builtin_mul_overflow(batch, documents, &sequences))
    return s;
  s.tokens = tokens;
  s.batch = std::min(sequences, tokens);
  s.seq_len.reset();
  return s;
}

ShapeRequest request_of(const Architecture& model, Phase phase, const Shape& shape) noexcept {
  ShapeRequest out;
  out.phase = phase;
  if (shape.is_negative()) {
    out.missing = "values >= 0";
    return out;
  }
  out.encoder_len = shape.encoder_len.value_or(0);
  out.encoder_runs = phase != Phase::kDecode;
  if (!shape.encoder_len && (model.is_encoder_decoder() || model.reads_context())) {
    out.missing = "encoder_len";
    return out;
  }
  if (phase == Phase::kDecode)
    decode_passes(model, shape, out);
  else if (phase == Phase::kMixed)
    mixed_pass(model, shape, out);
  else
    whole_sequences(model, shape, out);
  return out;
}

}  // namespace mfu

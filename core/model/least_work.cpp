#include "core/model/least_work.h"

#include <algorithm>

namespace mfu {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

/// Of one sequence of `tokens`; its decode passes are one.
Result<FlopCount> count_sequence(const FlopsModel& model, Phase phase, const SequenceGroup& group,
                                 std::int64_t passes) {
  CountRequest request;
  request.phase = phase;
  request.sequences = {&group, 1};
  request.passes = passes;
  return model.count_flop(request);
}

}  // namespace

Work least_work(const FlopsModel& model, Phase phase, const Shape& shape) noexcept {
  Work none;
  try {
    if (model.spec().is_encoder_decoder() || model.spec().is_vision_only()) return none;
    if (phase == Phase::kDecode) {
      if (!shape.batch && !shape.tokens) return none;
      Shape empty = shape;
      if (!empty.batch) empty.batch = empty.tokens;
      empty.tokens.reset();
      empty.context = shape.context.value_or(0);
      const Work w = model.work(phase, empty);
      none.tokens = w.tokens;
      none.flop_least = w.flop_known ? w.flop : 0;
      none.bytes_least = w.bytes_known ? w.bytes : 0;
      return none;
    }
    std::int64_t tokens = shape.tokens.value_or(0);
    if (tokens == 0 && shape.seq_len) tokens = shape.batch.value_or(1) * *shape.seq_len;
    if (tokens <= 0 || tokens > kMostTokens) return none;
    Shape of_tokens;
    of_tokens.tokens = tokens;
    if (shape.batch && *shape.batch > 0) {  // one length for all is the least
      of_tokens.batch = shape.batch;
      const Work w = model.work(phase == Phase::kMixed ? Phase::kPrefill : phase, of_tokens);
      none.tokens = w.tokens;
      none.flop_least = w.flop_known ? w.flop : 0;
      none.bytes_least = w.bytes_known ? w.bytes : 0;
      return none;
    }
    const Phase as = phase == Phase::kMixed ? Phase::kPrefill : phase;
    Shape one;
    one.batch = 1;
    one.seq_len = tokens;
    const Work whole = model.work(as, one);
    if (!whole.flop_known) return none;
    none.tokens = whole.tokens;
    none.flop_least = whole.flop;
    none.bytes_least = whole.bytes_known ? whole.bytes : 0;
    if (model.spec().flat_params || model.options().convention == Convention::k6nd) return none;
    if (model.options().convention != Convention::kExact) {
      // A rule has no parts: one token to a sequence has the least attention.
      one.batch = tokens;
      one.seq_len = 1;
      none.flop_least = std::min(none.flop_least, model.work(as, one).flop);
      return none;
    }
    const Result<FlopCount> count = count_sequence(model, as, {1, 0, tokens}, 1);
    if (!count || !(count->total.to_double() > 0)) {
      none.flop_least = 0;
      return none;
    }
    const double core = (count->parts.attn_scores + count->parts.attn_av).to_double();
    // Of this rank: the same share as of the whole. Backward of the core is twice its forward.
    const double forward = count->forward.to_double(), backward = count->backward.to_double();
    double total = count->total.to_double(), cores = 1;
    if (phase == Phase::kTrain) cores = backward > 0 ? 3 : 1;
    if (phase == Phase::kForward) total = forward;
    if (phase == Phase::kBackward) {
      total = backward;
      cores = 2;
    }
    none.flop_least = total > 0 ? std::max(0.0, whole.flop * (1 - cores * core / total)) : 0;
  } catch (...) {  // out of memory: no bound
    none.flop_least = none.bytes_least = 0;
  }
  return none;
}

AttentionCore attention_core(const FlopsModel& model, Phase phase, const Shape& shape) noexcept {
  AttentionCore core;
  try {
    const Architecture& spec = model.spec();
    if (spec.flat_params || spec.is_encoder_decoder() || spec.is_vision_only()) return core;
    const Phase as = is_training(phase) ? Phase::kForward : phase == Phase::kMixed ? Phase::kPrefill : phase;
    SequenceGroup group;
    std::int64_t passes = 1;
    if (phase == Phase::kDecode) {
      if (!shape.context) return core;
      passes = decode_passes(shape);
      group = {shape.batch.value_or(1), *shape.context, std::max<std::int64_t>(1, shape.seq_len.value_or(1))};
    } else {
      std::int64_t length = shape.seq_len.value_or(0);
      std::int64_t batch = shape.batch.value_or(1);
      if (length == 0 && shape.tokens && batch > 0) length = *shape.tokens / batch;
      if (!shape.batch && shape.tokens && length > 0) batch = std::max<std::int64_t>(1, *shape.tokens / length);
      group = {batch, is_training(phase) ? 0 : shape.context.value_or(0), length};
    }
    if (group.count <= 0 || group.fed <= 0 || passes <= 0) return core;
    const Result<FlopCount> count = count_sequence(model, as, group, passes);
    if (!count) return core;
    const ParallelConfig& ranks = model.options().parallel;
    const double accumulated = is_training(phase) ? static_cast<double>(model.options().grad_accum) : 1.0;
    double layers = 0;
    for (const LayerSpec& layer : spec.layers)
      if (layer.mixer.kind == MixerKind::kAttention || layer.mixer.kind == MixerKind::kLatent)
        layers += static_cast<double>(layer.repeat);
    core.layers = layers / static_cast<double>(ranks.pp);
    // `batch` counts the sequences of all data-parallel ranks; heads, layers and positions are divided evenly.
    const std::int64_t sharing = ranks.pp * std::max(ranks.tp * ranks.cp * ranks.dp, ranks.ep);
    core.flop = (count->parts.attn_scores + count->parts.attn_av).to_double() / accumulated /
                static_cast<double>(passes) / static_cast<double>(sharing);
  } catch (...) {  // out of memory: not known
    core = {};
  }
  return core;
}

}  // namespace mfu

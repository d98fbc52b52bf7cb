#include "core/model/least_work.h"

#include <algorithm>

#include "core/model/flop_count.h"

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

/// The known part of `work` as a bound.
Work bound_of(const Work& work) noexcept {
  Work bound;
  bound.tokens = work.tokens;
  bound.flop_least = work.flop_known ? work.flop : 0;
  bound.bytes_least = work.bytes_known ? work.bytes : 0;
  return bound;
}

}  // namespace

Work least_work(const FlopsModel& model, Phase phase, const Shape& shape) noexcept {
  Work bound;
  try {
    if (model.spec().is_encoder_decoder() || model.spec().is_vision_only()) return bound;
    if (phase == Phase::kDecode) {
      if (!shape.batch && !shape.tokens) return bound;
      Shape empty = shape;
      if (!empty.batch) empty.batch = empty.tokens;
      empty.tokens.reset();
      empty.context = shape.context.value_or(0);
      return bound_of(model.work(phase, empty));
    }
    std::int64_t tokens = shape.tokens.value_or(0);
    if (tokens == 0 && shape.seq_len) tokens = shape.batch.value_or(1) * *shape.seq_len;
    if (tokens <= 0 || tokens > kMostTokens) return bound;
    const Phase as = phase == Phase::kMixed ? Phase::kPrefill : phase;
    Shape of_tokens;
    of_tokens.tokens = tokens;
    if (shape.batch && *shape.batch > 0) {  // one length for all is the least
      of_tokens.batch = shape.batch;
      return bound_of(model.work(as, of_tokens));
    }
    Shape one;
    one.batch = 1;
    one.seq_len = tokens;
    const Work whole = model.work(as, one);
    if (!whole.flop_known) return bound;
    bound = bound_of(whole);
    if (model.spec().flat_params || model.options().convention == Convention::k6nd) return bound;
    if (model.options().convention != Convention::kExact) {
      // A rule has no parts: one token to a sequence has the least attention.
      one.batch = tokens;
      one.seq_len = 1;
      bound.flop_least = std::min(bound.flop_least, model.work(as, one).flop);
      return bound;
    }
    const Result<FlopCount> count = count_sequence(model, as, {1, 0, tokens}, 1);
    if (!count || !(count->total.to_double() > 0)) {
      bound.flop_least = 0;
      return bound;
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
    bound.flop_least = total > 0 ? std::max(0.0, whole.flop * (1 - cores * core / total)) : 0;
  } catch (...) {  // out of memory: no bound
    bound.flop_least = bound.bytes_least = 0;
  }
  return bound;
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
      if (has_attention(layer.mixer)) layers += static_cast<double>(layer.repeat);
    core.layers = layers / static_cast<double>(ranks.pp);
    // `batch` counts the sequences of all data-parallel ranks; heads, layers and positions are divided evenly.
    core.flop = (count->parts.attn_scores + count->parts.attn_av).to_double() / accumulated /
                static_cast<double>(passes) / ranks.world();
  } catch (...) {  // out of memory: not known
    core = {};
  }
  return core;
}

}  // namespace mfu

#include "core/model/flops_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/model/byte_count.h"
#include "core/model/conventions.h"
#include "core/model/flop_count.h"
#include "core/model/vision.h"

namespace mfu {
namespace {

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

struct FlopsModel::Impl {
  Architecture spec;
  FlopsOptions options;
  WeightStorage storage;
  ConventionTerms terms;
  Shares shares;
  bool needs_context = false;
  std::string convention;
};

FlopsModel FlopsModel::make(Architecture spec, FlopsOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->storage = effective_storage(spec, options);
  impl->terms = convention_terms(spec);
  impl->shares = shares_of(options.parallel, spec);
  for (const LayerSpec& layer : spec.layers) impl->needs_context |= has_attention(layer.mixer);
  impl->convention = std::string(name(options.convention));
  if (options.convention == Convention::kExact && options.attention != AttentionMode::kCausal) {
    impl->convention += options.attention == AttentionMode::kFull ? "-full" : "-full_windowed";
  }
  impl->spec = std::move(spec);
  impl->options = std::move(options);
  FlopsModel model;
  model.impl_ = std::move(impl);
  return model;
}

std::optional<DType> FlopsModel::dtype() const noexcept { return impl_->spec.compute_dtype; }
const std::string& FlopsModel::convention() const noexcept { return impl_->convention; }
const Architecture& FlopsModel::spec() const noexcept { return impl_->spec; }
const FlopsOptions& FlopsModel::options() const noexcept { return impl_->options; }

Result<FlopCount> FlopsModel::count_flop(const CountRequest& request) const {
  const Architecture& spec = impl_->spec;
  const Convention convention = impl_->options.convention;
  if (convention != Convention::kExact && convention != Convention::k6nd && spec.flat_params) {
    return Error{"convention " + impl_->convention +
                 ": needs the model's layers, but only `params` is given; use exact or 6nd"};
  }
  if (convention != Convention::kExact &&
      std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.rows_share > 1; })) {
    return Error{"convention " + impl_->convention +
                 ": is not defined where layers have fewer rows than tokens; use exact"};
  }
  if (convention != Convention::kExact && spec.is_encoder_decoder()) {
    return Error{"convention " + impl_->convention + ": is not defined for an encoder-decoder model; use exact"};
  }
  FlopCount count = count_by_convention(spec, impl_->terms, impl_->options, request);
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
  if ((spec.is_encoder_decoder() || spec.reads_context()) && !shape.encoder_len) {
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

  const FlopCount flop = count_by_convention(spec, m.terms, m.options, request);
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

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
  s.flop = 1.0 / p.world();
  s.weights = 1.0 / (tp * pp);
  s.experts = 1.0 / (pp * std::max(tp, ep));
  double head_split = tp;  // the cache of grouped heads splits no further than its heads; a latent not at all
  for (const LayerSpec& layer : model.layers)
    if (has_attention(layer.mixer)) head_split = std::min(head_split, static_cast<double>(layer.mixer.kv_heads));
  s.cache = 1.0 / (std::max(1.0, head_split) * pp * cp * dp);
  s.tokens = 1.0 / dp;
  return s;
}

Error too_large(const std::string& of, const char* part) {
  return {of + "." + part + ": the product is beyond 2^64; check the dimensions and the shape"};
}

}  // namespace

std::string share_text(const ParallelConfig& ranks, const Architecture& model) {
  if (ranks.world() <= 1) return "";
  std::string split;
  for (const auto& [key, size] : {std::pair("tp", ranks.tp), std::pair("pp", ranks.pp), std::pair("cp", ranks.cp),
                                  std::pair("ep", ranks.ep), std::pair("dp", ranks.dp)})
    if (size > 1) split += (split.empty() ? "" : ", ") + std::string(key) + " " + std::to_string(size);
  std::int64_t layers = 0;
  for (const LayerSpec& layer : model.layers) layers += layer.repeat;
  if (ranks.pp > 1) split += "; stages taken as equal";
  if (ranks.pp > 1 && layers % ranks.pp != 0)
    split += ", but " + std::to_string(layers) + " layers do not divide by " + std::to_string(ranks.pp);
  return "1/" + std::to_string(static_cast<std::int64_t>(std::min(ranks.world(), 9e15))) + " of the model (" + split +
         ")";
}

struct FlopsModel::Impl {
  Architecture spec;
  FlopsOptions options;
  WeightStorage storage;
  ConventionTerms terms;
  Shares shares;
  std::string convention;
};

FlopsModel FlopsModel::make(Architecture spec, FlopsOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->storage = effective_storage(spec, options);
  impl->terms = convention_terms(spec);
  impl->shares = shares_of(options.parallel, spec);
  impl->convention = std::string(name(options.convention));
  if (options.convention == Convention::kExact && options.attention != AttentionMode::kCausal)
    impl->convention.append("-").append(name(options.attention));
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
  const auto refused = [&](const char* why) { return Error{"convention " + impl_->convention + ": " + why}; };
  if (convention != Convention::kExact && convention != Convention::k6nd && spec.flat_params)
    return refused("needs the model's layers, but only `params` is given; use exact or 6nd");
  if (convention != Convention::kExact &&
      std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return l.rows_share > 1; }))
    return refused("is not defined where layers have fewer rows than tokens; use exact");
  if (convention != Convention::kExact && spec.is_encoder_decoder())
    return refused("is not defined for an encoder-decoder model; use exact");
  FlopCount count = count_by_convention(spec, impl_->terms, impl_->options, request);
  const std::pair<const char*, Count> sums[] = {{"forward", count.forward},
                                                {"backward", count.backward},
                                                {"recompute", count.recompute},
                                                {"total", count.total},
                                                {"absorbed", count.absorbed_scores + count.absorbed_av}};
  for (const auto& [part, value] : kFlopParts)
    if (!(count.parts.*value).fits()) return too_large("flop", part);
  for (const auto& [part, value] : sums)
    if (!value.fits()) return too_large("flop", part);
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
  for (const auto& [part, value] : parts)
    if (!value.fits()) return too_large("bytes", part);
  return count;
}

namespace {

/// Images alone, at the sizes that the options give or the tower was made for.
Work vision_work(const Architecture& spec, const FlopsOptions& options, const Shape& shape, double share) noexcept {
  Work out;
  if (!spec.vision) {
    out.missing = "a model with a vision tower";
    return out;
  }
  Count flop;
  const auto fixed = default_image(*spec.vision);
  if (!options.images.empty()) {
    for (const auto& [height, width] : options.images) flop += count_image(*spec.vision, height, width).sum();
  } else if (fixed.first > 0) {
    flop = count_image(*spec.vision, fixed.first, fixed.second).sum();
  } else {
    out.missing = "workload.images";
    return out;
  }
  flop *= shape.batch.value_or(1);
  out.flop_known = !flop.overflowed();
  out.flop = out.hfu_flop = flop.to_double() * share;
  return out;
}

/// This rank's share of a count, and of its forward or backward part where the phase is one of them.
void take_flop(const FlopCount& flop, Phase phase, const Shares& shares, Work& out) noexcept {
  out.flop_known = true;
  out.flop = flop.total.to_double() * shares.flop;
  out.hfu_flop = (flop.total.to_double() + flop.recompute.to_double()) * shares.flop;
  if (phase == Phase::kForward || phase == Phase::kBackward) {
    // A convention gives one number for the step; its parts are as the exact count has them.
    const double forward = flop.forward.to_double(), both = forward + flop.backward.to_double();
    const double part = both > 0 ? (phase == Phase::kForward ? forward : both - forward) / both : 0;
    const double recompute = phase == Phase::kForward ? 0 : out.hfu_flop - out.flop;
    out.flop *= part;
    out.hfu_flop = out.flop + recompute;
  }
  const double tokens = flop.tokens.to_double() * shares.tokens;
  out.tokens = tokens < 9.2e18 ? static_cast<std::int64_t>(std::llround(tokens)) : 0;
}

void take_bytes(const ByteCount& bytes, const Shares& shares, Work& out) noexcept {
  if (bytes.moved().overflowed() || bytes.weights_read_min.overflowed()) return;
  const double experts = bytes.experts_read.to_double();
  out.bytes = (bytes.weights_read.to_double() - experts) * shares.weights + experts * shares.experts +
              (bytes.kv_read.to_double() + bytes.kv_write.to_double()) * shares.cache;
  out.bytes_known = true;
}

}  // namespace

Work FlopsModel::work(Phase phase, const Shape& shape) const noexcept {
  Work out;
  if (!impl_ || phase == Phase::kNone) return out;
  const Impl& m = *impl_;
  if (phase == Phase::kVision && !shape.is_negative()) return vision_work(m.spec, m.options, shape, m.shares.flop);
  const ShapeRequest asked =
      request_of(m.spec, phase, is_training(phase) ? unpacked(shape, m.options.documents) : shape);
  out.missing = asked.missing;
  if (*asked.missing != '\0') return out;
  const CountRequest request = asked.counted(m.options.images);
  const FlopCount flop = count_by_convention(m.spec, m.terms, m.options, request);
  if (flop.total.overflowed() || flop.recompute.overflowed()) {
    out.missing = "dimensions whose product stays below 2^128";
    return out;
  }
  take_flop(flop, phase, m.shares, out);
  if (!is_training(phase) && m.storage.known)
    take_bytes(count_all_bytes(m.spec, m.storage, m.options, request), m.shares, out);
  return out;
}

}  // namespace mfu

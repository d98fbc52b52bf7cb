#include "core/account/work_resolver.h"

#include <algorithm>
#include <cmath>

#include "core/account/device_timeline.h"
#include "core/model/least_work.h"

namespace mfu {
namespace {

/// Tokens that a pass feeds, as far as the shape says.
std::int64_t fed_tokens(const Shape& shape) noexcept {
  if (shape.tokens) return *shape.tokens + shape.gen_tokens.value_or(shape.gen_batch.value_or(0));
  return shape.seq_len ? shape.batch.value_or(1) * *shape.seq_len : 0;
}

/// Tokens of a shape where no model is there to count them.
std::int64_t count_tokens(Phase phase, const Shape& shape, std::int64_t grad_accum) noexcept {
  if (shape.tokens) return fed_tokens(shape);
  if (phase == Phase::kDecode) return shape.gen_tokens.value_or(shape.batch.value_or(1) * shape.new_tokens.value_or(1));
  if (phase == Phase::kNone || phase == Phase::kVision) return 0;
  return fed_tokens(shape) * (is_training(phase) ? grad_accum : 1);
}

void scale(Work& work, double by) noexcept {
  work.flop *= by;
  work.hfu_flop *= by;
  work.bytes *= by;
  work.flop_least *= by;
  work.bytes_least *= by;
  work.tokens = std::llround(static_cast<double>(work.tokens) * by);
}

/// The decode passes of an instance of this shape. A pass that prefills as well is one for those that decode.
DecodePasses decode_passes_of(Phase phase, const Shape& shape) noexcept {
  if (phase == Phase::kMixed)
    return {shape.gen_batch.value_or(0) > 0 || shape.gen_tokens.value_or(0) > 0 ? 1 : 0, 0, false};
  if (phase != Phase::kDecode) return {};
  // Shapes come from names and configs: take no more passes than can be added up.
  const std::int64_t passes = std::min(decode_passes(shape), std::int64_t{1} << 31);
  const std::optional<std::int64_t> batch = shape.batch                        ? shape.batch
                                            : shape.new_tokens && shape.tokens ? *shape.tokens / passes
                                                                               : std::optional<std::int64_t>();
  return {passes, static_cast<double>(batch.value_or(0)) * static_cast<double>(passes), batch.value_or(0) > 0};
}

/// Ranks that do not share sequences, so that a shape counts those of all.
std::int64_t data_ranks(const ParallelConfig& p) noexcept {
  const std::int64_t sharing = std::max<std::int64_t>(1, p.tp * p.cp);
  return std::max<std::int64_t>(1, std::max(p.tp * p.cp * p.dp, p.ep) / sharing);
}

FlopSource source_of(const ResolvedShape& resolved) noexcept {
  FlopSource least = FlopSource::kNone;
  for (const ShapeSource source : resolved.source) {
    const FlopSource flop = source == ShapeSource::kRange   ? FlopSource::kShape
                            : source == ShapeSource::kGiven ? FlopSource::kConfig
                            : source == ShapeSource::kNone  ? FlopSource::kNone
                                                            : FlopSource::kDetected;
    least = std::max(least, flop);
  }
  return least == FlopSource::kNone ? FlopSource::kConfig : least;
}

/// Tokens of a pass by what the shape says of them; 0: it does not.
std::int64_t tokens_of(Phase phase, const Shape& shape) noexcept {
  if (phase == Phase::kDecode)
    return shape.gen_tokens.value_or(shape.batch.value_or(0) * std::max<std::int64_t>(1, shape.seq_len.value_or(1)));
  return fed_tokens(shape);
}

/// Products and grids add to the shape that the detector read from the grids of norms and cache writes.
Shape detected_shape(Phase phase, Shape known, const SeenShape& seen, const ParallelConfig& ranks) {
  const std::int64_t data = data_ranks(ranks), rows_per_token = data * std::max<std::int64_t>(1, ranks.cp);
  if (phase == Phase::kDecode) {
    if (!known.batch && seen.rows) {
      known.batch = *seen.rows * data;
      if (seen.queries && *seen.queries > 1) {  // tokens that are tried at once
        known.batch = *seen.sequences * data;
        known.seq_len = seen.queries;
      }
    }
    if (seen.keys) known.context = std::max<std::int64_t>(0, *seen.keys - known.seq_len.value_or(1));
    return known;
  }
  if (!known.tokens && seen.rows) known.tokens = *seen.rows * rows_per_token;
  if (seen.sequences && !known.batch) known.batch = *seen.sequences * data;
  // Of rows that only fill a batch up, the length is not that of the sequences.
  if (seen.queries && seen.rows && known.tokens == *seen.rows * rows_per_token)
    known.seq_len = *seen.queries * std::max<std::int64_t>(1, ranks.cp);
  return known;
}

void note_seen(Instance& instance, const SeenShape& seen) noexcept {
  instance.seen_rows = seen.rows.value_or(0);
  instance.seen_sequences = seen.sequences.value_or(0);
}

}  // namespace

WorkResolver::WorkResolver(const RegionRules& rules, const FlopsModel* model, const Workload& workload,
                           KernelNames& names)
    : rules_(rules),
      model_(model),
      workload_(workload),
      names_(names),
      shapes_(workload),
      roles_(model, names),
      noticed_(rules.regions().size(), false) {}

unsigned WorkResolver::note_product(const ActivityRecord& record, Instance* instance, bool fused) {
  const ProductRoles::Role* role = nullptr;
  unsigned flags = 0;
  bool called = false;
  if (record.product != ProductId::kNone && roles_.watched()) {
    role = &roles_.of(record.product);
    called = record.first_of_product;
    if (called) flags |= ActivityTraits::kFirstOfProduct;
    if (role->is_attention) flags |= ActivityTraits::kAttention;
  }
  if ((model_ == nullptr && !roles_.watched()) || instance == nullptr || !(fused || called)) return flags;
  const AttentionLaunch* launch = fused ? &roles_.attention(record.name, record.extent) : nullptr;
  if (fused && roles_.watched()) attention_lengths_.add(*launch);
  for (Instance* i = instance; i != nullptr; i = i->parent) {
    InstanceProducts& products = i->products_of_it();
    if (fused) products.add(*launch);
    if (!called) continue;
    if (model_ != nullptr)
      products.add(role->product, role->match);
    else
      products.add(role->product);
  }
  return flags;
}

void WorkResolver::note_matmul(const ActivityRecord& record, InstanceProducts& into) {
  if (model_ == nullptr || record.kind != ActivityKind::kKernel) return;
  if (names_.class_of(record.name) == KernelClass::kAttention) into.add(roles_.attention(record.name, record.extent));
  if (record.product == ProductId::kNone || !record.first_of_product || !roles_.watched()) return;
  const ProductRoles::Role& role = roles_.of(record.product);
  into.add(role.product, role.match);
}

SeenShape WorkResolver::seen_shape(const InstanceProducts& products, Phase phase) const {
  if (model_ == nullptr) return {};
  const ParallelConfig& ranks = model_->options().parallel;
  const std::int64_t tp = std::max<std::int64_t>(1, ranks.tp);
  std::int64_t heads = 0, width = 0;
  for (const LayerSpec& layer : model_->spec().layers) {
    if (layer.mixer.kind != MixerKind::kAttention) continue;
    heads = layer.mixer.heads / tp;
    width = layer.mixer.qk_dim;
    break;
  }
  const double layers = 1.0 / static_cast<double>(std::max<std::int64_t>(1, ranks.pp));
  return products.shape(roles_.names(), phase, heads, width, layers);
}

SeenShape WorkResolver::seen_shape(const Instance& instance) const {
  if (model_ == nullptr || !instance.products) return {};
  SeenShape seen = seen_shape(*instance.products, instance.phase);
  // The kernels of a backward pass may say less than those of the forward pass of the same step.
  const Instance* step = instance.parent;
  if (!seen.queries && step != nullptr && step->products && is_training(step->phase)) {
    const SeenShape around = seen_shape(*step->products, step->phase);
    if (!seen.rows) seen.rows = around.rows;
    if (seen.rows == around.rows) {
      seen.sequences = around.sequences;
      seen.queries = around.queries;
    }
  }
  return seen;
}

/// torch.profiler names its schedule's turns alike whether they train or not. A turn whose products are those of
/// forward passes alone is counted as such.
Phase WorkResolver::phase_that_ran(const Instance& instance) {
  if (instance.phase != Phase::kTrain || !instance.products || !rules_.is_of_framework(instance.rule) ||
      !instance.products->only_forward())
    return instance.phase;
  if (!forward_only_noticed_) {
    forward_only_noticed_ = true;
    notices_.push_back("region " + rules_.regions()[raw(instance.region)].name +
                       ": no backward pass ran in it, so its FLOP are those of forward passes");
  }
  return Phase::kForward;
}

void WorkResolver::open(Instance& instance, const DetectedWork* detected) const {
  if (detected != nullptr) {
    auto seen = std::make_unique<DetectedWork>(*detected);
    // Without a model config rows need not be tokens: ignore them.
    if (is_training(instance.phase) && !model_) seen->shape = {};
    instance.seen_work = std::move(seen);
  }
  instance.cached_at_open = shapes_.cached(instance.home_device.value_or(0));
}

void WorkResolver::close(Instance& instance) {
  resolve(instance, instance.kind == InstanceKind::kDetected || instance.kind == InstanceKind::kNested);
}

void WorkResolver::complete(Instance& instance) {
  if (!instance.by_parts() && instance.kind != InstanceKind::kDetected) {
    if (!instance.work.flop_known || (is_training(instance.phase) && instance.products))
      resolve(instance, true);
    else
      note_seen(instance, seen_shape(instance));
  }
  if (instance.leaves_out_attention()) (instance.parts ? instance.parts->sum : instance.work).leave_out();
  count_attention(instance);
}

/// \param complete every record of the instance has come, so its products say what its range does not.
void WorkResolver::resolve(Instance& instance, bool complete) {
  if (instance.phase == Phase::kNone) return;
  if (instance.by_parts()) {
    instance.work = instance.parts->sum;
    instance.work.add(instance.parts->given);
    return;
  }
  const std::uint32_t device = instance.home_device.value_or(0);
  if (instance.parts) shapes_.set_cached(device, instance.cached_at_open);  // it covers its parts
  const Phase phase = complete ? phase_that_ran(instance) : instance.phase;
  SeenShape seen;
  Shape from_kernels = instance.detected().shape;
  if (complete && model_) {
    seen = seen_shape(instance);
    from_kernels = detected_shape(phase, from_kernels, seen, model_->options().parallel);
    note_seen(instance, seen);
  }
  const ResolvedShape resolved =
      shapes_.resolve(phase, {instance.own_shape.to_shape(), rules_.constants(instance.rule), from_kernels}, device);
  const Shape& shape = resolved.shape;
  instance.shape = shape;
  instance.shape_source = resolved.source;
  instance.work = Work{};
  if (instance.detected().flop) {
    instance.work.flop_known = true;
    instance.work.flop = instance.work.hfu_flop = *instance.detected().flop;
    instance.flop_source = FlopSource::kShape;
  } else if (model_of(instance) != nullptr) {
    count_work(instance, phase, resolved, from_kernels, complete);
  }
  const bool detected = instance.kind == InstanceKind::kDetected;
  if (instance.work.tokens == 0 && (!detected || shape.batch || shape.tokens))
    instance.work.tokens = count_tokens(phase, shape, instance.detected().by_interpreter ? 1 : workload_.grad_accum);
  if (!instance.detected().by_interpreter) scale_to_passes(instance, seen);
  instance.decode = decode_passes_of(phase, shape);
}

/// The keys that a shape lacks for a count; empty: none. A range without a batch is one sequence. A detected instance
/// has no range, so its batch is unknown.
const char* WorkResolver::missing_in(const Instance& instance, Phase phase, const ResolvedShape& resolved) const {
  const Shape& shape = resolved.shape;
  const bool detected = instance.kind == InstanceKind::kDetected;
  const Architecture& model = model_of(instance)->spec();
  if (model.is_vision_only()) return "";
  if (detected && !shape.batch && !shape.tokens) return phase == Phase::kDecode ? "batch" : "batch or tokens";
  if ((detected || resolved.by_kernels(ShapeWords::kTokens)) && phase != Phase::kDecode && !model.flat_params &&
      !shape.seq_len && (!shape.batch || resolved.by_kernels(ShapeWords::kBatch)))
    return "seq_len";  // attention depends on how long each sequence is
  return "";
}

void WorkResolver::count_work(Instance& instance, Phase phase, const ResolvedShape& resolved, const Shape& from_kernels,
                              bool complete) {
  const Shape& shape = resolved.shape;
  const FlopsModel& model = *model_of(instance);
  const char* missing = missing_in(instance, phase, resolved);
  if (*missing == '\0') {
    instance.work = model.work(phase, shape);
    missing = instance.work.missing;
  }
  if (!instance.work.flop_known) {
    instance.work = least_work(model, phase, shape);
    instance.work.missing = missing;
    if (complete) notice_missing(instance);
    // The next decode would take the length of an earlier prompt.
    if (!complete && instance.prefills()) shapes_.set_cached(instance.home_device.value_or(0), std::nullopt);
  }
  instance.flop_source = instance.work.flop_known       ? source_of(resolved)
                         : instance.work.flop_least > 0 ? FlopSource::kLowerBound
                                                        : FlopSource::kNone;
  const bool rows_by_products = from_kernels.tokens && !instance.detected().shape.tokens;
  const bool decodes = phase == Phase::kDecode;
  const bool given = decodes
                         ? !resolved.by_kernels(ShapeWords::kBatch) || instance.detected().shape.batch.has_value()
                         : !(resolved.by_kernels(ShapeWords::kTokens) && rows_by_products) &&
                               !resolved.by_kernels(ShapeWords::kSeqLen) && !resolved.by_kernels(ShapeWords::kBatch);
  const ParallelConfig& ranks = model.options().parallel;
  instance.said_tokens =
      given ? tokens_of(phase, shape) / (data_ranks(ranks) * (decodes ? 1 : std::max<std::int64_t>(1, ranks.cp))) : 0;
}

/// The config says how many passes a step has, or its products do, or the detector.
void WorkResolver::scale_to_passes(Instance& instance, const SeenShape& seen) const {
  if (!is_training(instance.phase)) return;
  double passes = static_cast<double>(std::max<std::int64_t>(1, instance.detected().passes));
  auto parts = static_cast<double>(std::max<std::int64_t>(1, instance.detected().parts));
  if (workload_.grad_accum_given) {
    passes = 1;
  } else if (seen.passes > 0 && seen.rows && model_) {
    const ParallelConfig& ranks = model_->options().parallel;
    const std::int64_t all_ranks = data_ranks(ranks) * std::max<std::int64_t>(1, ranks.cp);
    const std::int64_t tokens = tokens_of(instance.phase, instance.shape), rows = *seen.rows * all_ranks;
    if (tokens == rows) {
      passes = static_cast<double>(seen.passes);
      parts = 1;
    } else if (tokens == rows * seen.passes) {
      passes = parts = 1;  // the shape counts all passes already
    }
  }
  if (passes != parts) scale(instance.work, passes / parts);
}

/// FLOP of its attention kernels: of one layer's core for each, and two and a half times as much backward, since the
/// scores are computed once more there (FlashAttention-2, arXiv:2307.08691, section 4.1). Where no shape is known, of
/// those whose grids say it.
void WorkResolver::count_attention(Instance& instance) {
  constexpr double kBackward = 2.5;
  if (instance.products) {
    const auto forward = static_cast<double>(instance.products->attention_forward());
    const auto backward = static_cast<double>(instance.products->attention_backward());
    AttentionCore core;
    // A layer is a part of its pass, which has a shape and a model.
    const bool by_parent = instance.phase == Phase::kNone && instance.parent != nullptr;
    const Instance& pass = by_parent ? *instance.parent : instance;
    if (forward + backward > 0 && model_of(pass) != nullptr && pass.work.flop_known)
      core = attention_core(*model_of(pass), pass.phase, pass.shape);
    if (core.flop > 0 && core.layers > 0) {
      const double of_one = core.flop / core.layers;
      instance.attention = {forward * of_one, backward * kBackward * of_one, forward, backward, 0};
    } else if (forward + backward > 0 && roles_.watched()) {
      std::optional<std::int64_t> rows = instance.products->rows();
      if (model_) rows = seen_shape(instance).rows;
      const AttentionWork counted = instance.products->attention(attention_lengths_, rows);
      // It has those of the instances inside it, too.
      if (counted.forward_kernels + counted.backward_kernels >=
          instance.attention.forward_kernels + instance.attention.backward_kernels)
        instance.attention = counted;
    }
  }
  if (instance.parent != nullptr) instance.parent->attention.add(instance.attention);
  instance.attention.products_again = instance.products ? static_cast<double>(instance.products->again()) : 0;
}

void WorkResolver::notice_missing(const Instance& instance) {
  if (noticed_[raw(instance.region)]) return;
  noticed_[raw(instance.region)] = true;
  const std::string& region = rules_.regions()[raw(instance.region)].name;
  const std::string missing = instance.work.missing;
  const bool bound = instance.work.flop_least > 0;
  notices_.push_back("region " + region + (bound ? ": MFU is a bound from below" : ": no MFU") +
                     ", because its shape lacks " + missing + "; say it in the range (\"" + region + " " +
                     missing.substr(0, missing.find_first_of(" ,")) +
                     "=...\"), in a rule under \"regions\", or under \"workload\" in the config");
}

}  // namespace mfu

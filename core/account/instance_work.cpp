// The part of the ledger that says how much work an instance is: its shape, FLOP, bytes and tokens.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/account/ledger.h"

namespace mfu {

namespace {

/// Tokens of a shape where no model is there to count them.
std::int64_t count_tokens(Phase phase, const Shape& shape, std::int64_t grad_accum) noexcept {
  if (shape.tokens) return *shape.tokens + shape.gen_tokens.value_or(shape.gen_batch.value_or(0));
  const std::int64_t batch = shape.batch.value_or(1);
  switch (phase) {
    case Phase::kTrain:
    case Phase::kForward:
    case Phase::kBackward:
      return shape.seq_len ? batch * *shape.seq_len * grad_accum : 0;
    case Phase::kPrefill:
    case Phase::kMixed:
      return shape.seq_len ? batch * *shape.seq_len : 0;
    case Phase::kDecode:
      return batch * shape.new_tokens.value_or(1);
    case Phase::kNone:
    case Phase::kVision:
      break;
  }
  return 0;
}

void scale(Work& work, double by) noexcept {
  work.flop *= by;
  work.hfu_flop *= by;
  work.bytes *= by;
  work.tokens = std::llround(static_cast<double>(work.tokens) * by);
}

/// What an instance of this shape decodes. A pass that prefills as well is one pass for the sequences that decode in
/// it.
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

}  // namespace

void Ledger::resolve_work(Instance& instance) {
  if (instance.phase == Phase::kNone) return;
  if (instance.by_parts()) {
    instance.work = instance.parts;
    instance.work.add(instance.parts_given);
    return;
  }
  const std::uint32_t device = instance.home_device.value_or(0);
  if (instance.part_count != 0) shapes_.set_cached(device, instance.cached_at_open);  // it covers its parts
  const ResolvedShape resolved = shapes_.resolve(
      instance.phase, {instance.own_shape.to_shape(), rules_.constants(instance.rule), instance.detected_shape},
      device);
  const Shape& shape = resolved.shape;
  instance.shape_source = resolved.source;
  if (model_) {
    // A range without a batch is one sequence. A detected instance has no range, so its batch is unknown.
    const bool detected = instance.kind == InstanceKind::kDetected;
    const Architecture& model = model_->spec();
    const bool by_sequence = instance.phase != Phase::kNone && !model.is_vision_only();
    if (detected && by_sequence && !shape.batch && !shape.tokens)
      instance.work.missing = instance.phase == Phase::kDecode ? "batch" : "batch or tokens";
    else if (detected && by_sequence && instance.phase != Phase::kDecode && !model.flat_params && !shape.seq_len &&
             !shape.batch)
      instance.work.missing = "seq_len";  // attention depends on how many sequences the tokens are
    else
      instance.work = model_->work(instance.phase, shape);
    if (!instance.work.flop_known) notice_missing(instance);
  }
  if (instance.work.tokens == 0) instance.work.tokens = count_tokens(instance.phase, shape, workload_.grad_accum);
  // The config says how many passes a step has, or the kernels do.
  if (is_training(instance.phase) && (instance.passes > 1 || instance.parts_of_step > 1))
    scale(instance.work,
          static_cast<double>(workload_.grad_accum_given ? 1 : std::max<std::int64_t>(1, instance.passes)) /
              static_cast<double>(instance.parts_of_step));
  instance.decode = decode_passes_of(instance.phase, shape);
}

void Ledger::notice_missing(const Instance& instance) {
  if (noticed_[raw(instance.region)]) return;
  noticed_[raw(instance.region)] = true;
  const std::string& region = rules_.regions()[raw(instance.region)].name;
  const std::string missing = instance.work.missing;
  notices_.push_back("region " + region + ": no MFU, because its shape lacks " + missing + "; say it in the range (\"" +
                     region + " " + missing.substr(0, missing.find_first_of(" ,")) +
                     "=...\"), in a rule under \"regions\", or under \"workload\" in the config");
}

std::vector<std::string> Ledger::take_notices() { return std::exchange(notices_, {}); }

}  // namespace mfu

#include "core/shape_resolver.h"

namespace mfu {

Shape ShapeResolver::resolve(Phase phase, const Shape& own, const Shape& constants, std::uint32_t device) {
  Shape shape = own;
  shape.fill_from(constants);
  // A workload that says `train` says nothing about a prefill, nor the other way round.
  const bool train = phase == Phase::kTrain;
  if (!workload_.phase || (*workload_.phase == Phase::kTrain) == train) {
    Shape usual = workload_.shape;
    if (shape.tokens) {  // a total of its own: the usual length would contradict it
      usual.tokens.reset();
      if (phase == Phase::kPrefill && shape.batch) usual.seq_len.reset();
      if (phase == Phase::kDecode) usual.new_tokens.reset();
    }
    if (phase == Phase::kDecode) usual.seq_len.reset();
    shape.fill_from(usual);
  }
  if (phase == Phase::kPrefill || phase == Phase::kMixed) {
    std::optional<std::int64_t> prompt = shape.seq_len;
    if (!prompt && shape.tokens) prompt = *shape.tokens / std::max<std::int64_t>(1, shape.batch.value_or(1));
    if (prompt) set_cached(device, shape.context.value_or(0) + *prompt);
  } else if (phase == Phase::kDecode) {
    if (!shape.context) shape.context = cached(device);
    if (shape.context) {
      std::int64_t steps = shape.new_tokens.value_or(0);
      if (!shape.new_tokens)
        steps = shape.tokens ? *shape.tokens / std::max<std::int64_t>(1, shape.batch.value_or(1)) : 1;
      set_cached(device, *shape.context + std::max<std::int64_t>(1, steps));
    }
  }
  return shape;
}

std::optional<std::int64_t> ShapeResolver::cached(std::uint32_t device) const {
  const auto it = cached_.find(device);
  return it == cached_.end() ? std::nullopt : std::optional(it->second);
}

void ShapeResolver::set_cached(std::uint32_t device, std::optional<std::int64_t> tokens) {
  if (tokens)
    cached_[device] = *tokens;
  else
    cached_.erase(device);
}

}  // namespace mfu

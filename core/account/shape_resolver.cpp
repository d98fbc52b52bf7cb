#include "core/account/shape_resolver.h"

#include <algorithm>

namespace mfu {
namespace {

/// Kernel grids give rows: sequences in decode, tokens otherwise. They fill only what range and config leave open.
template <typename Fill>
void fill_from_kernels(Phase phase, Shape detected, const Fill& fill, const Shape& shape) {
  if (shape.tokens && shape.seq_len) detected.batch.reset();
  if (shape.tokens) detected.seq_len.reset();
  if (shape.tokens || (shape.batch && shape.seq_len)) detected.tokens.reset();
  if (phase == Phase::kDecode) detected.tokens.reset();
  fill(detected, ShapeSource::kDetected);
}

}  // namespace

ResolvedShape ShapeResolver::resolve(Phase phase, const ShapeHints& hints, std::uint32_t device) {
  ResolvedShape out;
  Shape& shape = out.shape;
  const auto fill = [&out](const Shape& from, ShapeSource source) {
    for (std::size_t key = 0; key < kShapeKeys.size(); ++key) {
      std::optional<std::int64_t>& known = out.shape.*kShapeKeys[key].value;
      if (known || !(from.*kShapeKeys[key].value)) continue;
      known = from.*kShapeKeys[key].value;
      if (key < out.source.size()) out.source[key] = source;
    }
  };
  fill(hints.own, ShapeSource::kRange);
  fill(hints.constants, ShapeSource::kGiven);
  // A workload that says `train` says nothing about a prefill, nor the other way round.
  const bool train = is_training(phase);
  if (!workload_.phase || (*workload_.phase == Phase::kTrain) == train) {
    Shape usual = workload_.shape;
    if (shape.tokens) {  // its range gives a total, which the usual length would contradict
      usual.tokens.reset();
      if (phase == Phase::kPrefill && shape.batch) usual.seq_len.reset();
      if (phase == Phase::kDecode) usual.new_tokens.reset();
    }
    if (phase == Phase::kDecode) usual.seq_len.reset();
    fill(usual, ShapeSource::kGiven);
  }
  fill_from_kernels(phase, hints.detected, fill, shape);
  if (phase == Phase::kPrefill || phase == Phase::kMixed) {
    std::optional<std::int64_t> prompt = shape.seq_len;
    // A range that counts tokens alone is one sequence; rows that were read from kernels may be several.
    const bool several = !shape.batch && out.source[ShapeWords::kTokens] == ShapeSource::kDetected;
    if (!prompt && shape.tokens && !several)
      prompt = *shape.tokens / std::max<std::int64_t>(1, shape.batch.value_or(1));
    if (prompt)
      set_cached(device, shape.context.value_or(0) + *prompt);
    else if (several)
      set_cached(device, std::nullopt);
  } else if (phase == Phase::kDecode) {
    Shape from_cache;
    from_cache.context = cached(device);
    fill(from_cache, ShapeSource::kCached);
    if (shape.context) set_cached(device, *shape.context + decode_passes(shape));
  }
  return out;
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

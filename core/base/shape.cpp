#include "core/base/shape.h"

namespace mfu {

Shape ShapeWords::to_shape() const noexcept {
  Shape s;
  const auto read = [this](std::size_t key, std::optional<std::int64_t>& out) {
    if (has(key)) out = value[key];
  };
  read(kBatch, s.batch);
  read(kSeqLen, s.seq_len);
  read(kContext, s.context);
  read(kNewTokens, s.new_tokens);
  read(kTokens, s.tokens);
  read(kGenBatch, s.gen_batch);
  read(kGenTokens, s.gen_tokens);
  return s;
}

ShapeWords ShapeWords::from_shape(const Shape& shape) noexcept {
  ShapeWords w;
  const auto write = [&w](std::size_t key, const std::optional<std::int64_t>& in) {
    if (in) w.set(key, *in);
  };
  write(kBatch, shape.batch);
  write(kSeqLen, shape.seq_len);
  write(kContext, shape.context);
  write(kNewTokens, shape.new_tokens);
  write(kTokens, shape.tokens);
  write(kGenBatch, shape.gen_batch);
  write(kGenTokens, shape.gen_tokens);
  return w;
}

}  // namespace mfu

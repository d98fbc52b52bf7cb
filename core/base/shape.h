// The shape of one region instance, from which FLOP and bytes are counted.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace mfu {

/// The kind of work that a region's instances do, and so the formula that applies.
enum class Phase : std::uint8_t {
  kNone,      ///< a region with times only
  kTrain,     ///< forward and backward
  kPrefill,   ///< forward over new tokens, logits of the last position
  kDecode,    ///< forward, one token per sequence and pass
  kMixed,     ///< one pass with prefill sequences (batch, tokens) and decode sequences (gen_batch, gen_tokens)
  kVision,    ///< the vision tower alone, nested in prefill
  kForward,   ///< the forward pass of a training step
  kBackward,  ///< its backward pass, recomputation included
};

/// A training step or a pass of one.
[[nodiscard]] constexpr bool is_training(Phase phase) noexcept {
  return phase == Phase::kTrain || phase == Phase::kForward || phase == Phase::kBackward;
}

/// Who said a value of a shape, least trusted first.
enum class ShapeSource : std::uint8_t {
  kNone,
  kDetected,  ///< read from the kernels
  kCached,    ///< decode's context: the last prompt and the steps since
  kGiven,     ///< the config: its workload or a rule's constant
  kRange,     ///< the range itself
};

/// Every value optional: absent means unknown. All >= 0.
struct Shape {
  std::optional<std::int64_t> batch;        ///< sequences [seq]; kVision: images
  std::optional<std::int64_t> seq_len;      ///< new tokens per sequence [token/seq]
  std::optional<std::int64_t> context;      ///< tokens in the KV cache per sequence before the first pass [token/seq]
  std::optional<std::int64_t> new_tokens;   ///< decode passes inside the instance, one token per sequence each
  std::optional<std::int64_t> tokens;       ///< total tokens, where the rest is not known [token]
  std::optional<std::int64_t> gen_batch;    ///< kMixed: sequences that decode in the same pass [seq]
  std::optional<std::int64_t> gen_tokens;   ///< their tokens, more when speculating; also of kDecode [token]
  std::optional<std::int64_t> ctx_context;  ///< kMixed: `context` of the sequences that do not decode [token/seq]
  std::optional<std::int64_t> encoder_len;  ///< encoder tokens per sequence of an encoder-decoder model [token/seq]

  /// Some value is below zero.
  [[nodiscard]] bool is_negative() const noexcept;
};

/// A value of a shape and its name. ShapeWords numbers them in this order.
struct ShapeKey {
  const char* name;
  std::optional<std::int64_t> Shape::*value;
};
inline constexpr std::array<ShapeKey, 9> kShapeKeys{{{"batch", &Shape::batch},
                                                     {"seq_len", &Shape::seq_len},
                                                     {"context", &Shape::context},
                                                     {"new_tokens", &Shape::new_tokens},
                                                     {"tokens", &Shape::tokens},
                                                     {"gen_batch", &Shape::gen_batch},
                                                     {"gen_tokens", &Shape::gen_tokens},
                                                     {"ctx_context", &Shape::ctx_context},
                                                     {"encoder_len", &Shape::encoder_len}}};

/// The values of a Shape that ranges and kernels say, without their options, for shared memory: bit i of `given` says
/// that value i was given.
struct ShapeWords {
  static constexpr std::size_t kBatch = 0, kSeqLen = 1, kContext = 2, kNewTokens = 3, kTokens = 4, kGenBatch = 5,
                               kGenTokens = 6, kCtxContext = 7, kCount = 8;
  std::uint32_t given = 0;
  std::array<std::int64_t, kCount> value{};

  void set(std::size_t key, std::int64_t v) noexcept {
    if ((given & (1u << key)) != 0) return;  // the first source wins
    value[key] = v;
    given |= 1u << key;
  }
  [[nodiscard]] bool has(std::size_t key) const noexcept { return (given & (1u << key)) != 0; }
  /// Becomes `other`, but for values that are not given, which are left as they are: most ranges give few, or none.
  void take(const ShapeWords& other) noexcept {
    given = other.given;
    for (std::uint32_t left = given; left != 0; left &= left - 1) {
      const auto key = static_cast<std::size_t>(std::countr_zero(left));
      value[key] = other.value[key];
    }
  }
  [[nodiscard]] Shape to_shape() const noexcept;
};

/// Decode passes of an instance: as its shape says, or what its tokens come to, or one.
[[nodiscard]] constexpr std::int64_t decode_passes(const Shape& shape) noexcept {
  const std::int64_t steps = shape.new_tokens ? *shape.new_tokens
                             : shape.tokens   ? *shape.tokens / std::max<std::int64_t>(1, shape.batch.value_or(1))
                                              : 1;
  return std::max<std::int64_t>(1, steps);
}

}  // namespace mfu

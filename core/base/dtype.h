// Numeric formats of matmul operands, weights and caches: names, sizes, parsing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mfu {

enum class DType : std::uint8_t {
  kFp64,
  kFp32,
  kTf32,
  kBf16,
  kFp16,
  kFp8,
  kInt8,
  kFp6,
  kFp4,
  kInt4,
  kMxfp4,
  kNvfp4,
  kNf4,
};
inline constexpr std::size_t kDTypes = static_cast<std::size_t>(DType::kNf4) + 1;

/// Bits that stored weights take, as an exact fraction: blocks share scales.
struct StoredBits {
  std::int64_t bits, elements;
};

/// The one name used in output: `bf16`, `fp8`, ...
[[nodiscard]] std::string_view name(DType dtype) noexcept;
/// [bit] of one element.
[[nodiscard]] std::int64_t dtype_bits(DType dtype) noexcept;
/// Of stored weights, scales included.
[[nodiscard]] StoredBits stored_bits(DType dtype) noexcept;
/// Accepts every usual spelling (`bfloat16`, `torch.float16`, `fp8_e4m3`, `float8_e4m3fn`, `half`, ...), any case.
[[nodiscard]] std::optional<DType> parse_dtype(std::string_view text) noexcept;

}  // namespace mfu

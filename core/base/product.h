// One matrix product as a program asks a library for it: sizes, operands, and the FLOP and bytes that they imply.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/base/dtype.h"

namespace mfu {

/// D (m x n) = op(A) (m x k) op(B) (k x n), `batch` times, all matrices column-major as cuBLAS sees them. A program
/// with row-major matrices sees the transposed product: PyTorch's `y = x W^T` of x (tokens x in) and W (out x in) is m
/// = out, n = tokens, k = in, with A transposed and B not.
struct Product {
  enum class Kind : std::uint8_t {
    kSized,    ///< m, n, k and batch are known
    kUnsized,  ///< a matrix product whose sizes lie in device memory, or could not be read
  };
  std::uint64_t m = 0;
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  std::uint32_t batch = 1;
  DType operands = DType::kFp32;  ///< decides the peak: A's type; TF32 where fp32 operands are rounded to it
  DType result = DType::kFp32;    ///< D's type
  bool transpose_a = false;
  bool transpose_b = false;
  bool complex = false;  ///< of complex numbers: `operands` is the type of their parts
  Kind kind = Kind::kSized;

  /// [FLOP] One multiplication and one addition for each of the m n k batch products of elements; four of each where
  /// they are complex. 0 for kUnsized.
  [[nodiscard]] constexpr double flop() const noexcept {
    const double per_element = complex ? 8.0 : 2.0;
    return kind == Kind::kSized
               ? per_element * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * batch
               : 0.0;
  }
  friend constexpr bool operator==(const Product&, const Product&) = default;
};
static_assert(std::is_trivially_copyable_v<Product>);

}  // namespace mfu

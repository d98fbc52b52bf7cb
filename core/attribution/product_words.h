// A matrix product in four words, as it is compared, hashed and kept where several threads read.
#pragma once

#include <cstdint>

#include "core/base/product.h"

namespace mfu {

/// All of a Product, put together by shifts: bytes that were just written one by one are slow to read as a word.
struct ProductWords {
  std::uint64_t m = 0, n = 0, k = 0;
  std::uint64_t rest = 0;  ///< batch, types, transposes

  constexpr ProductWords() noexcept = default;
  [[gnu::always_inline]] constexpr explicit ProductWords(const Product& p) noexcept
      : m(p.m),
        n(p.n),
        k(p.k),
        rest(p.batch | static_cast<std::uint64_t>(p.operands) << 32 | static_cast<std::uint64_t>(p.result) << 40 |
             static_cast<std::uint64_t>(p.transpose_a) << 48 | static_cast<std::uint64_t>(p.transpose_b) << 49 |
             static_cast<std::uint64_t>(p.complex) << 50 | static_cast<std::uint64_t>(p.kind) << 51) {}

  [[nodiscard]] constexpr Product product() const noexcept {
    Product p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = static_cast<std::uint32_t>(rest);
    p.operands = static_cast<DType>(rest >> 32 & 0xFF);
    p.result = static_cast<DType>(rest >> 40 & 0xFF);
    p.transpose_a = (rest >> 48 & 1) != 0;
    p.transpose_b = (rest >> 49 & 1) != 0;
    p.complex = (rest >> 50 & 1) != 0;
    p.kind = static_cast<Product::Kind>(rest >> 51 & 0xFF);
    return p;
  }
  /// Its high bits are the good ones. Odd multipliers, so that the multiplications run side by side.
  [[nodiscard]] constexpr std::uint64_t hash() const noexcept {
    return m * 0x9E3779B97F4A7C15u + n * 0xC2B2AE3D27D4EB4Fu + k * 0x165667B19E3779F9u + rest * 0xD6E8FEB86659FD93u;
  }
  friend constexpr bool operator==(const ProductWords& a, const ProductWords& b) noexcept {
    return ((a.m ^ b.m) | (a.n ^ b.n) | (a.k ^ b.k) | (a.rest ^ b.rest)) == 0;
  }
};

}  // namespace mfu

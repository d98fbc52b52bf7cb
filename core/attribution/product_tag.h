// Which matrix product a launch belongs to, in a word next to the launch's.
#pragma once

#include <cstdint>

#include "core/base/ids.h"

namespace mfu {

/// The product that a library call asked for, and whether a launch is the call's first: of a product's kernels one
/// alone carries its FLOP.
class ProductTag {
 public:
  constexpr ProductTag() noexcept = default;  ///< no product
  constexpr explicit ProductTag(std::uint32_t word) noexcept : word_(word) {}

  /// The tag of the first kernel of a call that asks for `product`.
  [[nodiscard]] static constexpr ProductTag first_of(ProductId product) noexcept {
    return ProductTag(raw(product) | kFirst);
  }
  /// Of the call's further kernels.
  [[nodiscard]] constexpr ProductTag further() const noexcept { return ProductTag(word_ & ~kFirst); }

  [[nodiscard]] constexpr ProductId product() const noexcept { return ProductId{word_ & ~kFirst}; }
  [[nodiscard]] constexpr bool first() const noexcept { return (word_ & kFirst) != 0; }
  [[nodiscard]] constexpr std::uint32_t word() const noexcept { return word_; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return product() != ProductId::kNone; }

 private:
  static constexpr std::uint32_t kFirst = 1u << 31;
  std::uint32_t word_ = 0;
};

}  // namespace mfu

// Exact counts of FLOP, bytes and parameters: 128-bit unsigned integers that remember an overflow instead of wrapping.
#pragma once

#include <cstdint>

namespace mfu {

/// An exact non-negative count. Every operation is checked; once a result does not fit in 128 bits the count stays
/// `overflowed()`, through every later sum and product. Results shown to users must also fit in 64 bits: `fits()`.
class Count {
 public:
  using Wide = unsigned __int128;

  constexpr Count() noexcept = default;
  /// Negative values (never valid as a count) are taken as an overflow, so that they cannot pass for a number.
  constexpr Count(std::int64_t value) noexcept  // NOLINT(google-explicit-constructor): `Count n = batch;`
      : value_(value < 0 ? 0 : static_cast<Wide>(value)), overflow_(value < 0) {}

  friend constexpr Count operator+(Count a, Count b) noexcept {
    Count sum;
    sum.overflow_ = __builtin_add_overflow(a.value_, b.value_, &sum.value_) || a.overflow_ || b.overflow_;
    return sum;
  }
  friend constexpr Count operator*(Count a, Count b) noexcept {
    Count product;
    product.overflow_ = __builtin_mul_overflow(a.value_, b.value_, &product.value_);
    product.overflow_ = product.overflow_ || a.overflow_ || b.overflow_;
    return product;
  }
  /// Only where `b` is known to be no larger than `a`; else overflowed.
  friend constexpr Count operator-(Count a, Count b) noexcept {
    Count difference;
    difference.overflow_ = __builtin_sub_overflow(a.value_, b.value_, &difference.value_) || a.overflow_ || b.overflow_;
    return difference;
  }
  /// Rounds down; `divisor` > 0.
  [[nodiscard]] constexpr Count divided_by(std::int64_t divisor) const noexcept {
    Count quotient = *this;
    quotient.value_ /= static_cast<Wide>(divisor);
    return quotient;
  }
  constexpr Count& operator+=(Count other) noexcept { return *this = *this + other; }
  constexpr Count& operator*=(Count other) noexcept { return *this = *this * other; }
  friend constexpr bool operator==(Count a, Count b) noexcept {
    return a.value_ == b.value_ && a.overflow_ == b.overflow_;
  }
  friend constexpr bool operator<(Count a, Count b) noexcept { return a.value_ < b.value_; }

  [[nodiscard]] constexpr bool overflowed() const noexcept { return overflow_; }
  /// True when the count is exact and at most 2^64 - 1.
  [[nodiscard]] constexpr bool fits() const noexcept { return !overflow_ && (value_ >> 64) == 0; }
  [[nodiscard]] constexpr bool is_zero() const noexcept { return value_ == 0 && !overflow_; }
  /// Only when fits().
  [[nodiscard]] constexpr std::uint64_t u64() const noexcept { return static_cast<std::uint64_t>(value_); }
  /// Nearest double; meaningful only when not overflowed().
  [[nodiscard]] constexpr double to_double() const noexcept { return static_cast<double>(value_); }

 private:
  Wide value_ = 0;
  bool overflow_ = false;
};

}  // namespace mfu

// Spreads the bits of a number over a hash table. Not for anything that an adversary may choose.
#pragma once

#include <cstdint>

namespace mfu {

/// Every bit of `h` changes about half of the result's. The multiplier is any odd number with as many ones as zeros.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t h) noexcept {
  constexpr std::uint64_t kOdd = 0xD6E8FEB86659FD93u;
  h ^= h >> 32;
  h *= kOdd;
  h ^= h >> 32;
  h *= kOdd;
  return h ^ (h >> 32);
}

}  // namespace mfu

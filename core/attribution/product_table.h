// The distinct matrix products of a process: a product's sizes become one number that fits beside a launch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/ids.h"
#include "core/base/product.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// Insert-only, lock-free, fixed memory (5 MiB at most, and pages are touched only as products come). A training
/// program has some dozens of distinct products, a server some thousands for each number of tokens that a pass can
/// have.
class ProductTable {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 16;
  /// What every product is called once the table is full: its kernels are products of unknown size.
  static constexpr ProductId kFull{kCapacity};

  /// [any thread] hot. The number of `product`: the same for equal ones. Never kNone.
  [[nodiscard]] ProductId number_of(const Product& product) noexcept;
  /// [any thread] Nothing for kNone and for numbers that were never given. A kUnsized product for kFull.
  [[nodiscard]] std::optional<Product> find(ProductId id) const noexcept;
  /// Distinct products so far.
  [[nodiscard]] std::uint32_t size() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  enum : std::uint32_t { kFree = 0, kWriting = 1, kReady = 2 };
  static constexpr std::uint32_t kProbes = 64;

  struct Slot {
    std::atomic<std::uint32_t> state;
    std::uint32_t padding;
    /// Product in words, so that a reader beside a writer is no race: m, n, k, then the rest.
    std::array<std::atomic<std::uint64_t>, 4> words;
  };

  ZeroedArray<Slot> slots_{kCapacity};
  std::atomic<std::uint32_t> used_{0};
};

/// [owner thread] hot. What one thread asked for lately, with its numbers: the products of a layer come again and
/// again, and are found here without a look at what all threads share. All zero: nothing.
class RecentProducts {
 public:
  [[nodiscard]] ProductId number_of(const Product& product, ProductTable& table) noexcept {
    const Key key(product);
    Entry& entry = entries_[key.place()];
    return entry.is(key) ? entry.number : look_up(product, table);
  }

 private:
  static constexpr unsigned kBits = 8;  ///< a program's few dozen products seldom meet in a place
  /// A product in words. Put together from its parts: what was just written byte by byte is slow to read as a word.
  struct Key {
    std::uint64_t m = 0, n = 0, k = 0, rest = 0;

    Key() = default;
    explicit Key(const Product& p) noexcept
        : m(p.m),
          n(p.n),
          k(p.k),
          rest(p.batch | static_cast<std::uint64_t>(p.operands) << 32 | static_cast<std::uint64_t>(p.result) << 40 |
               static_cast<std::uint64_t>(p.transpose_a) << 48 | static_cast<std::uint64_t>(p.transpose_b) << 49 |
               static_cast<std::uint64_t>(p.complex) << 50 | static_cast<std::uint64_t>(p.kind) << 51) {}
    [[nodiscard]] std::size_t place() const noexcept {
      return (m * 0x9E3779B97F4A7C15u + n * 0xC2B2AE3D27D4EB4Fu + k * 0x165667B19E3779F9u + rest) >> (64 - kBits);
    }
  };
  struct Entry {
    Key key;
    ProductId number = ProductId::kNone;

    [[nodiscard]] bool is(const Key& other) const noexcept {
      return number != ProductId::kNone &&
             ((key.m ^ other.m) | (key.n ^ other.n) | (key.k ^ other.k) | (key.rest ^ other.rest)) == 0;
    }
  };

  /// Apart from number_of, which would else copy the key each time, and wait for the parts that were just written.
  [[gnu::noinline]] ProductId look_up(const Product& product, ProductTable& table) noexcept {
    const Key key(product);
    Entry& entry = entries_[key.place()];
    entry = {key, table.number_of(product)};
    return entry.number;
  }

  std::array<Entry, 1u << kBits> entries_{};
};

}  // namespace mfu

// The distinct matrix products of a process: a product's sizes become one number that fits beside a launch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "core/attribution/product_words.h"
#include "core/base/ids.h"
#include "core/base/product.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// Insert-only, lock-free, fixed memory (5 MiB at most, and pages are touched only as products come). A training
/// program has some dozens of distinct products, a server some thousands for each number of tokens of a pass.
class ProductTable {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 16;
  /// The name of every product once the table is full: its kernels are products of unknown size.
  static constexpr ProductId kFull{kCapacity};

  /// [any thread] hot. The number of `product`: the same for equal ones. Never kNone.
  [[nodiscard]] ProductId number_of(const ProductWords& product) noexcept;
  [[nodiscard]] ProductId number_of(const Product& product) noexcept { return number_of(ProductWords(product)); }
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
    /// ProductWords, so that a reader beside a writer is no race.
    std::atomic<std::uint64_t> m, n, k, rest;

    [[nodiscard]] ProductWords words() const noexcept {
      ProductWords w;
      w.m = m.load(std::memory_order_relaxed);
      w.n = n.load(std::memory_order_relaxed);
      w.k = k.load(std::memory_order_relaxed);
      w.rest = rest.load(std::memory_order_relaxed);
      return w;
    }
  };

  ZeroedArray<Slot> slots_{kCapacity};
  std::atomic<std::uint32_t> used_{0};
};

/// [owner thread] hot. Products that one thread asked for lately, with their numbers: the products of a layer come
/// again and again, and are found here without a look at what all threads share. All zero: nothing.
class RecentProducts {
 public:
  [[nodiscard]] ProductId number_of(const ProductWords& product, ProductTable& table) noexcept {
    Entry& entry = entries_[product.hash() >> (64 - kBits)];
    if (entry.number == ProductId::kNone || !(entry.product == product)) entry = {product, table.number_of(product)};
    return entry.number;
  }

 private:
  static constexpr unsigned kBits = 8;  ///< a program's few dozen products seldom meet in a place
  struct Entry {
    ProductWords product;
    ProductId number = ProductId::kNone;
  };

  std::array<Entry, 1u << kBits> entries_{};
};

}  // namespace mfu

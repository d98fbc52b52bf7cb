// Which matrix product the kernel of a CUDA graph's node computes: noted at the capture, asked at each record.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/attribution/product_table.h"
#include "core/attribution/product_tag.h"
#include "core/base/bit_mix.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// 64-bit keys > 32-bit words other than 0. Lock-free and of fixed size; its pages are touched as keys come. Where all
/// places of a new key are taken, it displaces the smallest key there. [any thread] No two threads set one key at once.
template <std::uint32_t kCapacity>
class KeyTable {
 public:
  /// \return the word that is found no more: the key's word before, that of a displaced key, or `word` itself where
  ///   there is no place for it; 0: none
  std::uint32_t set(std::uint64_t key, std::uint32_t word) noexcept {
    if (!is_key(key)) return word;
    for (std::uint32_t tries = 0; tries < kProbes; ++tries) {  // another thread may take the place meanwhile
      Slot* chosen = nullptr;
      std::uint64_t held = kBusy;
      for (std::uint32_t i = 0; i < kProbes && held != key; ++i) {
        Slot& slot = slots_[place(key, i)];
        const std::uint64_t there = slot.key.load(std::memory_order_acquire);  // 0: free
        if (there >= held && there != key) continue;
        chosen = &slot;
        held = there;
      }
      if (chosen == nullptr || !chosen->key.compare_exchange_strong(held, kBusy, std::memory_order_acq_rel)) continue;
      const std::uint32_t before = chosen->word.exchange(word, std::memory_order_acq_rel);  // pairs with find
      chosen->key.store(key, std::memory_order_release);
      return before;
    }
    return word;
  }
  /// 0: there is no such key.
  [[nodiscard]] std::uint32_t find(std::uint64_t key) const noexcept {
    for (std::uint32_t i = 0; i < kProbes && is_key(key); ++i) {
      const Slot& slot = slots_[place(key, i)];
      if (slot.key.load(std::memory_order_acquire) != key) continue;
      const std::uint32_t word = slot.word.load(std::memory_order_acquire);
      return slot.key.load(std::memory_order_relaxed) == key ? word : 0;  // displaced at this moment
    }
    return 0;
  }
  /// \return the word that it had; 0: there is no such key
  std::uint32_t erase(std::uint64_t key) noexcept {
    for (std::uint32_t i = 0; i < kProbes && is_key(key); ++i) {
      Slot& slot = slots_[place(key, i)];
      std::uint64_t held = key;
      if (!slot.key.compare_exchange_strong(held, kBusy, std::memory_order_acq_rel)) continue;
      const std::uint32_t before = slot.word.exchange(0, std::memory_order_acq_rel);
      slot.key.store(0, std::memory_order_release);
      return before;
    }
    return 0;
  }

 private:
  static constexpr std::uint32_t kProbes = 8;
  static constexpr std::uint64_t kBusy = ~std::uint64_t{0};

  struct Slot {
    std::atomic<std::uint64_t> key;
    std::atomic<std::uint32_t> word;
  };
  [[nodiscard]] bool is_key(std::uint64_t key) const noexcept { return key != 0 && key != kBusy && slots_.size() != 0; }
  /// Eight consecutive keys lie side by side; eights lie anywhere, and the next place is one eight on.
  [[nodiscard]] static std::size_t place(std::uint64_t key, std::uint32_t probe) noexcept {
    return ((mix(key >> 3) + probe) << 3 | (key & 7)) & (kCapacity - 1);
  }

  ZeroedArray<Slot> slots_{kCapacity};
};

/// Node id, as CUPTI numbers the nodes of a process, > ProductTag. Ids grow: once a place is full (2 MiB in all), its
/// oldest node is forgotten, and its kernels are of no known product.
class GraphProducts {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 17;

  /// [any thread] The node's kernel is one of `product`.
  void set(std::uint64_t node, ProductTag product) noexcept {
    (void)nodes_.set(node, product.word());
    if (!any()) any_.store(true, std::memory_order_release);
  }
  /// [any thread] No product for an unknown node; one of unknown size once graphs were changed.
  [[nodiscard]] ProductTag find(std::uint64_t node) const noexcept {
    const ProductTag product(any() ? nodes_.find(node) : 0);
    if (!product || !changed_.load(std::memory_order_relaxed)) return product;
    const ProductTag unknown = ProductTag::first_of(ProductTable::kFull);
    return product.first() ? unknown : unknown.further();
  }
  /// [any thread] The node is gone.
  void forget(std::uint64_t node) noexcept {
    if (any()) (void)nodes_.erase(node);
  }
  /// [any thread] A program gives nodes other kernels or arguments than they were captured with. CUPTI does not report
  /// which nodes, so from now on no node's product is known.
  void graphs_changed() noexcept { changed_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }

 private:
  KeyTable<kCapacity> nodes_;
  std::atomic<bool> any_{false}, changed_{false};
};

}  // namespace mfu

// Which matrix product the kernel of a CUDA graph's node computes. Noted when the node is captured, asked at each
// record.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/attribution/product_table.h"
#include "core/attribution/product_tag.h"
#include "core/base/bit_mix.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// Node id, as CUPTI numbers the nodes of a process, > ProductTag. Lock-free and of fixed size (2 MiB, touched as nodes
/// come): once a place is full, its oldest node is forgotten, and its kernels are of no known product.
class GraphProducts {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 17;

  /// [any thread] The node's kernel is one of `product`.
  void set(std::uint64_t node, ProductTag product) noexcept {
    if (node == 0 || node >= kBusy || slots_.size() == 0) return;
    Slot* oldest = nullptr;
    std::uint64_t oldest_node = kBusy;
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      Slot& slot = slot_of(node, i);
      std::uint64_t held = slot.node.load(std::memory_order_acquire);
      if (held < oldest_node) {  // 0: nothing there; ids grow
        oldest = &slot;
        oldest_node = held;
      }
      if (held == node) {
        oldest = &slot;
        oldest_node = held;
        break;
      }
    }
    if (oldest == nullptr || !oldest->node.compare_exchange_strong(oldest_node, kBusy, std::memory_order_acq_rel))
      return;
    oldest->product.store(product.word(), std::memory_order_release);  // who sees it sees the old node gone
    oldest->node.store(node, std::memory_order_release);
    if (!any_.load(std::memory_order_relaxed)) any_.store(true, std::memory_order_release);
  }
  /// [any thread] No product for a node that is not known; one of unknown size once graphs were changed.
  [[nodiscard]] ProductTag find(std::uint64_t node) const noexcept {
    if (!any() || node == 0 || node >= kBusy) return {};
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      const Slot& slot = slot_of(node, i);
      if (slot.node.load(std::memory_order_acquire) != node) continue;
      const ProductTag product(slot.product.load(std::memory_order_acquire));
      if (slot.node.load(std::memory_order_relaxed) != node) return {};
      if (!changed_.load(std::memory_order_relaxed)) return product;
      const ProductTag unknown = ProductTag::first_of(ProductTable::kFull);
      return product.first() ? unknown : unknown.further();
    }
    return {};
  }
  /// [any thread] The node is gone.
  void forget(std::uint64_t node) noexcept {
    if (!any() || node == 0 || node >= kBusy) return;
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      std::uint64_t held = node;
      if (slot_of(node, i).node.compare_exchange_strong(held, 0, std::memory_order_acq_rel)) return;
    }
  }
  /// [any thread] A program gives nodes other kernels or arguments than they were captured with. Which nodes of which
  /// graph is not told, so from now on no node's product is known.
  void graphs_changed() noexcept { changed_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }

 private:
  static constexpr std::uint32_t kProbes = 8;
  static constexpr std::uint64_t kBusy = ~std::uint64_t{0};

  struct Slot {
    std::atomic<std::uint64_t> node;
    std::atomic<std::uint32_t> product;
  };
  /// Eight nodes with consecutive ids lie side by side; eights lie anywhere, and the next place is one eight on.
  [[nodiscard]] static std::size_t place(std::uint64_t node, std::uint32_t probe) noexcept {
    return ((mix(node >> 3) + probe) << 3 | (node & 7)) & (kCapacity - 1);
  }
  Slot& slot_of(std::uint64_t node, std::uint32_t probe) noexcept { return slots_[place(node, probe)]; }
  const Slot& slot_of(std::uint64_t node, std::uint32_t probe) const noexcept { return slots_[place(node, probe)]; }

  ZeroedArray<Slot> slots_{kCapacity};
  std::atomic<bool> any_{false}, changed_{false};
};

}  // namespace mfu

#include "core/attribution/product_table.h"

#include "core/base/bit_mix.h"

namespace mfu {

ProductId ProductTable::number_of(const ProductWords& product) noexcept {
  if (slots_.size() == 0) return kFull;
  const std::uint64_t hash = mix(product.hash());
  for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
    const auto at = static_cast<std::uint32_t>(hash + probe) & (kCapacity - 1);
    if (at == 0) continue;  // a number is its slot's place, and 0 is none
    Slot& slot = slots_[at];
    std::uint32_t state = slot.state.load(std::memory_order_acquire);
    if (state == kFree && slot.state.compare_exchange_strong(state, kWriting, std::memory_order_acquire)) {
      slot.m.store(product.m, std::memory_order_relaxed);
      slot.n.store(product.n, std::memory_order_relaxed);
      slot.k.store(product.k, std::memory_order_relaxed);
      slot.rest.store(product.rest, std::memory_order_relaxed);
      slot.state.store(kReady, std::memory_order_release);
      used_.fetch_add(1, std::memory_order_relaxed);
      return ProductId{at};
    }
    // A slot that another thread fills this very moment is passed by: at worst a product has two numbers.
    if (state == kReady && slot.words() == product) return ProductId{at};
  }
  return kFull;
}

std::optional<Product> ProductTable::find(ProductId id) const noexcept {
  if (id == kFull) {
    Product unknown;
    unknown.kind = Product::Kind::kUnsized;
    return unknown;
  }
  if (id == ProductId::kNone || raw(id) >= slots_.size()) return std::nullopt;
  const Slot& slot = slots_[raw(id)];
  if (slot.state.load(std::memory_order_acquire) != kReady) return std::nullopt;
  return slot.words().product();
}

}  // namespace mfu

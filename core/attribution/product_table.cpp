#include "core/attribution/product_table.h"

#include "core/base/bit_mix.h"

namespace mfu {
namespace {

using Words = std::array<std::uint64_t, 4>;

constexpr Words to_words(const Product& p) noexcept {
  return {p.m, p.n, p.k,
          static_cast<std::uint64_t>(p.batch) | static_cast<std::uint64_t>(p.operands) << 32 |
              static_cast<std::uint64_t>(p.result) << 40 | static_cast<std::uint64_t>(p.transpose_a) << 48 |
              static_cast<std::uint64_t>(p.transpose_b) << 49 | static_cast<std::uint64_t>(p.kind) << 50 |
              static_cast<std::uint64_t>(p.complex) << 58};
}

constexpr Product from_words(const Words& w) noexcept {
  Product p;
  p.m = w[0];
  p.n = w[1];
  p.k = w[2];
  p.batch = static_cast<std::uint32_t>(w[3]);
  p.operands = static_cast<DType>(w[3] >> 32 & 0xFF);
  p.result = static_cast<DType>(w[3] >> 40 & 0xFF);
  p.transpose_a = (w[3] >> 48 & 1) != 0;
  p.transpose_b = (w[3] >> 49 & 1) != 0;
  p.kind = static_cast<Product::Kind>(w[3] >> 50 & 0xFF);
  p.complex = (w[3] >> 58 & 1) != 0;
  return p;
}

}  // namespace

ProductId ProductTable::number_of(const Product& product) noexcept {
  if (slots_.size() == 0) return kFull;
  const Words words = to_words(product);
  // Odd multipliers, so that the multiplications run side by side; mix() does the rest.
  const std::uint64_t hash = mix(words[0] * 0x9E3779B97F4A7C15u + words[1] * 0xC2B2AE3D27D4EB4Fu +
                                 words[2] * 0x165667B19E3779F9u + words[3] * 0xD6E8FEB86659FD93u);
  for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
    const auto at = static_cast<std::uint32_t>(hash + probe) & (kCapacity - 1);
    if (at == 0) continue;  // a number is its slot's place, and 0 is none
    Slot& slot = slots_[at];
    std::uint32_t state = slot.state.load(std::memory_order_acquire);
    if (state == kFree && slot.state.compare_exchange_strong(state, kWriting, std::memory_order_acquire)) {
      for (std::size_t i = 0; i < words.size(); ++i) slot.words[i].store(words[i], std::memory_order_relaxed);
      slot.state.store(kReady, std::memory_order_release);
      used_.fetch_add(1, std::memory_order_relaxed);
      return ProductId{at};
    }
    // A slot that another thread fills this very moment is passed by: at worst a product has two numbers.
    if (state != kReady) continue;
    bool same = true;
    for (std::size_t i = 0; i < words.size(); ++i)
      same = same && slot.words[i].load(std::memory_order_relaxed) == words[i];
    if (same) return ProductId{at};
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
  Words words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = slot.words[i].load(std::memory_order_relaxed);
  return from_words(words);
}

}  // namespace mfu

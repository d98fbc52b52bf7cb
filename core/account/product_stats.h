// How often and how long each matrix product ran.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/base/units.h"
#include "core/model/component_names.h"

namespace mfu {

/// Kernels of one product that began.
struct ProductStat {
  std::uint64_t calls = 0;   ///< of the library; each may launch several kernels
  DurationNs sum_ns = 0;     ///< of its kernels
  DurationNs matmul_ns = 0;  ///< of those whose names say matmul; the others set memory, add up parts, apply epilogues

  void add(const ProductStat& other) noexcept {
    calls += other.calls;
    sum_ns += other.sum_ns;
    matmul_ns += other.matmul_ns;
  }
};

/// [mfu-drain] By product and place behind attention. At most kMost entries (56 B each); what is beyond goes to a
/// product of unknown size.
class ProductStats {
 public:
  static constexpr std::size_t kMost = 4096;

  void add(ProductId product, AfterAttention after, const ProductStat& stat) { add(key_of(product, after), stat); }
  void add(const ProductStats& other) {
    for (const auto& [key, stat] : other.stats_) add(key, stat);
  }
  void clear() noexcept { stats_.clear(); }
  [[nodiscard]] bool empty() const noexcept { return stats_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return stats_.size(); }
  /// Calls `each(product, after, stat)` in ascending order of product.
  template <typename Each>
  void for_each(Each&& each) const {
    std::vector<std::pair<std::uint32_t, ProductStat>> sorted(stats_.begin(), stats_.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [key, stat] : sorted)
      each(static_cast<ProductId>(key / kPlaces), static_cast<AfterAttention>(key % kPlaces), stat);
  }

 private:
  static constexpr std::uint32_t kPlaces = 4;
  /// No ProductTable gives this number: its product has no size.
  static constexpr ProductId kBeyond{0xFFFFFFFFu / kPlaces};

  [[nodiscard]] static constexpr std::uint32_t key_of(ProductId product, AfterAttention after) noexcept {
    return raw(product) * kPlaces + static_cast<std::uint32_t>(after);
  }
  void add(std::uint32_t key, const ProductStat& stat) {
    auto known = stats_.find(key);
    if (known == stats_.end())
      known = stats_.try_emplace(stats_.size() < kMost ? key : key_of(kBeyond, AfterAttention::kLater)).first;
    known->second.add(stat);
  }

  std::unordered_map<std::uint32_t, ProductStat> stats_;
};

}  // namespace mfu

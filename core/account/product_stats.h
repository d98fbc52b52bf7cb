// How often and how long each matrix product ran.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
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
  DurationNs least_ns = kNone;  ///< the shortest of them

  static constexpr DurationNs kNone = std::numeric_limits<DurationNs>::max();

  void add(const ProductStat& other) noexcept {
    calls += other.calls;
    sum_ns += other.sum_ns;
    matmul_ns += other.matmul_ns;
    least_ns = std::min(least_ns, other.least_ns);
  }
};

/// Which product, where behind attention, and the kernel that did it.
struct ProductKey {
  ProductId product = ProductId::kNone;
  AfterAttention after = AfterAttention::kLater;
  KernelForm form = KernelForm::kNone;
};

/// [mfu-drain] By product, place behind attention and kernel. At most kMost entries (64 B each); calls beyond them go
/// to a product of unknown size.
class ProductStats {
 public:
  static constexpr std::size_t kMost = 4096;

  void add(const ProductKey& key, const ProductStat& stat) { add(pack(key), stat); }
  void add(const ProductStats& other) {
    for (const auto& [key, stat] : other.stats_) add(key, stat);
  }
  void clear() noexcept { stats_.clear(); }
  [[nodiscard]] bool empty() const noexcept { return stats_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return stats_.size(); }
  /// Calls `each(key, stat)` in ascending order of product.
  template <typename Each>
  void for_each(Each&& each) const {
    std::vector<std::pair<std::uint64_t, ProductStat>> sorted(stats_.begin(), stats_.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [key, stat] : sorted)
      each(ProductKey{static_cast<ProductId>(key >> 32), static_cast<AfterAttention>(key >> 16 & 0xFFFF),
                      static_cast<KernelForm>(key & 0xFFFF)},
           stat);
  }

 private:
  /// No ProductTable gives this number: its product has no size.
  static constexpr ProductId kBeyond{0xFFFFFFFFu};

  [[nodiscard]] static constexpr std::uint64_t pack(const ProductKey& key) noexcept {
    return std::uint64_t{raw(key.product)} << 32 | static_cast<std::uint64_t>(key.after) << 16 |
           static_cast<std::uint64_t>(key.form);
  }
  void add(std::uint64_t key, const ProductStat& stat) {
    auto known = stats_.find(key);
    if (known == stats_.end()) known = stats_.try_emplace(stats_.size() < kMost ? key : pack({kBeyond})).first;
    known->second.add(stat);
  }

  std::unordered_map<std::uint64_t, ProductStat> stats_;
};

}  // namespace mfu

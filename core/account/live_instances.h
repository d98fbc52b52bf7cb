// The instances that are not accounted for yet, found by their id. [mfu-drain]
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/account/instance.h"
#include "core/base/ids.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// Owns them, and keeps a few that are over for the next ones: regions come and go by the thousand, and what they are
/// made of is too large for the allocator's quick ways. Those of one bucket are 65,536 ids apart, so the first is
/// nearly always the one that is looked for.
class LiveInstances {
 public:
  Instance& insert(InstanceId id) {
    if (spare_.empty()) {
      live_.push_back(std::make_unique<Instance>());
    } else {
      live_.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
    Instance& instance = *live_.back();
    instance.id = id;
    instance.index_in_live = live_.size() - 1;
    Instance*& bucket = bucket_of(id);
    instance.next_in_bucket = bucket;
    bucket = &instance;
    return instance;
  }

  /// nullptr: there is none of that id.
  [[nodiscard]] Instance* find(InstanceId id) noexcept {
    Instance* i = bucket_of(id);
    while (i != nullptr && i->id != id) i = i->next_in_bucket;
    return i;
  }

  /// Destroys it. The last one takes its index.
  void remove(Instance* instance) noexcept {
    for (Instance** at = &bucket_of(instance->id); *at != nullptr; at = &(*at)->next_in_bucket) {
      if (*at != instance) continue;
      *at = instance->next_in_bucket;
      break;
    }
    const std::size_t index = instance->index_in_live;
    if (index + 1 != live_.size()) {
      std::swap(live_[index], live_.back());
      live_[index]->index_in_live = index;
    }
    if (spare_.size() < kMostSpare) {
      renew(*live_.back());
      spare_.push_back(std::move(live_.back()));
    }
    live_.pop_back();
  }

  [[nodiscard]] std::size_t size() const noexcept { return live_.size(); }
  [[nodiscard]] const std::unique_ptr<Instance>& operator[](std::size_t index) const noexcept { return live_[index]; }
  [[nodiscard]] auto begin() const noexcept { return live_.begin(); }
  [[nodiscard]] auto end() const noexcept { return live_.end(); }

 private:
  static constexpr std::size_t kMostSpare = 256;  ///< of a tick's small regions; 0.3 MiB
  /// As new, but for the room that it has for devices and products.
  static void renew(Instance& instance) noexcept {
    std::vector<InstanceOnDevice> shares = std::move(instance.shares);
    std::unique_ptr<InstanceProducts> products = std::move(instance.spare_products);
    if (instance.products) products = std::move(instance.products);
    shares.clear();
    if (products) products->clear();
    std::destroy_at(&instance);
    std::construct_at(&instance)->shares = std::move(shares);
    instance.spare_products = std::move(products);
  }

  static constexpr std::uint32_t kBuckets = 1u << 16;
  [[nodiscard]] Instance*& bucket_of(InstanceId id) noexcept { return buckets_[raw(id) & (kBuckets - 1)]; }

  LargeZeroedTable<Instance*> buckets_{kBuckets};
  std::vector<std::unique_ptr<Instance>> live_, spare_;
};

}  // namespace mfu

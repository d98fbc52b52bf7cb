#include "core/attribution/instance_table.h"

namespace mfu {

InstanceTable::InstanceTable(Counters& counters) noexcept : counters_(counters) {
  for (std::uint32_t i = 0; i < kChunks; ++i) free_[i].store(1 + i * kChunk, std::memory_order_relaxed);
  if (slots_.size() != 0) returned_.store(kChunks, std::memory_order_release);
}

bool InstanceTable::take_chunk(Share& share) noexcept {
  std::uint64_t n = taken_.load(std::memory_order_relaxed);
  std::uint32_t first = 0;
  do {
    if (n == returned_.load(std::memory_order_acquire)) {  // pairs with release
      counters_.add(Counter::kInstancesFull);
      return false;
    }
    first = free_[n % kChunks].load(std::memory_order_relaxed);
  } while (!taken_.compare_exchange_weak(n, n + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
  share = {first, kChunk};
  return true;
}

void InstanceTable::release(InstanceSlot& slot) noexcept {
  slot.state.store(InstanceSlot::kFree, std::memory_order_relaxed);
  const std::uint32_t first = (raw(slot.id) - 1) / kChunk * kChunk;
  std::uint8_t& released = released_[first % kCapacity / kChunk];
  if (++released != kChunk) return;
  released = 0;
  const std::uint64_t n = returned_.load(std::memory_order_relaxed);
  free_[n % kChunks].store((first + kCapacity) % kIds + 1, std::memory_order_relaxed);
  returned_.store(n + 1, std::memory_order_release);  // pairs with take_chunk
}

}  // namespace mfu

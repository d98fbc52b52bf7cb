#include "core/attribution/stream_lanes.h"

namespace mfu {

std::uint32_t StreamLanes::find_or_add(std::uint64_t key, bool& settled) noexcept {
  settled = true;
  const std::uint32_t first = first_slot(key);
  std::uint32_t room = kSlots;
  for (std::uint32_t i = 0; i < kProbes; ++i) {
    const std::uint32_t at = (first + i) % kSlots;
    const std::uint64_t there = slots_[at].key.load(std::memory_order_acquire);
    // A number that is not there yet is unknown for this launch: it is being written by another thread.
    if (there == key) {
      const std::uint32_t lane = slots_[at].lane.load(std::memory_order_acquire);
      settled = lane != LaunchPlace::kUnknownLane;
      return lane;
    }
    if (room == kSlots && (there == kFree || there == kRemoved)) room = at;
    if (there == kFree) break;
  }
  if (room == kSlots) return LaunchPlace::kUnknownLane;
  std::uint64_t there = slots_[room].key.load(std::memory_order_relaxed);
  if ((there != kFree && there != kRemoved) ||
      !slots_[room].key.compare_exchange_strong(there, key, std::memory_order_acq_rel)) {
    settled = false;  // the next launch tries again
    return LaunchPlace::kUnknownLane;
  }
  std::uint32_t lane = next_lane_.fetch_add(1, std::memory_order_relaxed) & LaunchPlace::kMaxLane;
  // After 65,535 streams from the beginning: the first ones are long gone.
  if (lane == LaunchPlace::kUnknownLane)
    lane = next_lane_.fetch_add(1, std::memory_order_relaxed) & LaunchPlace::kMaxLane;
  slots_[room].lane.store(lane, std::memory_order_release);
  return lane;
}

void StreamLanes::remove(std::uint32_t context, std::uint64_t handle) noexcept {
  const std::uint64_t key = key_of(context, handle, false, 0);
  const std::uint32_t first = first_slot(key);
  for (std::uint32_t i = 0; i < kProbes; ++i) {
    Slot& slot = slots_[(first + i) % kSlots];
    std::uint64_t there = slot.key.load(std::memory_order_acquire);
    if (there == kFree) break;
    if (there != key) continue;
    slot.lane.store(LaunchPlace::kUnknownLane, std::memory_order_release);
    slot.key.compare_exchange_strong(there, kRemoved, std::memory_order_acq_rel);
  }
  version_.fetch_add(1, std::memory_order_release);
}

}  // namespace mfu

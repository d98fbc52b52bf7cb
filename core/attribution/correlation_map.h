// Correlation id > who launched it. Written on host threads inside the launch callback, read by the drain.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/ids.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// What the launch callback decided: an InstanceId, or one of the verdicts without one. 30 bits, so that a slot of the
/// map keeps two flags beside it.
enum class LaunchOwner : std::uint32_t {
  kOutside = 0,                  ///< no region open anywhere, by a thread that nobody knows
  kMaxInstance = 0x2FFF'FFFFu,   ///< instance ids are 1 .. kMaxInstance
  kOutsideFirst = 0x3000'0000u,  ///< the same as kOutside, by the thread with this number less kOutsideFirst
  kOutsideLast = 0x3000'FFFFu,
  kNotALaunch = 0x3FFF'FFFDu,  ///< captured into a graph, or failed: put no work on a stream
  kAmbiguous = 0x3FFF'FFFEu,   ///< several regions open, nothing to decide between them
};

/// `a` was handed out after `b`; ids wrap.
[[nodiscard]] constexpr bool newer(CorrelationId a, CorrelationId b) noexcept {
  return static_cast<std::int32_t>(raw(a) - raw(b)) > 0;
}

/// No region open anywhere, by `thread`: 1 .. 65535.
[[nodiscard]] constexpr LaunchOwner outside_by(std::uint32_t thread) noexcept {
  return static_cast<LaunchOwner>(raw(LaunchOwner::kOutsideFirst) + (thread & 0xFFFFu));
}
[[nodiscard]] constexpr bool is_outside(LaunchOwner owner) noexcept {
  return owner == LaunchOwner::kOutside || (owner >= LaunchOwner::kOutsideFirst && owner <= LaunchOwner::kOutsideLast);
}
/// Which thread it was; 0: not known.
[[nodiscard]] constexpr std::uint32_t thread_outside(LaunchOwner owner) noexcept {
  return owner >= LaunchOwner::kOutsideFirst && owner <= LaunchOwner::kOutsideLast
             ? raw(owner) - raw(LaunchOwner::kOutsideFirst)
             : 0;
}

/// A direct-mapped ring over the 32-bit correlation ids: fixed memory, an insert is one store, and an entry lives until
/// an id that is a multiple of the capacity later takes its place. Ids count every API call, so entries are sparse.
/// One word per slot (id | recorded bit | owner), so a reader never sees half an entry.
class CorrelationMap {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 20;  ///< ids; 8 MiB: over 2 s at 500,000 API calls/s

  enum class Lookup : std::uint8_t { kFound, kAlreadyRecorded, kNeverSeen, kOverwritten };

  /// [launching thread] hot. True when this id was new; false when an outer API call had entered it already.
  bool insert(CorrelationId id, LaunchOwner owner) noexcept {
    std::atomic<std::uint64_t>& slot = slots_[raw(id) & (kCapacity - 1)];
    const std::uint64_t old = slot.load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(old >> 32) == raw(id) && (old & kUsed) != 0) return false;
    slot.store(pack(id, owner), std::memory_order_release);
    return true;
  }

  /// [launching thread] The launch put no work on a stream after all. False when the id is not in the map, or when
  /// there is a record of it: then it did.
  bool retract(CorrelationId id) noexcept {
    std::atomic<std::uint64_t>& slot = slots_[raw(id) & (kCapacity - 1)];
    std::uint64_t old = slot.load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(old >> 32) != raw(id) || (old & (kUsed | kRecorded)) != kUsed ||
        owner_of(old) == LaunchOwner::kNotALaunch)
      return false;
    return slot.compare_exchange_strong(old, pack(id, LaunchOwner::kNotALaunch), std::memory_order_release,
                                        std::memory_order_relaxed);
  }

  struct Found {
    Lookup result = Lookup::kNeverSeen;
    LaunchOwner owner = LaunchOwner::kOutside;
  };

  /// [mfu-drain] Marks the launch as recorded. kFound the first time, kAlreadyRecorded for its further records.
  Found record(CorrelationId id) noexcept {
    std::atomic<std::uint64_t>& slot = slots_[raw(id) & (kCapacity - 1)];
    std::uint64_t old = slot.load(std::memory_order_acquire);  // pairs with insert
    if ((old & kUsed) == 0) return {};
    const auto held = static_cast<std::uint32_t>(old >> 32);
    if (held != raw(id))
      return {static_cast<std::int32_t>(held - raw(id)) > 0 ? Lookup::kOverwritten : Lookup::kNeverSeen,
              LaunchOwner::kOutside};
    if ((old & kRecorded) != 0) return {Lookup::kAlreadyRecorded, owner_of(old)};
    // A failed exchange means that a newer launch took the slot this very moment; this record then counts as found.
    slot.compare_exchange_strong(old, old | kRecorded, std::memory_order_relaxed);
    return {Lookup::kFound, owner_of(old)};
  }

  /// [mfu-drain] Whether `id` is a launch that still waits for its first record.
  [[nodiscard]] bool outstanding(CorrelationId id) const noexcept {
    const std::uint64_t word = slots_[raw(id) & (kCapacity - 1)].load(std::memory_order_acquire);
    return ((word ^ pack(id, LaunchOwner::kOutside)) & ~kOwnerMask) == 0 && owner_of(word) != LaunchOwner::kNotALaunch;
  }

  /// [mfu-drain] `id` is about to be asked for.
  void prefetch(CorrelationId id) const noexcept { __builtin_prefetch(slots_.data() + (raw(id) & (kCapacity - 1)), 1); }

  [[nodiscard]] std::size_t resident_bytes() const noexcept { return slots_.resident_bytes(); }

 private:
  // High half: the id. Low half: two flags and 30 bits of owner.
  static constexpr std::uint64_t kUsed = 1ull << 31;
  static constexpr std::uint64_t kRecorded = 1ull << 30;
  static constexpr std::uint64_t kOwnerMask = (1ull << 30) - 1;

  static std::uint64_t pack(CorrelationId id, LaunchOwner owner) noexcept {
    return (static_cast<std::uint64_t>(raw(id)) << 32) | kUsed | (raw(owner) & kOwnerMask);
  }
  static LaunchOwner owner_of(std::uint64_t word) noexcept { return static_cast<LaunchOwner>(word & kOwnerMask); }

  ZeroedArray<std::atomic<std::uint64_t>> slots_{kCapacity};
};

}  // namespace mfu

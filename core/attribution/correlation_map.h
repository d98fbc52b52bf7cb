// Correlation id > who launched it, and where. Written on host threads inside callbacks, read by the drain.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/attribution/launch_place.h"
#include "core/attribution/product_tag.h"
#include "core/base/ids.h"
#include "core/base/units.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// The launch callback's decision: an InstanceId, or one of the verdicts without one. 30 bits, so that a slot of the
/// map keeps two flags beside it.
enum class LaunchOwner : std::uint32_t {
  kOutside = 0,                  ///< no region open anywhere, by an unknown thread
  kMaxInstance = 0x2FFF'FFFFu,   ///< instance ids are 1 .. kMaxInstance
  kOutsideFirst = 0x3000'0000u,  ///< the same as kOutside, by the thread with this number less kOutsideFirst
  kOutsideLast = 0x3000'FFFFu,
  kEventRecorded = 0x3FFF'FFFBu,  ///< no launch: an event was recorded on the stream
  kEventAwaited = 0x3FFF'FFFCu,   ///< no launch: the stream waits for an event
  kNotALaunch = 0x3FFF'FFFDu,     ///< captured into a graph, or failed: put no work on a stream
  kAmbiguous = 0x3FFF'FFFEu,      ///< several regions open, nothing to decide between them
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
/// An InstanceId, and none of the verdicts.
[[nodiscard]] constexpr bool is_instance(LaunchOwner owner) noexcept {
  return raw(owner) - 1 < raw(LaunchOwner::kMaxInstance);  // kOutside is above it then
}
/// Which thread it was; 0: not known.
[[nodiscard]] constexpr std::uint32_t thread_outside(LaunchOwner owner) noexcept {
  return owner >= LaunchOwner::kOutsideFirst && owner <= LaunchOwner::kOutsideLast
             ? raw(owner) - raw(LaunchOwner::kOutsideFirst)
             : 0;
}

/// A direct-mapped ring over the 32-bit correlation ids: fixed memory, an insert is a few stores, and an entry lives
/// until an id that is a multiple of the capacity later takes its place. Ids count every API call, so entries are
/// sparse. Who launched is one word (id | recorded bit | owner), so a reader never sees half of it; where it was
/// launched and when its work ended lie beside it.
class CorrelationMap {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 20;  ///< ids; 16 MiB: over 2 s at 500,000 API calls/s

  enum class Lookup : std::uint8_t { kFound, kAlreadyRecorded, kNeverSeen, kOverwritten };

  /// [launching thread] hot. True when this id was new; false when an outer API call had entered it already.
  /// \param product of a kernel that a library launches for a matrix product
  bool insert(CorrelationId id, LaunchOwner owner, LaunchPlace place = {}, ProductTag product = {}) noexcept {
    Slot& slot = slot_of(id);
    const std::uint64_t old = slot.word.load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(old >> 32) == raw(id) && (old & kUsed) != 0) {
      if (place.lane() != LaunchPlace::kUnknownLane) slot.place.store(place.word(), std::memory_order_relaxed);
      return false;
    }
    write(slot, pack(id, owner), place, product.word());
    return true;
  }
  /// [calling thread] A stream records an event or waits for one; `event` distinguishes events.
  void insert_event(CorrelationId id, bool awaited, LaunchPlace place, std::uint32_t event) noexcept {
    write(slot_of(id), pack(id, awaited ? LaunchOwner::kEventAwaited : LaunchOwner::kEventRecorded), place, event);
  }

  /// [launching thread] The launch put no work on a stream after all. False when the id is not in the map, or when
  /// there is a record of it: then it did.
  bool retract(CorrelationId id) noexcept {
    std::atomic<std::uint64_t>& slot = slot_of(id).word;
    std::uint64_t old = slot.load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(old >> 32) != raw(id) || (old & (kUsed | kRecorded)) != kUsed ||
        !is_launch(owner_of(old)))
      return false;
    return slot.compare_exchange_strong(old, pack(id, LaunchOwner::kNotALaunch), std::memory_order_release,
                                        std::memory_order_relaxed);
  }

  /// [launching thread] The launch is of another product than was said, or of none. No effect once it has a record.
  void retag(CorrelationId id, ProductTag product) noexcept {
    Slot& slot = slot_of(id);
    const std::uint64_t word = slot.word.load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(word >> 32) != raw(id) || (word & (kUsed | kRecorded)) != kUsed) return;
    slot.detail.store(product.word(), std::memory_order_release);
  }

  struct Found {
    Lookup result = Lookup::kNeverSeen;
    LaunchOwner owner = LaunchOwner::kOutside;
    ProductTag product;  ///< kFound only
  };

  /// The newest launch a moment ago.
  struct Newest {
    CorrelationId id{};
    std::uint32_t reach = 0;  ///< launches of so many ids before it keep their slots for long; 0: it is not known

    Newest() = default;
    explicit Newest(CorrelationId newest) noexcept : id(newest), reach(kCapacity / 2) {}
  };

  /// [mfu-drain] Marks the launch as recorded. kFound the first time, kAlreadyRecorded for its further records. After
  /// kFound comes note_times or note_no_time, whichever fits.
  Found record(CorrelationId id) noexcept { return record(id, Newest()); }
  /// \param newest Within its reach the launch that will take the slot is half a million calls away: a plain store
  /// does,
  ///   which stalls the core less than a locked exchange.
  Found record(CorrelationId id, Newest newest) noexcept {
    Slot& entry = slot_of(id);
    std::atomic<std::uint64_t>& slot = entry.word;
    std::uint64_t old = slot.load(std::memory_order_acquire);  // pairs with insert
    if (!is_of(old, id)) [[unlikely]] {
      const auto ahead = static_cast<std::int32_t>(static_cast<std::uint32_t>(old >> 32) - raw(id));
      return {(old & kUsed) != 0 && ahead > 0 ? Lookup::kOverwritten : Lookup::kNeverSeen, LaunchOwner::kOutside, {}};
    }
    const LaunchOwner owner = owner_of(old);
    if ((old & kRecorded) != 0) return {Lookup::kAlreadyRecorded, owner, {}};
    ProductTag product;
    // Acquire: who reads a newer launch's detail sees this one's word gone, and fails to exchange it.
    if (is_launch(owner)) [[likely]]
      product = ProductTag(entry.detail.load(std::memory_order_acquire));  // pairs with write
    if (raw(newest.id) - raw(id) < newest.reach) [[likely]]
      slot.store(old | kRecorded, std::memory_order_release);
    else if (!slot.compare_exchange_strong(old, old | kRecorded, std::memory_order_acq_rel))
      return {Lookup::kFound, owner_of(old), {}};  // a newer launch took the slot this very moment: counts as found
    return {Lookup::kFound, owner, product};
  }

  /// [mfu-drain] When the work of a launch ended that was just recorded; of one with several records the latest. Of a
  /// programmatic launch it is the begin: the next one of that kind waits for no more.
  void note_times(CorrelationId id, TimeNs begin_ns, TimeNs end_ns, bool first) noexcept {
    Slot& slot = slot_of(id);
    std::atomic<std::uint32_t>& end = slot.detail;
    const LaunchPlace place(slot.place.load(std::memory_order_relaxed));
    const std::uint32_t units = units_of(place.is_programmatic() ? begin_ns : end_ns);
    if (first || static_cast<std::int32_t>(units - end.load(std::memory_order_relaxed)) > 0)
      end.store(units, std::memory_order_relaxed);
  }
  /// [mfu-drain] A record of a launch has no usable time. \return whether it is the launch's first without one
  bool note_no_time(CorrelationId id, bool first_record) noexcept {
    Slot& slot = slot_of(id);
    if (first_record) slot.detail.store(0, std::memory_order_relaxed);
    std::uint32_t place = slot.place.load(std::memory_order_relaxed);
    return !LaunchPlace(place).is_untimed() &&
           slot.place.compare_exchange_strong(place, LaunchPlace(place).untimed().word(), std::memory_order_relaxed);
  }

  /// [mfu-drain] Whether `id` is a launch that still waits for its first record.
  [[nodiscard]] bool outstanding(CorrelationId id) const noexcept {
    const Slot& slot = slot_of(id);
    const std::uint64_t word = slot.word.load(std::memory_order_acquire);  // pairs with write
    return ((word ^ pack(id, LaunchOwner::kOutside)) & ~kOwnerMask) == 0 && is_launch(owner_of(word)) &&
           !LaunchPlace(slot.place.load(std::memory_order_relaxed)).is_given_up();
  }

  /// [mfu-drain] Whether there is an entry with that id: of many ids, most of which have none, the quick question.
  [[nodiscard]] bool holds(CorrelationId id) const noexcept {
    return is_of(slot_of(id).word.load(std::memory_order_relaxed), id);
  }
  /// [mfu-drain] The same of `count` ids from `first` on: those that there are go to `held`, which has room for all.
  /// \return how many there are.
  std::uint32_t find_held(CorrelationId first, std::uint32_t count, CorrelationId* held) const noexcept {
    CorrelationId* next = held;
    for (std::uint32_t id = raw(first), end = id + count; id != end;) {
      const Slot* slot = &slot_of(static_cast<CorrelationId>(id));
      const std::uint32_t to_last = kCapacity - (id & (kCapacity - 1));
      // Which ids have an entry follows no pattern that a branch could learn: each is written, and kept or not.
      for (const std::uint32_t stop = id + std::min(end - id, to_last); id != stop; ++id, ++slot) {
        *next = static_cast<CorrelationId>(id);
        next += is_of(slot->word.load(std::memory_order_relaxed), static_cast<CorrelationId>(id));
      }
    }
    return static_cast<std::uint32_t>(next - held);
  }

  enum class Kind : std::uint8_t { kOther, kOutstanding, kRecorded, kEventRecorded, kEventAwaited };
  /// Followed by the drain in the order of ids.
  struct Entry {
    Kind kind = Kind::kOther;  ///< kOther: no entry with that id, or no work came of it
    LaunchPlace place;
    LaunchOwner owner = LaunchOwner::kOutside;
    std::uint32_t detail = 0;  ///< kRecorded: see end_of; of events: which one
  };
  /// [mfu-drain]
  [[nodiscard, gnu::always_inline]] Entry look(CorrelationId id) const noexcept {
    const Slot& slot = slot_of(id);
    const std::uint64_t word = slot.word.load(std::memory_order_acquire);  // pairs with write
    if (!is_of(word, id)) return {};
    Entry entry;
    entry.place = LaunchPlace(slot.place.load(std::memory_order_acquire));
    entry.detail = slot.detail.load(std::memory_order_acquire);
    if (slot.word.load(std::memory_order_relaxed) != word) [[unlikely]]
      return {};  // taken over by a newer id this very moment
    const LaunchOwner owner = owner_of(word);
    entry.owner = owner;
    if (is_launch(owner)) [[likely]]
      entry.kind = (word & kRecorded) != 0     ? Kind::kRecorded
                   : entry.place.is_given_up() ? Kind::kOther
                                               : Kind::kOutstanding;
    else if (owner == LaunchOwner::kEventRecorded)
      entry.kind = Kind::kEventRecorded;
    else if (owner == LaunchOwner::kEventAwaited)
      entry.kind = Kind::kEventAwaited;
    return entry;
  }
  /// When recorded work ended, rounded down to 256 ns; `now` is within 9 minutes of it. 0: it had no usable time.
  [[nodiscard]] static TimeNs end_of(const Entry& entry, TimeNs now) noexcept {
    if (entry.detail == 0) return 0;
    const auto ago = static_cast<std::int32_t>(units_of(now) - entry.detail);
    return ((now >> kUnitShift) - ago) << kUnitShift;
  }
  /// [mfu-drain] No record is waited for any more. Should one come, it is found all the same.
  void give_up(CorrelationId id) noexcept {
    Slot& slot = slot_of(id);
    std::uint32_t place = slot.place.load(std::memory_order_relaxed);
    slot.place.compare_exchange_strong(place, LaunchPlace(place).given_up().word(), std::memory_order_relaxed);
  }
  [[nodiscard]] LaunchPlace place_of(CorrelationId id) const noexcept {
    return LaunchPlace(slot_of(id).place.load(std::memory_order_relaxed));
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
  static bool is_of(std::uint64_t word, CorrelationId id) noexcept {
    constexpr int kIdAndUsed = 31;
    static_assert(kUsed == 1ull << kIdAndUsed);
    return word >> kIdAndUsed == (static_cast<std::uint64_t>(raw(id)) << 1 | 1);
  }
  static LaunchOwner owner_of(std::uint64_t word) noexcept { return static_cast<LaunchOwner>(word & kOwnerMask); }
  static bool is_launch(LaunchOwner owner) noexcept {
    return owner < LaunchOwner::kEventRecorded || owner == LaunchOwner::kAmbiguous;
  }
  static constexpr int kUnitShift = 8;
  static std::uint32_t units_of(TimeNs t) noexcept {
    const auto units = static_cast<std::uint32_t>(t >> kUnitShift);
    return units != 0 ? units : 1;
  }

  struct Slot {
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> place;
    /// Of a launch: its ProductTag, and when its work ended, written and read by the drain alone, once it is recorded.
    /// Of an event: which.
    std::atomic<std::uint32_t> detail;
  };
  static_assert(sizeof(Slot) == 16);
  Slot& slot_of(CorrelationId id) noexcept { return slots_[raw(id) & (kCapacity - 1)]; }
  const Slot& slot_of(CorrelationId id) const noexcept { return slots_[raw(id) & (kCapacity - 1)]; }
  /// Nothing of the entry before is left to be seen together with the new one: a reader that sees the new place or
  /// detail sees the word gone.
  static void write(Slot& slot, std::uint64_t word, LaunchPlace place, std::uint32_t detail) noexcept {
    slot.word.store(0, std::memory_order_relaxed);
    slot.place.store(place.word(), std::memory_order_release);  // pairs with look
    slot.detail.store(detail, std::memory_order_release);       // pairs with look
    slot.word.store(word, std::memory_order_release);
  }

  ZeroedArray<Slot> slots_{kCapacity};
};

}  // namespace mfu

// Region instances while they matter: opened and closed by host threads, followed and released by the drain.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/counters.h"
#include "core/base/ids.h"
#include "core/base/shape.h"
#include "core/base/ticks.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// The opener of the instance.
enum class InstanceKind : std::uint8_t {
  kThread,    ///< a push/pop range: belongs to its thread
  kProcess,   ///< a start/end range: belongs to the process
  kNested,    ///< a range inside an instance of the same region: adds shape, not time
  kDetected,  ///< no range: the step detector found it
};

/// One slot of the table. The opener fills it and publishes it; the closer sets two fields; the drain releases it. All
/// but the values of its shape are in one cache line, which is in no cache of the opener's core when the slot is taken.
struct alignas(64) InstanceSlot {
  enum State : std::uint32_t { kFree = 0, kOpen = 1, kClosed = 2 };

  std::atomic<std::uint32_t> state{kFree};  ///< release by the opener and the closer, acquire by the drain
  InstanceId id = InstanceId::kNone;
  InstanceId parent = InstanceId::kNone;      ///< enclosing instance; of a part: the instance it belongs to
  ThreadSerial opener = ThreadSerial::kNone;  ///< serial of the opening thread
  std::uint32_t os_thread = 0;                ///< of the opener, as gettid() says
  RegionId region = RegionId::kNone;
  RuleId rule = RuleId::kNone;
  InstanceKind kind = InstanceKind::kThread;
  std::atomic<std::uint32_t> context{0};  ///< last CUDA context that the opening thread launched on; 0: none yet
  Ticks open_ticks = 0;
  Ticks close_ticks = 0;
  ShapeWords shape;  ///< values that are not given are left from earlier instances
};
static_assert(offsetof(InstanceSlot, shape) + offsetof(ShapeWords, value) <= 64);

/// Fixed memory, divided into chunks of a few slots. A thread takes a chunk and opens its next instances in it, in
/// order, without a locked instruction; the drain gives the chunk back once all of it is released. An instance that
/// finds no chunk free is not recorded, but counted.
class InstanceTable {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 15;
  static constexpr std::uint32_t kChunk = 8;  ///< slots; a thread that opens no more keeps the rest
  static constexpr std::uint32_t kChunks = kCapacity / kChunk;
  /// Ids run 1 .. kIds and start again.
  static constexpr std::uint32_t kIds = 1u << 29;

  /// The rest of a chunk, of one thread or under a lock.
  struct Share {
    std::uint32_t next = 0;  ///< raw InstanceId
    std::uint32_t left = 0;
  };

  explicit InstanceTable(Counters& counters) noexcept;

  /// [opening thread] A free slot to fill, or nullptr when the table is full. Publish it with `publish`.
  [[nodiscard]] InstanceSlot* claim(Share& share, InstanceId& id) noexcept {
    if (share.left == 0 && !take_chunk(share)) return nullptr;
    --share.left;
    id = static_cast<InstanceId>(share.next++);
    InstanceSlot& s = slot(id);
    s.id = id;
    s.context.store(0, std::memory_order_relaxed);
    return &s;
  }
  static void publish(InstanceSlot& slot) noexcept { slot.state.store(InstanceSlot::kOpen, std::memory_order_release); }
  /// [closing thread] Ends the instance at `ticks`.
  void close(InstanceId id, Ticks ticks, std::uint32_t context) noexcept {
    InstanceSlot& s = slot(id);
    if (s.state.load(std::memory_order_relaxed) != InstanceSlot::kOpen || s.id != id) return;
    s.close_ticks = ticks;
    s.context.store(context, std::memory_order_relaxed);
    s.state.store(InstanceSlot::kClosed, std::memory_order_release);  // pairs with the drain's acquire
  }

  /// [mfu-drain] Chunks that threads took so far.
  [[nodiscard]] std::uint64_t chunks_taken() const noexcept { return taken_.load(std::memory_order_acquire); }
  /// [mfu-drain] All slots of the n-th of them, from 0 on. Ask before a slot of it is released.
  [[nodiscard]] Share chunk(std::uint64_t n) const noexcept {
    return {free_[n % kChunks].load(std::memory_order_relaxed), kChunk};
  }
  [[nodiscard]] InstanceSlot& slot(InstanceId id) noexcept { return slots_[(raw(id) - 1) & (kCapacity - 1)]; }
  /// [mfu-drain] Gives the slot back. The instance's data must have been copied.
  void release(InstanceSlot& slot) noexcept;

  [[nodiscard]] std::size_t resident_bytes() const noexcept { return slots_.resident_bytes(); }

 private:
  bool take_chunk(Share& share) noexcept;

  Counters& counters_;
  ZeroedArray<InstanceSlot> slots_{kCapacity};
  /// The chunks that are free, by the first id of their next instances, in a ring: threads take from `taken_` on, the
  /// drain gives back at `returned_`. There is room for all, so that a place is not written before it was taken.
  std::array<std::atomic<std::uint32_t>, kChunks> free_;
  std::atomic<std::uint64_t> taken_{0}, returned_{0};
  std::array<std::uint8_t, kChunks> released_{};  ///< slots of each chunk; the drain's own
};

}  // namespace mfu

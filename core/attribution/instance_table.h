// Region instances while they matter: opened and closed by host threads, followed and released by the drain.
#pragma once

#include <atomic>
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

/// One slot of the table. The opener fills it and publishes it; the closer sets two fields; the drain releases it.
struct InstanceSlot {
  enum State : std::uint32_t { kFree = 0, kOpen = 1, kClosed = 2, kClaimed = 3 };

  std::atomic<std::uint32_t> state{kFree};  ///< release by the opener and the closer, acquire by the drain
  InstanceId id = InstanceId::kNone;
  InstanceId parent = InstanceId::kNone;      ///< enclosing instance; of a part: the instance it belongs to
  ThreadSerial opener = ThreadSerial::kNone;  ///< serial of the opening thread
  std::uint32_t os_thread = 0;                ///< of the opener, as gettid() says
  RegionId region = RegionId::kNone;
  RuleId rule = RuleId::kNone;
  InstanceKind kind = InstanceKind::kThread;
  /// 1 + the newest claim that found the slot taken; 0: none did. Only grows.
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint32_t> context{0};  ///< last CUDA context that the opening thread launched on; 0: none yet
  Ticks open_ticks = 0;
  Ticks close_ticks = 0;
  ShapeWords shape;
};

/// Fixed memory; ids count up and wrap after 2^30. An instance whose slot is still taken is not recorded, but counted.
class InstanceTable {
 public:
  static constexpr std::uint32_t kCapacity = 1u << 15;

  explicit InstanceTable(Counters& counters) noexcept : counters_(counters) {}

  /// [opening thread] A free slot to fill, or nullptr when the table is full. Publish it with `publish`.
  [[nodiscard]] InstanceSlot* claim(InstanceId& id) noexcept;
  static void publish(InstanceSlot& slot) noexcept { slot.state.store(InstanceSlot::kOpen, std::memory_order_release); }
  /// [closing thread] Ends the instance at `ticks`.
  void close(InstanceId id, Ticks ticks, std::uint32_t context) noexcept;

  /// [mfu-drain] Claims so far. Some of them may still be under way.
  [[nodiscard]] std::uint64_t next_sequence() const noexcept { return next_.load(std::memory_order_acquire); }
  /// [mfu-drain] The published slot of the n-th claim; nullptr when it is not published yet (`pending`), or never will
  /// be. A thread may be held up for any time between counting its claim and publishing.
  [[nodiscard]] InstanceSlot* at_sequence(std::uint64_t sequence, bool& pending) noexcept;
  [[nodiscard]] InstanceSlot& slot(InstanceId id) noexcept { return slots_[(raw(id) - 1) & (kCapacity - 1)]; }
  /// [mfu-drain] Gives the slot back. The instance's data must have been copied.
  static void release(InstanceSlot& slot) noexcept { slot.state.store(InstanceSlot::kFree, std::memory_order_release); }

  [[nodiscard]] std::size_t resident_bytes() const noexcept { return slots_.resident_bytes(); }

  /// Ids run 1 .. kIds and start again.
  static constexpr std::uint32_t kIds = 1u << 29;
  [[nodiscard]] static InstanceId id_of(std::uint64_t sequence) noexcept {
    return static_cast<InstanceId>(sequence % kIds + 1);
  }

 private:
  void refuse(InstanceSlot& slot, std::uint64_t sequence) noexcept;

  Counters& counters_;
  std::atomic<std::uint64_t> next_{0};
  ZeroedArray<InstanceSlot> slots_{kCapacity};
};

}  // namespace mfu

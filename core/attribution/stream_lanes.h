// CUDA stream > a small number that no other stream of the process ever had. Hot: looked up inside launch callbacks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/attribution/launch_place.h"

namespace mfu {

/// Streams differ by context and handle, as the launch call names them, so that CUPTI need not be asked. A
/// handle is used again after its stream was destroyed: the new stream gets a new number. A stream that finds no room
/// has kUnknownLane: then nothing is known of the order of its launches.
class StreamLanes {
 public:
  /// The stream on which a thread launched last. It belongs to one thread.
  struct Cache {
    std::uint64_t key = 0;
    std::uint32_t version = 0;
    std::uint32_t lane = LaunchPlace::kUnknownLane;
  };

  /// [any thread] hot. No lock, no allocation.
  /// \param handle as the call was given it: 0 and 1 are the context's default stream, 2 is the calling thread's own.
  /// \param per_thread handle 0 means the calling thread's own stream.
  /// \param thread distinguishes all threads that ever were, > 0.
  [[nodiscard]] std::uint32_t lane_of(Cache& cache, std::uint32_t context, std::uint64_t handle, bool per_thread,
                                      std::uint32_t thread) noexcept {
    const std::uint64_t key = key_of(context, handle, per_thread, thread);
    const std::uint32_t version = version_.load(std::memory_order_acquire);
    if (cache.key != key || cache.version != version) [[unlikely]] {
      bool settled = true;
      const std::uint32_t lane = find_or_add(key, settled);
      cache = {settled ? key : kFree, version, lane};  // no stream has the key kFree: asked again
    }
    return cache.lane;
  }

  /// [any thread] The stream is about to be destroyed.
  void remove(std::uint32_t context, std::uint64_t handle) noexcept;

 private:
  static constexpr std::uint32_t kSlots = 4096, kProbes = 32;
  static constexpr std::uint64_t kFree = 0, kRemoved = ~0ull;

  /// User-space addresses have 47 bits; stream objects are aligned, so that small and odd handles are our own.
  [[nodiscard]] static std::uint64_t key_of(std::uint32_t context, std::uint64_t handle, bool per_thread,
                                            std::uint32_t thread) noexcept {
    if (handle == 2 || (handle == 0 && per_thread))
      handle = static_cast<std::uint64_t>(thread) << 4 | 2;
    else if (handle == 0)
      handle = 1;
    return handle ^ static_cast<std::uint64_t>(context) << 48;
  }
  /// `settled`: false where another thread is about to give the stream its number.
  [[gnu::noinline]] std::uint32_t find_or_add(std::uint64_t key, bool& settled) noexcept;
  [[nodiscard]] static std::uint32_t first_slot(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>((key * 0x9E37'79B9'7F4A'7C15ull) >> 52);  // 12 bits: kSlots
  }

  struct Slot {
    std::atomic<std::uint64_t> key{kFree};
    std::atomic<std::uint32_t> lane{LaunchPlace::kUnknownLane};
  };
  std::array<Slot, kSlots> slots_{};
  std::atomic<std::uint32_t> next_lane_{1};
  std::atomic<std::uint32_t> version_{1};  ///< changes with every stream that goes
};

}  // namespace mfu

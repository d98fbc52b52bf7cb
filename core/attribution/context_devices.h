// Which device a CUDA context is on.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace mfu {

/// CUDA context > device, filled where CUPTI reports it, read where a thread's last context is all that is known.
class ContextDevices {
 public:
  /// [any thread]
  void set(std::uint32_t context, std::uint32_t device) noexcept {
    slots_[context % kSlots].store((static_cast<std::uint64_t>(context) << 32) | (device + 1),
                                   std::memory_order_relaxed);
  }
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint32_t context) const noexcept {
    const std::uint64_t word = slots_[context % kSlots].load(std::memory_order_relaxed);
    if ((word >> 32) != context || (word & 0xFFFF'FFFFu) == 0) return std::nullopt;
    return static_cast<std::uint32_t>(word & 0xFFFF'FFFFu) - 1;
  }

 private:
  static constexpr std::uint32_t kSlots = 256;
  std::array<std::atomic<std::uint64_t>, kSlots> slots_{};
};

}  // namespace mfu

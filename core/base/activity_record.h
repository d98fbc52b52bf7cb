// One device activity as every source gives it: CUPTI live, a stored trace offline.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/base/ids.h"
#include "core/base/units.h"

namespace mfu {

enum class ActivityKind : std::uint8_t {
  kKernel,
  kMemcpy,
  kMemset,
  kGraph,
  kCall,           ///< no activity: the host call that launched
  kCaptureBegins,  ///< no activity: from here on the thread's launches are recorded into a graph
  kCaptureEnds,
};

/// The kinds that stand for what a host thread did, not a device.
[[nodiscard]] constexpr bool is_host_call(ActivityKind kind) noexcept { return kind >= ActivityKind::kCall; }

/// Where a copy goes. Within: from device to device (the same or a peer), or from host to host.
enum class CopyDirection : std::uint8_t { kUnknown, kToDevice, kToHost, kWithin };

/// Blocks of a kernel launch along x, y and z. All zero: not known, or no kernel.
struct Grid {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t z = 0;
  friend constexpr bool operator==(const Grid&, const Grid&) = default;
};

/// A grid in 64 bits: x in the lower 32, then 16 each for y and z. CUDA allows 2^31-1 by 65535 by 65535, so all of its
/// grids fit; larger ones (HIP) saturate.
[[nodiscard]] constexpr std::uint64_t pack(const Grid& grid) noexcept {
  constexpr std::uint32_t kMost = 0xFFFF;
  const std::uint64_t y = grid.y < kMost ? grid.y : kMost;
  const std::uint64_t z = grid.z < kMost ? grid.z : kMost;
  return grid.x | y << 32 | z << 48;
}
[[nodiscard]] constexpr Grid unpack_grid(std::uint64_t packed) noexcept {
  return {static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32 & 0xFFFF),
          static_cast<std::uint32_t>(packed >> 48)};
}

/// [begin_ns, end_ns) of one kernel, memcpy, memset or (graph-level tracing) whole graph on one device.
struct ActivityRecord {
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;
  std::uint64_t extent = 0;     ///< kernels: pack(Grid); copies and sets: bytes; host calls: their OS thread
  CorrelationId correlation{};  ///< of the launch that caused it
  DeviceId device{};
  StreamId stream{};
  GraphId graph = GraphId::kNone;
  KernelNameId name = KernelNameId::kOther;  ///< kernels only
  ActivityKind kind = ActivityKind::kKernel;
  CopyDirection direction = CopyDirection::kUnknown;  ///< memcpy only
  /// Of the kernels that one matrix product launched, one alone has this set: the product's FLOP count once, with it.
  bool first_of_product = false;
  ProductId product = ProductId::kNone;  ///< kernels only: the matrix product that launched it

  [[nodiscard]] Grid grid() const noexcept { return kind == ActivityKind::kKernel ? unpack_grid(extent) : Grid{}; }
};
static_assert(std::is_trivially_copyable_v<ActivityRecord>);
static_assert(sizeof(ActivityRecord) == 56);

}  // namespace mfu

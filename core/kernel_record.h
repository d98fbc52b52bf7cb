// One device activity as every source gives it: CUPTI live, a stored trace offline.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/ids.h"
#include "core/units.h"

namespace mfu {

enum class ActivityKind : std::uint8_t {
  kKernel,
  kMemcpy,
  kMemset,
  kGraph,
  kCall,           ///< no activity: the host call that launched; `bytes` is the OS thread
  kCaptureBegins,  ///< no activity: from here on the thread's launches are recorded into a graph
  kCaptureEnds,
};

/// Which way a memcpy goes.
enum class CopyDirection : std::uint8_t { kUnknown, kToDevice, kToHost, kWithin };

/// The kinds that stand for what a host thread did, not a device.
[[nodiscard]] constexpr bool is_host_call(ActivityKind kind) noexcept { return kind >= ActivityKind::kCall; }

/// [begin_ns, end_ns) of one kernel, memcpy, memset or (graph-level tracing) whole graph on one device.
struct KernelRecord {
  TimeNs begin_ns = 0;
  TimeNs end_ns = 0;
  std::uint64_t bytes = 0;      ///< memcpy and memset; of a host call its OS thread
  CorrelationId correlation{};  ///< of the launch that caused it
  DeviceId device{};
  StreamId stream{};
  GraphId graph = GraphId::kNone;
  KernelNameId name = KernelNameId::kOther;  ///< kernels only
  ActivityKind kind = ActivityKind::kKernel;
  CopyDirection direction = CopyDirection::kUnknown;  ///< memcpy only
};
static_assert(std::is_trivially_copyable_v<KernelRecord>);
static_assert(sizeof(KernelRecord) == 48);

}  // namespace mfu

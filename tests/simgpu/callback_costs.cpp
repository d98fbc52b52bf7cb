// What the callbacks of a client cost, for the truth.
#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/test_hooks.h"
#include "tools/simgpu/settings.h"

namespace mfu::sim {

std::int64_t begin_callback() { return settings().trace.empty() ? 0 : monotonic_ns(); }

void end_callback(CallbackCostIndex which, std::int64_t began) {
  const Driver* driver = connected_driver();
  if (driver == nullptr) return;
  CallbackCost& cost = driver->costs[which];
  const auto took = static_cast<std::uint64_t>(monotonic_ns() - began);
  cost.count.fetch_add(1, std::memory_order_relaxed);
  cost.total_ns.fetch_add(took, std::memory_order_relaxed);
  std::uint64_t max = cost.max_ns.load(std::memory_order_relaxed);
  while (took > max && !cost.max_ns.compare_exchange_weak(max, took, std::memory_order_relaxed)) {
  }
}

}  // namespace mfu::sim

#include "core/rows/slowest_instances.h"

namespace mfu {

void SlowestInstances::add(const SlowInstance& instance) noexcept {
  const auto before = [](const SlowInstance& a, const SlowInstance& b) {
    return a.elapsed_ns != b.elapsed_ns ? a.elapsed_ns > b.elapsed_ns : a.t0_ns < b.t0_ns;
  };
  if (count_ == kMost && !before(instance, slowest_.back())) return;
  if (count_ < kMost) ++count_;
  std::size_t at = count_ - 1;
  for (; at > 0 && before(instance, slowest_[at - 1]); --at) slowest_[at] = slowest_[at - 1];
  slowest_[at] = instance;
}

std::vector<SlowInstance> SlowestInstances::beyond(const LatencySummary& latency) const {
  std::vector<SlowInstance> found;
  if (latency.count < kEnough) return found;
  for (const SlowInstance& s : all())
    if (static_cast<double>(s.elapsed_ns) > kFactor * static_cast<double>(latency.p50_ns)) found.push_back(s);
  return found;
}

}  // namespace mfu

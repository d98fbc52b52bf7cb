#include "tools/replay/trace_launches.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/detect/launch_fold.h"
#include "core/kernels/kernel_names.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {
std::vector<DeviceLaunches> trace_launches(const Trace& trace) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> by_device;
  for (std::uint32_t i = 0; i < trace.activities.size(); ++i) {
    const TraceActivity& activity = trace.activities[i];
    if (activity.has_correlation) by_device[{activity.process, trace.streams[activity.stream].device}].push_back(i);
  }
  std::unordered_map<std::uint32_t, KernelTraits> known_traits;
  const auto traits_of_kernel = [&](std::uint32_t name) {
    const auto [known, inserted] = known_traits.try_emplace(name);
    if (inserted) known->second = role_of_kernel(demangle(trace.strings.at(name)));
    return known->second;
  };
  std::vector<DeviceLaunches> out;
  for (auto& [key, activities] : by_device) {
    std::sort(activities.begin(), activities.end(), [&](std::uint32_t a, std::uint32_t b) {
      const TraceActivity& x = trace.activities[a];
      const TraceActivity& y = trace.activities[b];
      if (x.correlation != y.correlation) return x.correlation < y.correlation;
      return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns : a < b;
    });
    DeviceLaunches device{key.first, key.second, {}};
    for (std::size_t i = 0; i < activities.size();) {
      const TraceActivity& first = trace.activities[activities[i]];
      const TraceLaunch* call = first.launch != kNoLaunch ? &trace.launches[first.launch] : nullptr;
      LaunchFold fold(call != nullptr ? call->thread + 1 : 0);
      for (; i < activities.size() && trace.activities[activities[i]].correlation == first.correlation; ++i) {
        ActivityRecord record = to_kernel_record(trace, trace.activities[activities[i]]);
        if (call != nullptr && call->graph) record.graph = GraphId::kUnknown;
        fold.add(record, record.kind == ActivityKind::kKernel ? traits_of_kernel(raw(record.name)) : traits_of(record));
      }
      device.launches.push_back(fold.launch());
    }
    out.push_back(std::move(device));
  }
  return out;
}

}  // namespace mfu

#include "tools/trace/trace_launches.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/kernel_names.h"
#include "core/launch_class.h"

namespace mfu {
namespace {

std::uint64_t mix(std::uint64_t h) noexcept {
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93u;
  return h ^ (h >> 32);
}

}  // namespace

std::vector<DeviceLaunches> trace_launches(const Trace& trace) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> by_device;
  for (std::uint32_t i = 0; i < trace.activities.size(); ++i) {
    const TraceActivity& activity = trace.activities[i];
    if (activity.has_correlation) by_device[{activity.process, trace.streams[activity.stream].device}].push_back(i);
  }
  std::unordered_map<std::uint32_t, LaunchTraits> kernel_traits;
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
      Launch launch;
      launch.begin_ns = first.begin_ns;
      launch.end_ns = first.end_ns;
      std::uint64_t content = 0;
      std::size_t records = 0;
      for (; i < activities.size() && trace.activities[activities[i]].correlation == first.correlation;
           ++i, ++records) {
        const TraceActivity& activity = trace.activities[activities[i]];
        launch.begin_ns = std::min(launch.begin_ns, activity.begin_ns);
        launch.end_ns = std::max(launch.end_ns, activity.end_ns);
        content += mix(activity.name + 1);  // a sum: streams of one graph may finish in any order
      }
      const bool graph = first.kind == ActivityKind::kGraph ||
                         (first.launch != kNoLaunch && trace.launches[first.launch].graph) || records > 8;
      if (graph) {
        launch.traits = traits_of(LaunchClass::kGraph);
        launch.name = static_cast<std::uint32_t>(mix(content + records)) | Launch::kGraphName;
      } else if (first.kind == ActivityKind::kKernel) {
        const auto [known, inserted] = kernel_traits.try_emplace(first.name);
        if (inserted) known->second = classify_launch_name(demangle(trace.strings.at(first.name)));
        launch.traits = known->second;
        launch.name = Launch::kFirstKernel + first.name;
        launch.grid = unpack_grid(first.extent);
      } else {
        const LaunchClass launch_class = first.kind == ActivityKind::kMemset
                                             ? LaunchClass::kMemset
                                             : copy_class(static_cast<CopyDirection>(first.direction));
        launch.traits = traits_of(launch_class);
        launch.name = static_cast<std::uint32_t>(launch_class);
      }
      if (first.launch != kNoLaunch) launch.thread = trace.launches[first.launch].thread + 1;
      device.launches.push_back(launch);
    }
    out.push_back(std::move(device));
  }
  return out;
}

}  // namespace mfu

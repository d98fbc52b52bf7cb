#include "tools/trace/trace.h"

#include <algorithm>
#include <array>
#include <bit>

namespace mfu {

std::uint32_t StringTable::intern(std::string_view text) {
  if (const auto found = index_.find(text); found != index_.end()) return found->second;
  const auto id = static_cast<std::uint32_t>(strings_.size());
  strings_.emplace_back(text);
  index_.emplace(strings_.back(), id);
  return id;
}

bool check_times(TimeNs begin_ns, TimeNs& end_ns, std::map<std::string, std::uint64_t>& notes) {
  if (begin_ns <= kSmallestTimeNs || begin_ns >= kLargestTimeNs) return false;
  if (end_ns <= kSmallestTimeNs || end_ns >= kLargestTimeNs || end_ns - begin_ns > kLongestEventNs) return false;
  if (end_ns < begin_ns) {
    ++notes["negative_durations"];
    end_ns = begin_ns;
  }
  return true;
}

namespace {

/// Where the search for an id begins. Sixteen consecutive ids share a cache line, since launches and the activities
/// they cause come nearly in the order of their ids.
std::uint64_t home_of(std::uint32_t process, std::uint64_t correlation) noexcept {
  constexpr std::uint64_t kTogether = 16;
  std::uint64_t h = correlation / kTogether + 0x9E3779B97F4A7C15u * (process + 1u);
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93u;
  return (h ^ (h >> 32)) * kTogether + correlation % kTogether;
}

/// Open addressing over indices of launches: 4 bytes a slot, so that joining costs little beside the records.
class LaunchIndex {
 public:
  explicit LaunchIndex(Trace& trace)
      : trace_(trace), slots_(std::bit_ceil(std::max<std::size_t>(16, trace.launches.size() * 2)), kNoLaunch) {}

  /// Enters a launch. When another has its id already, the one that starts later stops being counted.
  void insert(std::uint32_t index) {
    TraceLaunch& launch = trace_.launches[index];
    const std::uint32_t process = trace_.threads[launch.thread].process;
    std::uint32_t& slot = slots_[find_slot(process, launch.correlation)];
    if (slot == kNoLaunch) {
      slot = index;
      return;
    }
    ++trace_.processes[process].notes["duplicate_correlation_on_host"];
    TraceLaunch& known = trace_.launches[slot];
    const bool earlier = launch.begin_ns < known.begin_ns;
    (earlier ? known : launch).counted = 0;
    if (earlier) slot = index;
  }

  [[nodiscard]] std::uint32_t find(std::uint32_t process, std::uint64_t correlation) const {
    return slots_[find_slot(process, correlation)];
  }

 private:
  [[nodiscard]] std::size_t find_slot(std::uint32_t process, std::uint64_t correlation) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = home_of(process, correlation) & mask;
    for (;; at = (at + 1) & mask) {
      if (slots_[at] == kNoLaunch) return at;
      const TraceLaunch& launch = trace_.launches[slots_[at]];
      if (launch.correlation == correlation && trace_.threads[launch.thread].process == process) return at;
    }
  }

  Trace& trace_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace

void link_launches(Trace& trace) {
  LaunchIndex index(trace);
  for (std::uint32_t i = 0; i < trace.launches.size(); ++i) index.insert(i);
  for (TraceActivity& activity : trace.activities)
    activity.launch = activity.has_correlation ? index.find(activity.process, activity.correlation) : kNoLaunch;
}

ActivityRecord to_kernel_record(const Trace& trace, const TraceActivity& activity) {
  ActivityRecord record;
  record.begin_ns = activity.begin_ns;
  record.end_ns = activity.end_ns;
  record.extent = activity.extent;
  record.direction = static_cast<CopyDirection>(activity.direction);
  record.correlation = CorrelationId{activity.launch == kNoLaunch ? 0 : activity.launch + 1};
  const TraceStream& stream = trace.streams[activity.stream];
  record.device = trace.devices[stream.device].id;
  record.stream = stream.id;
  record.name = KernelNameId{activity.name};
  record.kind = activity.kind;
  return record;
}

bool is_nccl_kernel(std::string_view name) noexcept {
  return name.starts_with("nccl") || name.find("ncclKernel") != name.npos || name.find("ncclDevKernel") != name.npos;
}

std::string_view range_key(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 4> kTails{", op_id =", ", seq =", ", sizes =", ", input_op_ids ="};
  std::size_t cut = name.size();
  for (std::size_t at = name.find(", "); at < cut; at = name.find(", ", at + 1)) {
    for (const std::string_view tail : kTails)
      if (name.substr(at).starts_with(tail)) cut = at;
  }
  return name.substr(0, cut);
}

void classify_launch(TraceLaunch& launch, std::string_view api_name) noexcept {
  const auto has = [&](std::string_view word) { return api_name.find(word) != api_name.npos; };
  launch.graph = has("GraphLaunch");
  launch.memcpy = has("Memcpy");
  launch.memset = has("Memset");
  launch.kernel = has("LaunchKernel") || has("LaunchCooperativeKernel");
  launch.capture = has("BeginCapture");
}

}  // namespace mfu

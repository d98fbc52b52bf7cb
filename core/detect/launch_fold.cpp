#include "core/detect/launch_fold.h"

#include <algorithm>

#include "core/base/bit_mix.h"

namespace mfu {

KernelTraits traits_of(const ActivityRecord& record) noexcept {
  if (record.kind == ActivityKind::kMemcpy) return traits_of(copy_role(record.direction));
  if (record.kind == ActivityKind::kMemset) return traits_of(KernelRole::kMemset);
  return record.kind == ActivityKind::kGraph ? traits_of(KernelRole::kGraph) : KernelTraits{};
}

void LaunchFold::add(const ActivityRecord& record, const KernelTraits& traits) noexcept {
  if (records_++ == 0) {
    first_ = record;
    launch_.begin_ns = record.begin_ns;
    launch_.end_ns = record.end_ns;
    launch_.traits = traits;
  }
  launch_.begin_ns = std::min(launch_.begin_ns, record.begin_ns);
  launch_.end_ns = std::max(launch_.end_ns, record.end_ns);
  content_ += mix((static_cast<std::uint64_t>(raw(record.name)) << 8 | static_cast<std::uint64_t>(record.kind)) + 1);
  flags_ |= traits.flags;
}

Launch LaunchFold::launch() const noexcept {
  Launch launch = launch_of(first_, launch_.traits, launch_.thread);
  launch.begin_ns = launch_.begin_ns;
  launch.end_ns = launch_.end_ns;
  if (!is_of_graph(first_) && records_ <= kMostOfOneCall) return launch;
  const bool numbered = first_.graph != GraphId::kNone && first_.graph != GraphId::kUnknown;
  launch.name =
      (numbered ? raw(first_.graph) : static_cast<std::uint32_t>(mix(content_ + records_))) | Launch::kGraphName;
  launch.traits = traits_of(KernelRole::kGraph);
  launch.traits.flags |= flags_of_graph(flags_);
  launch.grid = {};
  return launch;
}

}  // namespace mfu

// Whose launch was it, when there was no callback: an API record's thread and time against the ranges of that time.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/attribution/instance_table.h"
#include "core/base/ids.h"
#include "core/base/units.h"

namespace mfu {

/// [mfu-drain] The rule of Attribution, answered afterwards: the thread's innermost region instance open at that
/// moment; else the one that is open elsewhere, if only one thread has any; else that of the process; else nobody.
/// As exact as CUPTI's clock against ours: about a microsecond at a range's edges.
class CallAttribution {
 public:
  void open(const InstanceSlot& slot, TimeNs at);
  void close(const InstanceSlot& slot, TimeNs at);
  [[nodiscard]] LaunchOwner owner_at(std::uint32_t os_thread, TimeNs at) const;
  /// Forgets what closed before `time`.
  void forget_before(TimeNs time);

 private:
  struct Span {
    TimeNs open;
    TimeNs close = std::numeric_limits<TimeNs>::max();
    InstanceId id;
  };
  [[nodiscard]] static InstanceId innermost(const std::vector<Span>& spans, TimeNs at);

  static constexpr std::uint32_t kProcess = 0;                  ///< key of start/end ranges; no thread has it
  std::unordered_map<std::uint32_t, std::vector<Span>> spans_;  ///< by OS thread, in the order in which they opened
};

}  // namespace mfu

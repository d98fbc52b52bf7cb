// Hosts of a job whose clocks disagree.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"

namespace mfu {

/// By how much the clock of a host is ahead of the job's median; negative: behind. Hosts that are not named agree, or
/// disagree by so little that their lines can be laid beside the others'.
using Clocks = std::map<std::string, DurationNs, std::less<>>;

[[nodiscard]] inline DurationNs ahead_of(const Clocks& clocks, std::string_view host) {
  const auto found = clocks.find(host);
  return found != clocks.end() ? found->second : 0;
}

/// One process, by the clock of its host, UTC.
struct ProcessTimes {
  std::string_view host;
  TimeNs start_ns = 0, last_ns = 0;
};

/// A host whose processes begin and end later, or earlier, than the others' by the same time has another clock.
/// \param processes of one start of a launcher, which begin and end together.
/// \param limit a difference that a process may have from another.
[[nodiscard]] Clocks find_clocks(const std::vector<ProcessTimes>& processes, DurationNs limit);

/// `host b: its clock is 3600 s behind the others'; its lines are laid beside theirs by the difference`.
[[nodiscard]] std::string clock_text(std::string_view host, DurationNs ahead);

}  // namespace mfu

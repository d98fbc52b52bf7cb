#include "tools/job/clocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace mfu {
namespace {

/// Upper median; `values` is not empty.
TimeNs median(std::vector<TimeNs> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Clocks find_clocks(const std::vector<ProcessTimes>& processes, DurationNs limit) {
  struct Times {
    std::vector<TimeNs> starts, lasts;
  };
  Times all;
  std::map<std::string_view, Times> by_host;
  for (const ProcessTimes& p : processes)
    for (Times* into : {&all, &by_host[p.host]}) {
      into->starts.push_back(p.start_ns);
      into->lasts.push_back(p.last_ns);
    }
  Clocks clocks;
  if (by_host.size() < 2) return clocks;
  const TimeNs start = median(all.starts), last = median(all.lasts);
  for (const auto& [host, times] : by_host) {
    const DurationNs ahead = median(times.lasts) - last, ahead_start = median(times.starts) - start;
    if (std::abs(ahead) > limit && std::abs(ahead - ahead_start) <= limit) clocks[std::string(host)] = ahead;
  }
  return clocks;
}

std::string clock_text(std::string_view host, DurationNs ahead) {
  return fmt::format(
      "host {}: its clock is {:.0f} s {} the others'; its lines are laid beside theirs by the difference", host,
      seconds(std::abs(ahead)), ahead > 0 ? "ahead of" : "behind");
}

}  // namespace mfu

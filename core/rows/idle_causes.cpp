#include "core/rows/idle_causes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/printable.h"

namespace mfu {

void add_cause(std::vector<IdleCause>& causes, const IdleCause& more) {
  constexpr std::size_t kMost = 256;
  const auto same = [](const IdleCause& cause) {
    return [&cause](const IdleCause& c) {
      return c.cause == cause.cause && c.where == cause.where && c.thread == cause.thread;
    };
  };
  auto at = std::find_if(causes.begin(), causes.end(), same(more));
  const IdleCause other{"other", "", "", 0};
  if (at == causes.end() && causes.size() >= kMost) at = std::find_if(causes.begin(), causes.end(), same(other));
  if (at == causes.end())
    at = causes.insert(at, causes.size() >= kMost ? other : more);
  else
    at->ns += more.ns;
}

void keep_longest(std::vector<IdleCause>& causes, std::size_t most) {
  std::stable_sort(causes.begin(), causes.end(), [](const IdleCause& a, const IdleCause& b) { return a.ns > b.ns; });
  if (causes.size() <= most) return;
  IdleCause rest{"other", "", "", 0};
  for (std::size_t i = most - 1; i < causes.size(); ++i) rest.ns += causes[i].ns;
  causes.resize(most - 1);
  causes.push_back(rest);
}

bool is_named(const IdleCause& cause) { return !cause.cause.empty() && cause.cause != kLaunching; }

std::string cause_text(const IdleCause& cause) {
  const std::string what = cause.cause.empty() ? "unknown" : printable(cause.cause);
  return cause.where.empty() ? what : what + " " + printable(cause.where);
}

std::string idle_text(const RegionSummary& row, std::size_t room) {
  std::string text;
  if (std::none_of(row.idle_by.begin(), row.idle_by.end(), is_named)) return text;
  for (const IdleCause& cause : row.idle_by) {
    const double share = row.elapsed_ns > 0 ? static_cast<double>(cause.ns) / static_cast<double>(row.elapsed_ns) : 0;
    if (share < 0.0005) break;
    const std::string part = fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", cause_text(cause), share * 100);
    if (text.size() + part.size() > room) break;
    text += part;
  }
  return text;
}

}  // namespace mfu

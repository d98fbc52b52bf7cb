#include "tools/replay/nearest_names.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/base/edit_distance.h"
#include "core/base/printable.h"

namespace mfu {

std::string nearest_names(std::string_view wanted, const std::vector<std::string>& names) {
  if (names.empty()) return "there are none";
  constexpr std::size_t kCompared = 48, kShown = 5;
  const auto lower = [](std::string_view text) { return lower_case(text.substr(0, kCompared)); };
  // To the whole name, or to the nearest word in it.
  const auto distance = [&](const std::string& name) {
    const std::string low = lower(name);
    std::size_t least = edit_distance(lower(wanted), low);
    for (std::size_t at = 0, end = 0; at < low.size(); at = end + 1) {
      for (end = at; end < low.size() && std::isalnum(static_cast<unsigned char>(low[end])) != 0;) ++end;
      if (end > at) least = std::min(least, edit_distance(lower(wanted), std::string_view(low).substr(at, end - at)));
    }
    return least;
  };
  std::vector<std::pair<std::size_t, const std::string*>> ranked;
  ranked.reserve(names.size());
  for (const std::string& name : names) ranked.emplace_back(distance(name), &name);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out = "nearest: ";
  for (std::size_t i = 0; i < std::min(kShown, ranked.size()); ++i)
    out += (i > 0 ? ", \"" : "\"") + ranked[i].second->substr(0, 100) + "\"";
  if (ranked.size() > kShown) out += " and " + std::to_string(ranked.size() - kShown) + " more";
  return out;
}

}  // namespace mfu

#include "tools/run_dir/region_limit.h"

#include "core/rows/region_totals.h"

namespace mfu {

RegionSummary& RegionLimit::put(std::vector<RegionSummary>& window, RegionSummary&& row) {
  Key key{row.region, row.device};
  if (!rows_.contains(key)) {
    const bool room = rows_.size() < kRows && (names_.contains(row.region) || names_.size() < kNames);
    if (room || row.region == "total") {
      names_.insert(row.region);
      if (rows_.size() < 2 * kRows) rows_.insert(key);
    } else {
      reached_ = true;
      row.region = "other";
      row.device.reset();
      key = {row.region, row.device};
    }
  }
  const auto [at, fresh] = here_.insert({key, window.size()});
  if (fresh || at->second >= window.size()) {
    window.push_back(std::move(row));
    return window.back();
  }
  RegionSummary& into = window[at->second];
  if (reached_ && key.first == "other") {
    into.mfu = into.mfu_busy = into.hfu = into.mbu = std::nullopt;
    into.lost.reset();
    into.top_kernels.clear();
    into.forget_single_instances();
    add_up(into, row);
  } else {
    into = std::move(row);
  }
  return into;
}

}  // namespace mfu

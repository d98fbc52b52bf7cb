#include "tools/job/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/number_text.h"

namespace mfu {
namespace {

constexpr double kAlikeRates = 1.05;
constexpr double kSigmas = 5;
constexpr double kLeastShare = 0.005;
constexpr double kSameSign = 0.8;
constexpr double kMadToSigma = 1.4826;  // of a normal distribution
constexpr std::size_t kFewRanks = 6, kWindowsOfFew = 3;

struct Sample {
  double comm_s = 0, exposed_s = 0, elapsed_s = 0, count = 0;
};

/// One rank's device in one region.
struct Member {
  const Rank* rank;
  std::optional<std::uint32_t> device;
  std::map<std::int64_t, Sample> windows;  ///< by number of the window on the job's time
  Sample sum;                              ///< over the windows that are compared
  [[nodiscard]] double per_collective() const { return sum.comm_s / sum.count; }
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Of values that are sorted, the upper median of all but the one at `without`.
double median_of_others(const std::vector<double>& sorted, std::size_t without) {
  const std::size_t middle = (sorted.size() - 1) / 2;
  return sorted[middle >= without ? middle + 1 : middle];
}

/// The newest windows that at least half of the members have.
std::vector<std::int64_t> common_windows(const std::vector<Member>& members) {
  std::map<std::int64_t, std::size_t> seen;
  for (const Member& m : members)
    for (const auto& [window, sample] : m.windows) ++seen[window];
  std::vector<std::int64_t> common;
  for (auto it = seen.rbegin(); it != seen.rend() && common.size() < Rank::kRecentWindows; ++it)
    if (2 * it->second >= members.size()) common.push_back(it->first);
  return common;
}

/// The cost of members with less communication than the others. `members` are those of one group.
void find_in_group(const std::string& region, std::vector<Member*>& members, const std::vector<std::int64_t>& windows,
                   std::optional<double> job_mfu, std::vector<Straggler>& found) {
  const std::size_t n = members.size();
  if (n < 2 || (n < kFewRanks && windows.size() < kWindowsOfFew)) return;
  std::sort(members.begin(), members.end(),
            [](const Member* a, const Member* b) { return a->per_collective() < b->per_collective(); });
  std::vector<double> w, exposed;
  for (const Member* m : members) {
    w.push_back(m->per_collective());
    exposed.push_back(m->sum.exposed_s);
  }
  std::vector<Straggler> here;
  for (std::size_t i = 0; i < n; ++i) {
    const Member& m = *members[i];
    const double others = median_of_others(w, i);
    const double lead = others - w[i];
    if (lead <= 0) break;  // sorted: the rest waits
    std::vector<double> deviations, other_exposed;
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      deviations.push_back(std::abs(w[k] - others));
      other_exposed.push_back(exposed[k]);
    }
    double noise = kMadToSigma * median(deviations);
    double mean = 0, squares = 0;
    std::size_t compared = 0, ahead = 0;
    for (const std::int64_t window : windows) {
      const auto own = m.windows.find(window);
      if (own == m.windows.end() || own->second.count == 0) continue;
      std::vector<double> at;
      for (std::size_t k = 0; k < n; ++k) {
        if (k == i) continue;
        const auto other = members[k]->windows.find(window);
        if (other != members[k]->windows.end() && other->second.count != 0)
          at.push_back(other->second.comm_s / other->second.count);
      }
      if (at.empty()) continue;
      const double lead_here = median(std::move(at)) - own->second.comm_s / own->second.count;
      ++compared;
      ahead += lead_here > 0 ? 1 : 0;
      const double step = lead_here - mean;  // Welford
      mean += step / static_cast<double>(compared);
      squares += step * (lead_here - mean);
    }
    if (compared == 0 || (n < kFewRanks && compared < kWindowsOfFew)) continue;
    if (compared > 1) {
      const double among = std::sqrt(squares / static_cast<double>(compared - 1));
      noise = std::max(noise, among / std::sqrt(static_cast<double>(compared)));
    }
    const double saved = std::min(lead * m.sum.count, median(std::move(other_exposed)));
    const double share = m.sum.elapsed_s > 0 ? std::min(saved / m.sum.elapsed_s, 0.99) : 0;
    if (lead <= kSigmas * noise || share < kLeastShare ||
        static_cast<double>(ahead) < kSameSign * static_cast<double>(compared))
      continue;
    Straggler s;
    s.rank = m.rank;
    s.device = m.device;
    s.region = region;
    s.lead_s = lead;
    s.noise_s = noise;
    s.lost_share = share;
    if (job_mfu) s.cost_mfu = *job_mfu * share / (1 - share);
    s.windows = compared;
    here.push_back(std::move(s));
  }
  if (n > 2 && 3 * here.size() > n) return;
  found.insert(found.end(), std::make_move_iterator(here.begin()), std::make_move_iterator(here.end()));
}

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<const Rank*>& ranks, const Clocks& clocks,
                                       std::optional<double> job_mfu) {
  const bool any_live =
      std::any_of(ranks.begin(), ranks.end(), [](const Rank* r) { return r->state == RankState::kLive; });
  const RankState wanted = any_live ? RankState::kLive : RankState::kEnded;
  DurationNs interval = 0;
  for (const Rank* rank : ranks)
    if (rank->state == wanted) interval = std::max(interval, rank->interval_ns);
  if (interval <= 0) return {};

  std::map<std::string, std::vector<Member>> by_region;
  for (const Rank* rank : ranks) {
    if (rank->state != wanted) continue;
    const DurationNs skew = ahead_of(clocks, rank->run->host);
    std::map<Rank::RegionKey, std::size_t> mine;
    for (const auto& samples : rank->recent) {
      for (const CommSample& c : samples) {
        auto& members = by_region[c.region];
        const auto [at, fresh] = mine.try_emplace({c.region, c.device}, members.size());
        if (fresh) members.push_back({rank, c.device, {}, {}});
        Sample& into = members[at->second].windows[(c.window.begin_ns - skew + interval / 2) / interval];
        into.comm_s += seconds(c.comm_sum_ns);
        into.exposed_s += seconds(c.exposed_ns);
        into.elapsed_s += seconds(c.elapsed_ns);
        into.count += static_cast<double>(c.comm_kernels);
      }
    }
  }

  if (by_region.size() > 1) by_region.erase("total");  // regions say where

  std::vector<Straggler> found;
  for (auto& [region, members] : by_region) {
    const auto windows = common_windows(members);
    std::map<std::int64_t, std::vector<Member*>> by_stage;
    for (Member& m : members) {
      for (const std::int64_t window : windows) {
        const auto sample = m.windows.find(window);
        if (sample == m.windows.end()) continue;
        m.sum.comm_s += sample->second.comm_s;
        m.sum.exposed_s += sample->second.exposed_s;
        m.sum.elapsed_s += sample->second.elapsed_s;
        m.sum.count += sample->second.count;
      }
      if (m.sum.count == 0 || m.sum.elapsed_s <= 0) continue;
      const RunInfo& run = *m.rank->run;
      const std::int64_t stages = m.rank->pipeline_stages;
      by_stage[stages > 1 && run.world_size >= stages ? run.rank * stages / run.world_size : 0].push_back(&m);
    }
    for (auto& [stage, all] : by_stage) {
      const auto rate = [](const Member* m) { return m->sum.count / m->sum.elapsed_s; };
      std::sort(all.begin(), all.end(), [&](const Member* a, const Member* b) { return rate(a) < rate(b); });
      std::vector<Member*> group;
      for (Member* m : all) {
        if (!group.empty() && rate(m) > kAlikeRates * rate(group.back())) {
          find_in_group(region, group, windows, job_mfu, found);
          group.clear();
        }
        group.push_back(m);
      }
      find_in_group(region, group, windows, job_mfu, found);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Straggler& a, const Straggler& b) { return a.lost_share > b.lost_share; });
  std::set<std::pair<const Rank*, std::optional<std::uint32_t>>> named;
  std::erase_if(found, [&named](const Straggler& s) { return !named.insert({s.rank, s.device}).second; });
  return found;
}

std::string straggler_text(const Straggler& s) {
  std::string text = fmt::format("straggler: rank {} ({}", s.rank->run->rank, s.rank->run->host);
  if (s.device) text += fmt::format(" gpu {}", *s.device);
  text += s.cost_mfu ? fmt::format(") costs {:.1f} points of MFU", 100 * *s.cost_mfu)
                     : fmt::format(") keeps the others waiting {:.1f} % of the time", 100 * s.lost_share);
  return text + fmt::format(": last in {} by {}", s.region, duration_text(s.lead_s));
}

}  // namespace mfu

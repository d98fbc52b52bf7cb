#include "tools/top/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/edit_distance.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "tools/job/comparison.h"
#include "tools/job/outliers.h"

namespace mfu {
namespace {

constexpr std::size_t kCommClass = static_cast<std::size_t>(TimeClass::kComm);

// --- filter

std::optional<double> value_of(const TopRow& row, std::string_view key) {
  const auto percent = [](const std::optional<double>& ratio) {
    return possible(ratio) ? std::optional(100 * *ratio) : std::nullopt;
  };
  const WindowSummary* shown = row.rank->shown();
  if (key == "rank")
    return row.rank->run ? std::optional<double>(static_cast<double>(row.rank->run->rank)) : std::nullopt;
  if (key == "gpu") return row.device ? std::optional<double>(*row.device) : std::nullopt;
  if (key == "mfu") return row.region != nullptr ? percent(row.region->mfu) : std::nullopt;
  if (key == "mbu") return row.region != nullptr ? percent(row.region->mbu) : std::nullopt;
  if (key == "step") return row.step_s() ? std::optional(1e3 * *row.step_s()) : std::nullopt;
  if (key == "busy") return percent(row.busy());
  if (key == "comm") return percent(row.comm());
  if (key == "clock") return row.clock() ? std::optional(100 * *row.clock()) : std::nullopt;
  if (key == "dropped") return static_cast<double>(row.rank->dropped_records());
  if (key == "cost") return shown != nullptr ? std::optional(100 * shown->self.overhead) : std::nullopt;
  if (key == "late") return 100 * row.lost_share;
  return std::nullopt;
}

/// `mfu<=35%`: a word of a filter that compares.
struct Condition {
  std::string_view key, op, text;
};
std::optional<Condition> condition_of(std::string_view word) {
  const std::size_t at = word.find_first_of("=<>!");
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view op = comparison_at(word.substr(at));
  if (op == "!") return std::nullopt;  // part of a name
  return Condition{word.substr(0, at), op, word.substr(at + op.size())};
}

bool is_ratio(std::string_view key) { return key != "rank" && key != "gpu" && key != "step" && key != "dropped"; }

/// `35`, `35%`; of a step `20`, `20ms`, `0.02s`, `900us`. In the unit of value_of().
std::optional<double> limit_of(std::string_view key, std::string_view text) {
  double limit = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (parsed.ec != std::errc()) return std::nullopt;
  const std::string_view unit(parsed.ptr, static_cast<std::size_t>(text.data() + text.size() - parsed.ptr));
  if (unit.empty() || (unit == "%" && is_ratio(key)) || (unit == "ms" && key == "step")) return limit;
  if (key == "step" && unit == "s") return 1e3 * limit;
  if (key == "step" && (unit == "us" || unit == "µs")) return limit / 1e3;
  return std::nullopt;
}

bool matches(const TopRow& row, std::string_view word) {
  const Rank& rank = *row.rank;
  const std::string host = lower_case(rank.run ? rank.run->host : rank.path);
  if (const auto condition = condition_of(word)) {
    const auto& [key, op, text] = *condition;
    if (key == "host" || key == "region") {
      const std::string name = key == "host" ? host : row.region != nullptr ? lower_case(row.region->region) : "";
      return op == "!=" ? name != text : op.front() == '=' && name == text;
    }
    const auto limit = limit_of(key, text), value = value_of(row, key);
    return limit && value && holds(*value, op, *limit);
  }
  const auto has = [&](std::string_view text) { return lower_case(text).find(word) != std::string::npos; };
  if (has(host) || has(state_text(rank)) || (row.region != nullptr && has(row.region->region))) return true;
  const DeviceInfo* device = rank.device(row.device);
  return device != nullptr && (has(device->name) || has(device->uuid));
}

/// Of the row's elapsed time; none where it was not measured.
std::optional<double> share_of(const RegionSummary& r, DurationNs part_ns) {
  if (!r.classes_known || r.elapsed_ns <= 0) return std::nullopt;
  return static_cast<double>(part_ns) / static_cast<double>(r.elapsed_ns);
}

/// Share of the matmul time whose FLOP are known.
std::optional<double> seen_of(const RegionSummary& r) {
  return r.executed && r.executed->matmul_ns > 0 ? std::optional(r.executed->coverage()) : std::nullopt;
}

nlohmann::ordered_json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

// --- histories, hosts, what differs

void add_history(TopRow& row) {
  if (row.region == nullptr) return;
  const auto& all = row.rank->history;
  const auto found = all.find({row.region->region, row.region->device});
  if (found == all.end()) return;
  row.history = &found->second;
  const auto any = [&](HistoryOf of) {
    return std::ranges::any_of(*row.history, [of](const HistoryPoint& p) { return value_of(p, of) >= 0; });
  };
  row.history_of = row.region->bound == Bound::kMemory && any(HistoryOf::kMbu) ? HistoryOf::kMbu
                   : any(HistoryOf::kMfu)                                      ? HistoryOf::kMfu
                                                                               : HistoryOf::kBusy;
}

/// Live ranks (ended ones where none is live) are compared region by region.
void mark_odd_rows(std::vector<TopRow>& rows) {
  const bool any_live =
      std::any_of(rows.begin(), rows.end(), [](const TopRow& row) { return row.rank->state == RankState::kLive; });
  std::map<std::string, std::vector<TopRow*>> regions;
  for (TopRow& row : rows)
    if (row.region != nullptr && row.rank->state == (any_live ? RankState::kLive : RankState::kEnded))
      regions[row.region->region].push_back(&row);
  const std::pair<const char*, std::optional<double> (*)(const TopRow&)> compared[] = {
      {"MFU", [](const TopRow& row) { return row.region->mfu; }},
      {"MBU", [](const TopRow& row) { return row.region->mbu; }},
      {"step time", [](const TopRow& row) { return row.step_s(); }}};
  for (const auto& [region, of] : regions) {
    for (const auto& [what, value] : compared) {
      std::vector<std::optional<double>> values;
      for (const TopRow* row : of) values.push_back(value(*row));
      for (const std::size_t i : outliers(values)) {
        of[i]->odd = true;
        of[i]->odd_in += (of[i]->odd_in.empty() ? "" : ", ") + std::string(what);
      }
    }
  }
}

void add_hosts(TopSnapshot& s) {
  std::map<std::string, std::vector<const TopRow*>, decltype(&natural_less)> hosts(natural_less);
  for (const TopRow& row : s.rows)
    if (row.rank->run) hosts[row.rank->run->host].push_back(&row);
  for (const auto& [name, rows] : hosts) {
    TopHost host;
    host.name = name;
    std::vector<const Rank*> ranks;
    for (const TopRow* row : rows) {
      if (ranks.empty() || ranks.back() != row->rank) ranks.push_back(row->rank);
      host.late += row->lost_share > 0 ? 1 : 0;
      host.odd += row->odd ? 1 : 0;
      if (row->region == nullptr || !possible(row->region->mfu)) continue;
      host.lowest = std::min(host.lowest.value_or(*row->region->mfu), *row->region->mfu);
      host.highest = std::max(host.highest.value_or(*row->region->mfu), *row->region->mfu);
    }
    host.ranks = ranks.size();
    host.totals = job_totals(ranks);
    host.quiet = host.totals.stale;
    s.hosts.push_back(std::move(host));
  }
}

/// 5 %, 10 %, 20 %, ... 100 %.
double round_top(double highest) {
  for (const double top : {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8})
    if (highest <= top + 1e-6) return top;  // histories are floats
  return 1;
}

/// Windows of all ranks by the number of their interval; the mean of those that say.
void add_job_history(TopSnapshot& s, const LiveJob& job) {
  DurationNs interval = 0;
  for (const Rank* rank : job.ranks()) interval = std::max(interval, rank->interval_ns);
  s.history_interval_ns = interval;
  double highest = 0;
  struct Sum {
    double mfu = 0, busy = 0;
    std::size_t with_mfu = 0, with_busy = 0;
  };
  std::map<std::int64_t, Sum> windows;
  for (const Rank* rank : job.ranks()) {
    if (rank->state == RankState::kReplaced) continue;
    const DurationNs skew = rank->run ? ahead_of(job.clocks(), rank->run->host) : 0;
    for (const auto& [key, points] : rank->history) {
      if (key.first != "total" || interval <= 0) continue;
      for (const HistoryPoint& point : points) {
        Sum& sum = windows[(point.end_ns - skew + interval / 2) / interval];
        if (point.mfu >= 0) {
          sum.mfu += point.mfu;
          ++sum.with_mfu;
        }
        if (point.busy >= 0) {
          sum.busy += point.busy;
          ++sum.with_busy;
        }
      }
    }
  }
  const bool any_mfu =
      std::any_of(windows.begin(), windows.end(), [](const auto& w) { return w.second.with_mfu != 0; });
  s.job_history_of = any_mfu ? HistoryOf::kMfu : HistoryOf::kBusy;
  std::optional<std::int64_t> last;
  constexpr std::int64_t kLongestGap = Rank::kHistory;
  for (const auto& [number, sum] : windows) {
    // Windows that no rank wrote are gaps.
    for (std::int64_t missing = last ? std::max(*last + 1, number - kLongestGap) : number; missing < number; ++missing)
      s.job_history.emplace_back();
    last = number;
    const std::size_t count = any_mfu ? sum.with_mfu : sum.with_busy;
    const double value = any_mfu ? sum.mfu : sum.busy;
    s.job_history.push_back(count != 0 ? std::optional(value / static_cast<double>(count)) : std::nullopt);
    if (count != 0) highest = std::max(highest, value / static_cast<double>(count));
  }
  if (s.job_history.size() > Rank::kHistory)
    s.job_history.erase(s.job_history.begin(), s.job_history.end() - static_cast<std::ptrdiff_t>(Rank::kHistory));
  for (const TopRow& row : s.rows)
    if (row.history != nullptr)
      for (const HistoryPoint& p : *row.history) highest = std::max<double>(highest, value_of(p, row.history_of));
  s.history_top = round_top(highest);
}

}  // namespace

float value_of(const HistoryPoint& point, HistoryOf of) noexcept {
  return of == HistoryOf::kMfu ? point.mfu : of == HistoryOf::kMbu ? point.mbu : point.busy;
}

std::string state_text(const Rank& rank) {
  if (rank.state == RankState::kStale) return "stale " + duration_text(rank.quiet_s);
  return std::string(name(rank.state));
}

std::optional<double> TopRow::step_s() const {
  if (region == nullptr || region->region == "total") return std::nullopt;
  if (region->latency.count != 0) return seconds(region->latency.p50_ns);
  if (region->instances == 0) return std::nullopt;
  return seconds(region->elapsed_ns) / static_cast<double>(region->instances);
}

std::optional<double> TopRow::busy() const {
  return region == nullptr ? std::nullopt : share_of(*region, region->busy_ns);
}

std::optional<double> TopRow::comm() const {
  return region == nullptr ? std::nullopt : share_of(*region, region->time_ns[kCommClass]);
}

std::optional<double> TopRow::clock() const { return region == nullptr ? std::nullopt : region->clock_ratio; }

TopSnapshot take_snapshot(const LiveJob& job, GpusNow gpus) {
  TopSnapshot s;
  s.gpus = std::move(gpus);
  s.totals = job_totals(job.ranks());
  if (job.price()) s.cost = live_cost(s.totals, *job.price());
  s.stragglers = find_stragglers(job.ranks(), job.clocks(), s.totals.mfu);
  s.hang = find_hang(job);
  if (job.reads_all()) s.life = job.life().text();
  s.problems = job.problems();
  s.silent_s = job.silent_s();
  for (const std::string& path : job.paths()) s.title += (s.title.empty() ? "" : " ") + path;
  for (const Rank* rank : job.ranks()) {
    if (rank->state == RankState::kReplaced) continue;
    std::set<std::optional<std::uint32_t>> devices;
    if (rank->run) {
      for (const DeviceInfo& d : rank->run->devices) {
        devices.insert(d.device);
        if (s.gpu_name.empty()) s.gpu_name = d.name;
        if (s.gpu_name != d.name) s.gpu_name = "mixed GPUs";
      }
    }
    if (devices.empty()) devices.insert(std::nullopt);
    const WindowSummary* shown = rank->shown();
    for (const auto& device : devices) {
      TopRow row;
      row.rank = rank;
      row.device = device;
      if (shown != nullptr) {
        for (const RegionSummary& r : shown->regions) {
          if (r.device && device && *r.device != *device) continue;
          const bool better = row.region == nullptr || (row.region->region == "total" && r.region != "total") ||
                              (r.region != "total" && r.elapsed_ns > row.region->elapsed_ns);
          if (better) row.region = &r;
        }
      }
      for (const Straggler& straggler : s.stragglers)
        if (straggler.rank == rank && (!straggler.device || straggler.device == device))
          row.lost_share = straggler.lost_share;
      if (const DeviceInfo* info = rank->device(device); info != nullptr && !info->uuid.empty())
        if (const auto now = s.gpus.find(info->uuid); now != s.gpus.end()) row.gpu = &now->second;
      add_history(row);
      s.has_history = s.has_history || (row.history != nullptr && row.history->size() > 1);
      s.rows.push_back(std::move(row));
    }
  }
  std::set<const GpuNow*> counted;
  for (const TopRow& row : s.rows)
    if (row.gpu != nullptr && row.gpu->power_w && counted.insert(row.gpu).second) s.power_w += *row.gpu->power_w;
  mark_odd_rows(s.rows);
  add_hosts(s);
  add_job_history(s, job);
  return s;
}

std::optional<BarShares> totals_shares(const JobTotals& t) {
  BarShares all{};
  if (t.mfu && t.lost) {
    all[0] = *t.mfu;
    std::copy(t.lost->begin(), t.lost->end(), all.begin() + 1);
  } else if (t.classes_known) {
    std::copy(t.time_share.begin(), t.time_share.end(), all.begin() + 1);
  } else {
    return std::nullopt;
  }
  return all;
}

std::string filter_problem(std::string_view filter) {
  const std::string low = lower_case(filter);
  for (const std::string_view word : words_of(low)) {
    const auto condition = condition_of(word);
    if (!condition) continue;
    const auto& [key, op, text] = *condition;
    if (key == "host" || key == "region") {
      if (op.front() != '=' && op != "!=") return fmt::format("filter: {} takes = and != only", key);
      continue;
    }
    if (key != "gpu" && std::find(kSortKeys.begin(), kSortKeys.end(), key) == kSortKeys.end()) {
      std::string known, nearest;
      for (const std::string_view k : kSortKeys) {
        known += std::string(k) + ", ";
        if (edit_distance(key, k) == 1) nearest = fmt::format(", did you mean {}?", k);
      }
      return fmt::format("filter: no key '{}'{} there are {}gpu, host, region", key, nearest.empty() ? ";" : nearest,
                         known);
    }
    if (!limit_of(key, text))
      return fmt::format("filter: {}: expected {}, got '{}'", key,
                         key == "step"   ? "a time such as 20ms"
                         : is_ratio(key) ? "a percentage such as 35"
                                         : "a number",
                         text);
  }
  return "";
}

std::vector<TopRow> select_rows(const std::vector<TopRow>& rows, std::string_view sort, std::string_view filter,
                                bool reversed) {
  const std::string low = lower_case(filter);
  const std::vector<std::string_view> words = words_of(low);
  std::vector<TopRow> chosen;
  std::ranges::copy_if(rows, std::back_inserter(chosen), [&words](const TopRow& row) {
    return std::ranges::all_of(words, [&row](std::string_view word) { return matches(row, word); });
  });
  if (sort == "rank") {
    if (reversed) std::reverse(chosen.begin(), chosen.end());
    return chosen;
  }
  // Worst first: little is bad for these, much for the others. Unknown values come last, either way.
  const bool ascending = (sort == "mfu" || sort == "mbu" || sort == "busy" || sort == "clock") != reversed;
  std::stable_sort(chosen.begin(), chosen.end(), [&](const TopRow& a, const TopRow& b) {
    const auto x = value_of(a, sort), y = value_of(b, sort);
    if (!x || !y) return x.has_value() && !y.has_value();
    return ascending ? *x < *y : *x > *y;
  });
  return chosen;
}

namespace {

void add_costs(nlohmann::ordered_json& job, const std::optional<LiveCost>& cost) {
  const auto known = [&](double value) { return cost ? std::optional(value) : std::nullopt; };
  const LiveCost c = cost.value_or(LiveCost{});
  job["cost_per_hour"] = number(known(c.per_hour));
  job["idle_cost_per_hour"] = number(known(c.idle_per_hour));
  job["comm_cost_per_hour"] = number(known(c.comm_per_hour));
  job["cost_per_million_tokens"] = number(c.per_million_tokens);
}

nlohmann::ordered_json stragglers_json(const TopSnapshot& s) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Straggler& x : s.stragglers)
    list.push_back({{"rank", x.rank->run->rank},
                    {"host", x.rank->run->host},
                    {"device", x.device ? Json(*x.device) : Json(nullptr)},
                    {"region", x.region},
                    {"lead_s", x.lead_s},
                    {"noise_s", x.noise_s},
                    {"lost_share", x.lost_share},
                    {"cost_mfu", number(x.cost_mfu)},
                    {"cost_per_hour", s.cost ? number(s.cost->per_hour * x.lost_share) : Json()},
                    {"windows", x.windows}});
  return list;
}

}  // namespace

std::string snapshot_json(const TopSnapshot& s, std::string_view sort, std::string_view filter) {
  using Json = nlohmann::ordered_json;
  const JobTotals& t = s.totals;
  const auto classes = [](const std::array<double, kTimeClasses>& values) {
    Json j;
    for (std::size_t c = 0; c < kTimeClasses; ++c) j[std::string(kTimeClassNames[c])] = values[c];
    return j;
  };
  Json j;
  j["job"] = {{"live", t.live},
              {"starting", t.starting},
              {"stale", t.stale},
              {"ended", t.ended},
              {"replaced", t.replaced},
              {"unreadable", t.unreadable},
              {"world", t.world_size},
              {"hosts", t.hosts},
              {"devices", t.devices},
              {"whole_run", t.whole_run},
              {"counted", t.counted},
              {"with_mfu", t.with_mfu},
              {"mfu", number(t.mfu)},
              {"mfu_lower", number(t.mfu_lower)},
              {"hfu", number(t.hfu)},
              {"seen", number(t.seen)},
              {"mbu", number(t.mbu)},
              {"mbu_lower", number(t.mbu_lower)},
              {"busy", number(t.busy)},
              {"clock_ratio", number(t.clock_ratio)},
              {"lost", t.lost ? classes(*t.lost) : Json(nullptr)},
              {"time_share", t.classes_known ? classes(t.time_share) : Json(nullptr)},
              {"flop_per_s", t.flop_per_s},
              {"tokens_per_s", t.tokens_per_s},
              {"dropped_records", t.dropped_records},
              {"overhead", number(t.overhead)}};
  add_costs(j["job"], s.cost);
  j["ranks"] = Json::array();
  for (const TopRow& row : select_rows(s.rows, sort, filter)) {
    const Rank& rank = *row.rank;
    const WindowSummary* shown = rank.shown();
    const RegionSummary* r = row.region;
    j["ranks"].push_back({{"rank", rank.run ? Json(rank.run->rank) : Json(nullptr)},
                          {"host", rank.run ? Json(rank.run->host) : Json(nullptr)},
                          {"pid", rank.run ? Json(rank.run->pid) : Json(nullptr)},
                          {"device", row.device ? Json(*row.device) : Json(nullptr)},
                          {"state", std::string(name(rank.state))},
                          {"quiet_s", rank.state == RankState::kStale ? Json(rank.quiet_s) : Json(nullptr)},
                          {"region", r != nullptr ? Json(r->region) : Json(nullptr)},
                          {"step_s", number(row.step_s())},
                          {"mfu", r != nullptr ? number(r->mfu) : Json(nullptr)},
                          {"mfu_lower", r != nullptr ? number(r->mfu_lower) : Json(nullptr)},
                          {"hfu", r != nullptr ? number(r->hfu) : Json(nullptr)},
                          {"seen", r != nullptr ? number(seen_of(*r)) : Json(nullptr)},
                          {"mbu", r != nullptr ? number(r->mbu) : Json(nullptr)},
                          {"busy", number(row.busy())},
                          {"comm", number(row.comm())},
                          {"clock_ratio", number(row.clock())},
                          {"dropped_records", rank.dropped_records()},
                          {"overhead", shown != nullptr ? Json(shown->self.overhead) : Json(nullptr)},
                          {"late_share", row.lost_share},
                          {"differs_in", row.odd ? Json(row.odd_in) : Json(nullptr)},
                          {"memory_used_bytes",
                           row.gpu != nullptr && row.gpu->memory_used ? Json(*row.gpu->memory_used) : Json(nullptr)},
                          {"power_w", row.gpu != nullptr ? number(row.gpu->power_w) : Json(nullptr)},
                          {"file", rank.path}});
  }
  j["life"] = s.life.empty() ? Json(nullptr) : Json(s.life);
  j["hang"] = !s.hang ? Json(nullptr)
                      : Json({{"rank", s.hang->rank ? Json(*s.hang->rank) : Json(nullptr)},
                              {"saves", s.hang->saves},
                              {"waiting", s.hang->waiting},
                              {"since_s", s.hang->since_s},
                              {"gpu_s", s.hang->gpu_s},
                              {"text", s.hang->text()}});
  j["stragglers"] = stragglers_json(s);
  j["problems"] = s.problems;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mfu

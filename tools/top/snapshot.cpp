#include "tools/top/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/number_text.h"

namespace mfu {

namespace {

constexpr std::size_t kCommClass = static_cast<std::size_t>(TimeClass::kComm);

// --- filter

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::optional<double> value_of(const TopRow& row, std::string_view key) {
  const auto percent = [](const std::optional<double>& ratio) {
    return ratio ? std::optional(100 * *ratio) : std::nullopt;
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
  if (key == "clock") return percent(row.clock());
  if (key == "dropped") return static_cast<double>(row.rank->dropped_records());
  if (key == "cost") return shown != nullptr ? std::optional(100 * shown->self.overhead) : std::nullopt;
  if (key == "late") return 100 * row.lost_share;
  return std::nullopt;
}

bool matches(const TopRow& row, std::string_view word) {
  const Rank& rank = *row.rank;
  const std::string host = lower(rank.run ? rank.run->host : rank.path);
  if (const std::size_t at = word.find_first_of("=<>"); at != std::string_view::npos && at != 0) {
    const std::string_view key = word.substr(0, at), text = word.substr(at + 1);
    if (key == "host") return word[at] == '=' && host == text;
    if (key == "region") return word[at] == '=' && row.region != nullptr && lower(row.region->region) == text;
    double limit = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return false;
    const auto value = value_of(row, key);
    if (!value) return false;
    return word[at] == '=' ? *value == limit : word[at] == '<' ? *value < limit : *value > limit;
  }
  const auto has = [&](std::string_view text) { return lower(text).find(word) != std::string::npos; };
  if (has(host) || has(state_text(rank)) || (row.region != nullptr && has(row.region->region))) return true;
  const DeviceInfo* device = rank.device(row.device);
  return device != nullptr && (has(device->name) || has(device->uuid));
}

nlohmann::ordered_json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

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
  if (region == nullptr || !region->classes_known || region->elapsed_ns <= 0) return std::nullopt;
  return static_cast<double>(region->busy_ns) / static_cast<double>(region->elapsed_ns);
}

std::optional<double> TopRow::comm() const {
  if (region == nullptr || !region->classes_known || region->elapsed_ns <= 0) return std::nullopt;
  return static_cast<double>(region->time_ns[kCommClass]) / static_cast<double>(region->elapsed_ns);
}

std::optional<double> TopRow::clock() const { return region == nullptr ? std::nullopt : region->clock_ratio; }

TopSnapshot take_snapshot(const LiveJob& job) {
  TopSnapshot s;
  s.totals = job_totals(job.ranks());
  s.stragglers = find_stragglers(job.ranks(), job.skews(), s.totals.mfu);
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
      TopRow row{rank, device, nullptr, 0};
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
      s.rows.push_back(row);
    }
  }
  return s;
}

std::string filter_problem(std::string_view filter) {
  const std::string words = lower(filter);
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t begin = words.find_first_not_of(' ', at);
    if (begin == std::string::npos) break;
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    const std::string_view word = std::string_view(words).substr(begin, end - begin);
    at = end;
    const std::size_t op = word.find_first_of("=<>");
    if (op == std::string_view::npos || op == 0) continue;
    const std::string_view key = word.substr(0, op), text = word.substr(op + 1);
    if (key == "host" || key == "region") {
      if (word[op] != '=') return fmt::format("filter: {} takes = only", key);
      continue;
    }
    if (key != "gpu" && std::find(kSortKeys.begin(), kSortKeys.end(), key) == kSortKeys.end()) {
      std::string known;
      for (const std::string_view k : kSortKeys) known += std::string(k) + ", ";
      return fmt::format("filter: no key '{}'; there are {}gpu, host, region", key, known);
    }
    double limit = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
      return fmt::format("filter: '{}' is no number", text);
  }
  return "";
}

std::vector<TopRow> select_rows(const std::vector<TopRow>& rows, std::string_view sort, std::string_view filter) {
  std::vector<TopRow> chosen;
  const std::string words = lower(filter);
  for (const TopRow& row : rows) {
    bool all = true;
    for (std::size_t at = 0; all && at < words.size();) {
      const std::size_t begin = words.find_first_not_of(' ', at);
      if (begin == std::string::npos) break;
      const std::size_t end = std::min(words.find(' ', begin), words.size());
      all = matches(row, std::string_view(words).substr(begin, end - begin));
      at = end;
    }
    if (all) chosen.push_back(row);
  }
  if (sort == "rank") return chosen;
  // Worst first: little is bad for these, much for the others. What is not known comes last.
  const bool ascending = sort == "mfu" || sort == "mbu" || sort == "busy" || sort == "clock";
  std::stable_sort(chosen.begin(), chosen.end(), [&](const TopRow& a, const TopRow& b) {
    const auto x = value_of(a, sort), y = value_of(b, sort);
    if (!x || !y) return x.has_value() && !y.has_value();
    return ascending ? *x < *y : *x > *y;
  });
  return chosen;
}

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
              {"hfu", number(t.hfu)},
              {"mbu", number(t.mbu)},
              {"busy", number(t.busy)},
              {"clock_ratio", number(t.clock_ratio)},
              {"lost", t.lost ? classes(*t.lost) : Json(nullptr)},
              {"time_share", t.classes_known ? classes(t.time_share) : Json(nullptr)},
              {"flop_per_s", t.flop_per_s},
              {"tokens_per_s", t.tokens_per_s},
              {"dropped_records", t.dropped_records},
              {"overhead", number(t.overhead)}};
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
                          {"mbu", r != nullptr ? number(r->mbu) : Json(nullptr)},
                          {"busy", number(row.busy())},
                          {"comm", number(row.comm())},
                          {"clock_ratio", number(row.clock())},
                          {"dropped_records", rank.dropped_records()},
                          {"overhead", shown != nullptr ? Json(shown->self.overhead) : Json(nullptr)},
                          {"late_share", row.lost_share},
                          {"file", rank.path}});
  }
  j["stragglers"] = Json::array();
  for (const Straggler& x : s.stragglers)
    j["stragglers"].push_back({{"rank", x.rank->run->rank},
                               {"host", x.rank->run->host},
                               {"device", x.device ? Json(*x.device) : Json(nullptr)},
                               {"region", x.region},
                               {"lead_s", x.lead_s},
                               {"noise_s", x.noise_s},
                               {"lost_share", x.lost_share},
                               {"cost_mfu", number(x.cost_mfu)},
                               {"windows", x.windows}});
  j["problems"] = s.problems;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mfu

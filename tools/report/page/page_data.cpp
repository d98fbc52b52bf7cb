#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "core/base/number_text.h"
#include "core/ranges/region_rules.h"
#include "core/rows/layers.h"
#include "core/sinks/region_json.h"
#include "tools/job/model_facts.h"
#include "tools/job/outliers.h"
#include "tools/job/region_figures.h"
#include "tools/report/outputs/json.h"
#include "tools/report/page/page.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

/// Six significant digits: more than a chart can show, and half the bytes.
Json rounded(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return std::strtod(fmt::format("{:.6g}", *value).c_str(), nullptr);
}

/// Regions that are drawn over time: the longest ones, and `total`.
constexpr std::size_t kDrawnRegions = 8;

Json series_of(const Job& job) {
  Json series;
  series["width_s"] = seconds(job.series.width_ns());
  // How many windows became one: as wide as the grid is against the longest window of the first process.
  std::uint64_t most_windows = 0;
  for (const JobProcess& p : job.processes) most_windows = std::max(most_windows, p.windows);
  const double bins = seconds(job.span.length_ns()) / std::max(1e-9, seconds(job.series.width_ns()));
  const auto merged = static_cast<std::int64_t>(std::lround(static_cast<double>(most_windows) / std::max(1.0, bins)));
  if (merged > 1) series["merged"] = merged;
  series["regions"] = Json::object();
  std::size_t drawn = 0;
  for (const JobRegion& region : job.regions) {
    const auto found = job.series.regions().find(region.name);
    if (found == job.series.regions().end() || layer_name(region.name) ||
        (region.name != "total" && drawn++ >= kDrawnRegions))
      continue;
    Json s{{"bin", Json::array()}, {"mfu", Json::array()}, {"lost", Json::array()}};
    const bool instances = std::any_of(found->second.begin(), found->second.end(),
                                       [](const auto& bin) { return bin.second.instances > 0; });
    const bool band = region.processes > 1;
    const bool memory = region.sum().bound == Bound::kMemory && region.sum().mbu;
    for (const auto& [index, bin] : found->second) {
      s["bin"].push_back(index);
      s["mfu"].push_back(rounded(bin.weights.mfu()));
      if (memory) s["mbu"].push_back(rounded(bin.weights.mbu()));
      if (instances) {
        s["median_s"].push_back(rounded(bin.median_s()));
        s["longest_s"].push_back(bin.longest_ns > 0 ? rounded(seconds(bin.longest_ns)) : Json(nullptr));
      }
      if (band) {
        s["low"].push_back(rounded(bin.lowest));
        s["high"].push_back(rounded(bin.highest));
      }
      const auto shares = bin.weights.mfu() ? bin.weights.lost() : bin.weights.time_shares();
      Json parts = nullptr;
      if (shares && bin.classes_known) {
        parts = Json::array();
        for (const double share : *shares) parts.push_back(rounded(share));
      }
      s["lost"].push_back(std::move(parts));
    }
    series["regions"][region.name] = std::move(s);
  }
  return series;
}

/// The model as its config names it: `gpt2 124 M`; empty where no process says.
std::string model_name(const Job& job) {
  for (const JobProcess& p : job.processes)
    if (const ModelFacts model = model_facts(p.run); !model.family.empty())
      return model.family + (model.params > 0 ? " " + count_text(model.params) : "");
  return "";
}

std::string short_path(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.find_last_of('/') + 1));
}

/// The region that the run is about: the one that took most time and has FLOP; `total` where none has.
const JobRegion* main_region(const Job& job) {
  for (const JobRegion& r : job.regions)
    if (r.name != "total" && possible(r.sum().mfu)) return &r;
  return job.find("total");
}

/// The run's host, shape, command and versions, as far as its files have them.
Json about_of(const Job& job) {
  Json about;
  about["title"] = run_page_title(job);
  about["model"] = model_name(job);
  std::map<std::string, std::set<std::string>> facts;
  for (const JobProcess& p : job.processes) {
    facts["host"].insert(p.run.host);
    facts["command"].insert(p.run.command);
    if (p.run.cupti_version != 0) facts["CUPTI"].insert(std::to_string(p.run.cupti_version));
    const Json config = Json::parse(p.run.config_json, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) continue;
    for (const char* block : {"workload", "parallel"}) {
      if (!config.contains(block) || !config[block].is_object()) continue;
      std::string text;
      for (const auto& [key, value] : config[block].items()) {
        // A split by one is no split, and a default says nothing.
        if (value.is_structured() || value == "none" ||
            ((std::string_view(block) == "parallel" || key == "grad_accum") && value == 1))
          continue;
        std::string words = key;
        std::replace(words.begin(), words.end(), '_', ' ');
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", words,
                            value.is_string() ? value.get<std::string>() : value.dump());
      }
      if (!text.empty()) facts[block].insert(text);
    }
  }
  about["facts"] = Json::object();
  for (const auto& [what, values] : facts) {
    const std::size_t kShown = what == "command" ? 1 : 4;
    std::string text;
    std::size_t shown = 0;
    for (const std::string& value : values)
      if (!value.empty() && shown++ < kShown) text += (text.empty() ? "" : ", ") + value;
    if (values.size() > kShown) text += fmt::format(" and {} more", values.size() - kShown);
    if (!text.empty()) about["facts"][what] = text;
  }
  return about;
}

/// Times of a timeline in whole nanoseconds after the instance's begin.
Json timeline_json(const InstanceTimeline& timeline, TimeNs base_ns) {
  Json j;
  j["nth"] = timeline.span.nth;
  j["t0_ns"] = timeline.span.time.begin_ns + base_ns;
  j["elapsed_s"] = seconds(timeline.span.time.length_ns());
  j["rows_left_out"] = timeline.rows_left_out;
  j["names"] = Json::array();
  for (const std::string& name : timeline.names) j["names"].push_back(name);
  j["rows"] = Json::array();
  for (const TimelineRow& row : timeline.rows) {
    Json bars = Json::array();
    for (const TimelineBar& bar : row.bars)
      bars.push_back({bar.begin_ns, bar.length_ns, bar.name, static_cast<int>(bar.kind), bar.count});
    j["rows"].push_back({{"label", row.label}, {"bars", std::move(bars)}});
  }
  return j;
}

Json timelines_json(const Timelines* timelines) {
  Json all = Json::array();
  if (timelines == nullptr) return all;
  for (const RegionTimelines& region : timelines->regions()) {
    Json j{{"region", region.region},
           {"where", region.where},
           {"recording", region.recording},
           {"instances", Json::array()},
           {"instances_in_all", region.instances_in_all},
           {"median_s", seconds(region.median_ns)}};
    const TimeNs base = region.base_ns;
    const TimeNs first = region.instances.empty() ? 0 : region.instances.front().first;
    j["t0_ns"] = first;
    for (const auto& [begin_ns, length_ns] : region.instances)
      j["instances"].push_back({rounded(seconds(begin_ns - first)), rounded(seconds(length_ns))});
    j["slowest"] = timeline_json(region.slowest, base);
    j["median"] = timeline_json(region.median, base);
    all.push_back(std::move(j));
  }
  return all;
}

/// Whether each row of a job, in the order of its processes, is unlike those of the same region.
std::vector<bool> odd_rows(const Job& job) {
  struct Of {
    std::vector<std::size_t> rows;
    std::vector<std::optional<double>> mfu, p50_s;
  };
  std::map<std::string, Of> regions;
  std::size_t rows = 0;
  for (const JobProcess& p : job.processes) {
    for (const SummedRegion& t : p.regions) {
      Of& of = regions[t.sum.region];
      of.rows.push_back(rows++);
      of.mfu.push_back(t.sum.mfu);
      of.p50_s.push_back(t.sum.latency.count != 0 ? std::optional(seconds(t.sum.latency.p50_ns)) : std::nullopt);
    }
  }
  std::vector<bool> odd(rows);
  for (const auto& [name, of] : regions)
    for (const auto* values : {&of.mfu, &of.p50_s})
      for (const std::size_t i : outliers(*values)) odd[of.rows[i]] = true;
  return odd;
}

std::string_view instance_name(const RegionSummary& region) {
  switch (phase_of_region(region.region)) {
    case Phase::kTrain:
      return "step time";
    case Phase::kPrefill:
      return "prefill time";
    case Phase::kDecode:
      // One pass each, or several: then the time between tokens has separate figures.
      return region.inter_token.count <= region.latency.count ? "time between tokens" : "time of several tokens";
    default:
      return "time of an instance";
  }
}

}  // namespace

std::string run_page_title(const Job& job) {
  std::string title = model_name(job);
  const JobRegion* region = main_region(job);
  if (region != nullptr && possible(region->sum().mfu)) {
    const bool memory = region->sum().bound == Bound::kMemory && region->sum().mbu;
    title +=
        fmt::format("{}{} {} in {}", title.empty() ? "" : ": ",
                    percent_text(memory ? region->sum().mbu : region->sum().mfu), memory ? "MBU" : "MFU", region->name);
  }
  if (const JobRegion* longest = job.regions.empty() ? nullptr : &job.regions.front();
      title.empty() && longest != nullptr && longest->sum().classes_known && longest->sum().elapsed_ns > 0)
    title = fmt::format(
        "GPU busy {} of {}",
        percent_text(static_cast<double>(longest->sum().busy_ns) / static_cast<double>(longest->sum().elapsed_ns)),
        longest->name);
  return title.empty() ? "MFU of " + short_path(job.path) : title + ", " + short_path(job.path);
}

std::string run_page_data(const Job& job, std::string_view version, const PageOptions& options) {
  Json j;
  j["kind"] = "run";
  if (options.refresh_s > 0) j["refresh_s"] = options.refresh_s;
  j["version"] = std::string(version);
  j["path"] = job.path;
  j["trace"] = job.trace;
  j["about"] = about_of(job);
  j["job"] = job_json(job);
  // A trace that does not say when it was taken begins at or near 0.
  constexpr TimeNs kYear2000 = 946'684'800 * kNsPerSecond;
  j["start"] = job.span.begin_ns > kYear2000 ? Json(utc_text(job.span.begin_ns)) : Json(nullptr);
  std::set<std::string> hosts, conventions, versions;
  using DeviceKey = std::tuple<std::string, std::optional<double>, std::optional<double>, std::string, std::string,
                               std::string, bool>;
  std::map<DeviceKey, std::uint64_t> devices;
  for (const JobProcess& p : job.processes) {
    if (!p.run.host.empty()) hosts.insert(p.run.host);
    if (!p.run.convention.empty()) conventions.insert(p.run.convention);
    if (!p.run.version.empty()) versions.insert(p.run.version);
    for (const DeviceInfo& d : p.run.devices)
      ++devices[{d.name, d.peak_flop_per_s, d.peak_bytes_per_s, d.peak_source, d.dtype, d.dtype_source, d.sparse}];
  }
  j["hosts"] = hosts.size();
  j["conventions"] = conventions;
  j["versions"] = versions;
  j["devices"] = Json::array();
  for (const auto& [key, count] : devices) {
    const auto& [name, flop_per_s, bytes_per_s, source, dtype, dtype_source, sparse] = key;
    j["devices"].push_back({{"name", name},
                            {"count", count},
                            {"peak_flop_per_s", number_or_null(flop_per_s)},
                            {"peak_bytes_per_s", number_or_null(bytes_per_s)},
                            {"peak_source", source},
                            {"dtype", dtype},
                            {"dtype_source", dtype_source},
                            {"sparse", sparse}});
  }
  for (const JobRegion& r : job.regions) j["instance_names"][r.name] = std::string(instance_name(r.sum()));
  j["series"] = series_of(job);
  j["timelines"] = timelines_json(options.timelines);
  j["rows"] = Json::array();
  constexpr std::size_t kRows = 6000;
  std::size_t rows = 0;
  const std::vector<bool> odd = odd_rows(job);
  for (const JobProcess& p : job.processes) {
    for (const SummedRegion& t : p.regions) {
      const bool differs = odd[rows];
      if (rows++ >= kRows) continue;
      const RegionSummary& r = t.sum;
      const auto shares = r.classes_known ? t.weights.time_shares() : std::nullopt;
      const auto share = [&](TimeClass c) {
        return shares ? rounded((*shares)[static_cast<std::size_t>(c)]) : Json(nullptr);
      };
      const bool latency = r.latency.count != 0;
      j["rows"].push_back({{"label", row_label(p, r)},
                           {"host", p.run.host},
                           {"region", r.region},
                           {"mfu", rounded(r.mfu)},
                           {"mbu", rounded(r.mbu)},
                           {"instances", r.instances},
                           {"p50_s", latency ? rounded(seconds(r.latency.p50_ns)) : Json(nullptr)},
                           {"p99_s", latency ? rounded(seconds(r.latency.p99_ns)) : Json(nullptr)},
                           {"idle", share(TimeClass::kIdle)},
                           {"comm", share(TimeClass::kComm)},
                           {"elapsed_s", rounded(seconds(r.elapsed_ns))},
                           {"clock_ratio", rounded(r.clock_ratio)},
                           {"odd", differs}});
    }
  }
  j["rows_left_out"] = rows - j["rows"].size();
  return text_of(j);
}

}  // namespace mfu

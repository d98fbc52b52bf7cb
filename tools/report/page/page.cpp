#include "tools/report/page/page.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "core/ranges/region_rules.h"
#include "tools/job/region_figures.h"
#include "tools/report/format.h"
#include "core/sinks/region_json.h"
#include "tools/report/outputs/json.h"

extern "C" {  // page_embedded.cpp.in
extern const char mfu_page_html[], mfu_page_html_end[];
extern const char mfu_page_css[], mfu_page_css_end[];
extern const char mfu_page_common_js[], mfu_page_common_js_end[];
extern const char mfu_page_run_js[], mfu_page_run_js_end[];
extern const char mfu_page_compare_js[], mfu_page_compare_js_end[];
extern const char mfu_page_chart_js[], mfu_page_chart_js_end[];
}

namespace mfu {

namespace {

using Json = nlohmann::ordered_json;

std::string_view embedded(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

/// Six significant digits: more than a chart can show, and half the bytes.
Json rounded(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return std::strtod(fmt::format("{:.6g}", *value).c_str(), nullptr);
}

/// The template with every @NAME@ replaced, in one pass: what is put in is not looked at again.
std::string filled(std::string_view text, const std::map<std::string_view, std::string_view>& values) {
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find('@');
    out += text.substr(0, at);
    if (at == std::string_view::npos) break;
    const std::size_t end = text.find('@', at + 1);
    const auto value = end == std::string_view::npos ? values.end() : values.find(text.substr(at + 1, end - at - 1));
    if (value == values.end()) {
      out += '@';
      text.remove_prefix(at + 1);
    } else {
      out += value->second;
      text.remove_prefix(end + 1);
    }
  }
  return out;
}

std::string page(const std::string& title, const std::string& data) {
  const std::string safe_title = html_text(title);
  const std::string safe_data = script_safe(data);
  std::string script(embedded(mfu_page_common_js, mfu_page_common_js_end));
  script += embedded(mfu_page_run_js, mfu_page_run_js_end);
  script += embedded(mfu_page_compare_js, mfu_page_compare_js_end);
  return filled(embedded(mfu_page_html, mfu_page_html_end),
                {{"TITLE", safe_title},
                 {"STYLE", embedded(mfu_page_css, mfu_page_css_end)},
                 {"DATA", safe_data},
                 {"CHART", embedded(mfu_page_chart_js, mfu_page_chart_js_end)},
                 {"SCRIPT", script}});
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
    if (found == job.series.regions().end() || (region.name != "total" && drawn++ >= kDrawnRegions)) continue;
    Json s{{"bin", Json::array()}, {"mfu", Json::array()}, {"lost", Json::array()}};
    const bool band = region.processes > 1;
    for (const auto& [index, bin] : found->second) {
      s["bin"].push_back(index);
      s["mfu"].push_back(rounded(bin.weights.mfu()));
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

std::string_view instance_name(const RegionSummary& region) {
  switch (phase_of_region(region.region)) {
    case Phase::kTrain:
      return "step time";
    case Phase::kPrefill:
      return "prefill time";
    case Phase::kDecode:
      // One pass each, or several: then the time between tokens has figures of its own.
      return region.inter_token.count <= region.latency.count ? "time between tokens" : "time of several tokens";
    default:
      return "time of an instance";
  }
}

}  // namespace

std::string script_safe(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out.push_back(c);
  }
  return out;
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string run_page_data(const Job& job, std::string_view version) {
  Json j;
  j["kind"] = "run";
  j["version"] = std::string(version);
  j["path"] = job.path;
  j["trace"] = job.trace;
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
  j["rows"] = Json::array();
  constexpr std::size_t kRows = 6000;
  std::size_t rows = 0;
  for (const JobProcess& p : job.processes) {
    for (const SummedRegion& t : p.regions) {
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
                           {"clock_ratio", rounded(r.clock_ratio)}});
    }
  }
  j["rows_left_out"] = rows - j["rows"].size();
  return text_of(j);
}

std::string run_page(const Job& job, std::string_view version) {
  return page("MFU of " + job.path, run_page_data(job, version));
}

std::string compare_page(const Comparison& comparison, std::string_view version) {
  Json j = Json::parse(comparison_json(comparison));
  j["kind"] = "compare";
  j["version"] = std::string(version);
  // The page shows what is compared; the two jobs are in --json.
  for (const char* side : {"a", "b"}) j[side] = Json::object({{"path", j[side]["path"]}});
  return page("MFU of two runs", text_of(j));
}

}  // namespace mfu

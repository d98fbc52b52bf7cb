#include "tools/report/outputs/json.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "core/sinks/region_json.h"
#include "tools/job/region_figures.h"
#include "tools/report/opportunities.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

void life_json(const JobLife& life, Json& j) {
  j["attempts"] = Json::array();
  for (const Attempt& a : life.attempts)
    j["attempts"].push_back(
        {{"t0_ns", a.span.begin_ns}, {"t1_ns", a.span.end_ns}, {"processes", a.processes}, {"ended", a.ended}});
  j["mfu_job"] = number_or_null(life.job_mfu());
  j["mfu_steps"] = number_or_null(life.mfu);
  j["productive"] = number_or_null(life.productive());
  j["alive"] = number_or_null(life.alive());
  j["gpu_hours"] = life.gpu_s() / 3600;
  Json& lost = j["lost_gpu_hours"] = Json::object();
  for (std::size_t part = 1; part < kLifeParts; ++part)
    lost[std::string(kLifePartNames[part])] = life.gpu_s(static_cast<LifePart>(part)) / 3600;
  if (!life.repeated_known) lost["repeated"] = nullptr;
  j["checkpoints"] = life.checkpoints;
  j["checkpoint_period_s"] = number_or_null(life.checkpoint_period_s);
  j["life"] = life.text().empty() ? Json(nullptr) : Json(life.text());
}

}  // namespace

JsonWriter::JsonWriter(std::ostream& out) : out_(out) { out_ << "{\"v\":1,\"runs\":["; }

void JsonWriter::process(const RunHistory& history) {
  out_ << (first_ ? "\n" : ",\n");
  first_ = false;
  WindowSummary whole;
  if (history.end) {
    whole = *history.end;
  } else if (!history.windows.empty()) {
    whole.window = {history.windows.front().window.begin_ns, history.windows.back().window.end_ns};
    whole.counters = history.windows.back().counters;
  }
  whole.regions.clear();
  for (const RegionTotals& sum : whole_run(history)) whole.regions.push_back(sum.summed().sum);
  Json head;
  head["source"] = history.source;
  head.update(to_json(history.run));
  head["complete"] = history.ended();
  head.update(to_json(whole));
  if (!history.end) head["launches"] = head["self"] = nullptr;
  head["events"] = Json::array();
  for (const RunEvent& event : history.events)
    head["events"].push_back({{"t_ns", event.t_ns}, {"kind", event.kind}, {"message", event.message}});
  head["oddities"] = history.oddities;
  std::string text = text_of(head);
  text.pop_back();  // the windows come into the same object, one line each
  out_ << text << ",\"windows\":[";
  bool first = true;
  for (const WindowSummary& window : history.windows) {
    for (const RegionSummary& region : window.regions) {
      out_ << (first ? "\n" : ",\n") << text_of(to_json(region));
      first = false;
    }
  }
  out_ << "]}";
}

void JsonWriter::finish(const Job& job) { out_ << "],\n\"job\":" << text_of(job_json(job)) << "}\n"; }

Json job_json(const Job& job) {
  Json j;
  j["regions"] = Json::array();
  for (const JobRegion& region : job.regions) {
    Json r = to_json(region.sum());
    const Weights& w = region.totals.weights;
    for (std::size_t i = 0; i < region.slowest_at.size(); ++i) r["slowest"][i]["where"] = region.slowest_at[i];
    r["devices"] = region.devices;
    r["processes"] = region.processes;
    r["tokens_per_s"] = number_or_null(tokens_per_s(region.sum()));
    r["each_s"] = number_or_null(each_s(region.sum()));
    for (const char* key : {"cost", "cost_each", "cost_per_million_tokens", "cost_per_million_output_tokens"})
      r[key] = number_or_null(find_figure(key)->of(region));
    r["flop_at_peak"] = region.sum().mfu ? Json(w.flop_at_peak) : Json(nullptr);
    r["bytes_at_peak"] = region.sum().mbu ? Json(w.bytes_at_peak) : Json(nullptr);
    double counted_ns = 0;
    for (const double t : w.counted_ns) counted_ns += t;
    r["counted_s"] = region.sum().mfu ? Json(counted_ns * 1e-9) : Json(nullptr);
    r["rows_left_out"] = region.sum().mfu ? Json(static_cast<std::uint64_t>(w.left_out)) : Json(nullptr);
    r["why_no_mfu"] = region.why_no_mfu.empty() ? Json(nullptr) : Json(region.why_no_mfu);
    r["words"] = region.words;
    j["regions"].push_back(std::move(r));
  }
  j["processes"] = job.processes.size();
  std::uint64_t complete = 0;
  for (const JobProcess& p : job.processes) complete += p.ended ? 1 : 0;
  j["complete"] = complete;
  WindowSummary window = job_window(job);
  window.regions.clear();  // they are above, with what only a job knows
  Json whole = to_json(window);
  whole.erase("regions");
  if (job.processes_without_account == job.processes.size()) whole["launches"] = whole["self"] = nullptr;
  j.update(whole);
  life_json(job.life, j);
  j["rank_notes"] = job.rank_notes;
  j["costs"] = job.costs;
  j["opportunities"] = Json::array();
  for (const Opportunity& o : opportunities(job))
    j["opportunities"].push_back({{"region", o.region},
                                  {"class", word(o.time_class)},
                                  {"share", o.share},
                                  {"gain", number_or_null(o.gain)},
                                  {"what", o.what},
                                  {"advice", o.advice}});
  j["warnings"] = Json::array();
  for (const JobWarning& w : job.warnings)
    j["warnings"].push_back({{"kind", w.kind}, {"message", w.message}, {"source", w.source}, {"count", w.count}});
  return j;
}

}  // namespace mfu

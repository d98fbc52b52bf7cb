#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/replay/trace_figures.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const SetFigures& f) {
  Json out = Json::object();
  for (std::size_t i = 0; i < kFigureNames.size(); ++i) out[std::string(kFigureNames[i])] = f.values[i];
  return out;
}

Json to_json(const TraceNotes& notes) {
  Json out = Json::object();
  for (const auto& [name, count] : notes) out[name] = count;
  return out;
}

void put_times(Json& out, const RangeFigures& f) {
  out["wall_ns"] = f.wall_ns;
  out["window_busy_ns"] = f.window_busy_ns;
  out["window_idle_ns"] = f.window_idle_ns;
  out["by_thread"] = to_json(f.by_thread);
  out["by_process"] = to_json(f.by_process);
}

void put_process(Json& out, const ProcessFigures& f) {
  out["process"] = f.process;
  out["devices"] = f.devices;
  out["notes"] = to_json(f.notes);
  out["totals"] = to_json(f.totals);
  out["launches"] = {{"host_calls", f.launches.host_calls},
                     {"gpu_ops_with_launch", f.launches.gpu_ops_with_launch},
                     {"gpu_ops_without_launch", f.launches.gpu_ops_without_launch},
                     {"gpu_ops_without_launch_sum_ns", f.launches.gpu_ops_without_launch_sum_ns},
                     {"graph_launches", f.launches.graph_launches},
                     {"gpu_ops_from_graphs", f.launches.gpu_ops_from_graphs},
                     {"kernels_from_graphs", f.launches.kernels_from_graphs}};
  Json& threads = out["gpu_ops_by_launching_thread"] = Json::object();
  for (const auto& [thread, count] : f.gpu_ops_by_launching_thread) threads[thread] = count;
  Json& streams = out["streams"] = Json::array();
  for (const StreamFigures& s : f.streams) {
    streams.push_back({{"device", s.device},
                       {"stream", s.stream},
                       {"gpu_ops", s.gpu_ops},
                       {"kernels", s.kernels},
                       {"sum_ns", s.sum_ns},
                       {"busy_ns", s.busy_ns}});
  }
  // Appended, not looked up: with thousands of names an ordered object's look-ups would be quadratic.
  auto& ranges = (out["ranges"] = Json::object()).get_ref<Json::object_t&>();
  ranges.reserve(f.ranges.size());
  for (const RangeFigures& r : f.ranges) {
    Json entry = Json::object();
    entry["instances"] = r.instances;
    put_times(entry, r);
    ranges.push_back({r.name, std::move(entry)});
  }
  if (!f.steps.empty()) {
    Json& steps = out["steps"] = Json::array();
    for (const RangeFigures& s : f.steps) {
      Json entry = Json::object();
      entry["name"] = s.name;
      entry["start_ns"] = s.start_ns;
      put_times(entry, s);
      steps.push_back(std::move(entry));
    }
  }
  out["unattributed"] = {{"by_thread_gpu_ops", f.unattributed.by_thread_gpu_ops},
                         {"by_thread_sum_ns", f.unattributed.by_thread_sum_ns},
                         {"by_process_gpu_ops", f.unattributed.by_process_gpu_ops},
                         {"by_process_sum_ns", f.unattributed.by_process_sum_ns}};
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string file_name(const TraceFacts& trace) { return std::filesystem::path(trace.path).filename().string(); }

/// Facts about the file beside its processes.
void put_facts(Json& out, const TraceFacts& trace) {
  out["trace"] = file_name(trace);
  out["format"] = trace.format == TraceFormat::kKineto ? "kineto" : "nsys-sqlite";
  out["rank"] = or_null(trace.rank);
  out["world_size"] = or_null(trace.world_size);
  out["gpu_names"] = trace.gpu_names;
  if (trace.format == TraceFormat::kKineto) {
    out["top_level_keys"] = trace.top_level_keys;
    out["events"] = trace.events;
  } else {
    Json& info = out["export"] = Json::object();
    for (const auto& [name, value] : trace.export_info) info[name] = value;
    out["nvtx_domains"] = trace.nvtx_domains;
    out["tables"] = trace.tables;
  }
  if (!trace.notes.empty()) out["notes"] = to_json(trace.notes);
}

}  // namespace

std::string report_json(const std::vector<TraceReport>& reports,
                        const std::vector<std::pair<std::string, std::string>>& more) {
  Json out = Json::object();
  const bool several = reports.size() != 1;
  // Files of ranks often have equal names in different folders: then the path is the name.
  std::set<std::string> names;
  for (const TraceReport& report : reports) names.insert(file_name(report.facts));
  const auto label = [&](const TraceFacts& facts) {
    return names.size() == reports.size() ? file_name(facts) : facts.path;
  };
  if (several) {
    Json& list = out["traces"] = Json::array();
    for (const TraceReport& report : reports) {
      Json entry = Json::object();
      put_facts(entry, report.facts);
      entry["trace"] = label(report.facts);
      list.push_back(std::move(entry));
    }
  } else {
    put_facts(out, reports.front().facts);
  }
  Json& processes = out["processes"] = Json::array();
  for (const TraceReport& report : reports) {
    for (const ProcessFigures& process : report.processes) {
      Json entry = Json::object();
      if (several) entry["trace"] = label(report.facts);
      put_process(entry, process);
      processes.push_back(std::move(entry));
    }
  }
  for (const auto& [key, json] : more) out[key] = Json::parse(json);
  return out.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mfu

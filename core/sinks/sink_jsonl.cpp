#include "core/sinks/sink_jsonl.h"

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

namespace mfu {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

std::string_view bound_name(Bound bound) { return bound == Bound::kCompute ? "compute" : "memory"; }

Json latency_json(const LatencySummary& l) {
  if (l.count == 0) return nullptr;
  Json j;
  j["count"] = l.count;
  j["p50_s"] = seconds(l.p50_ns);
  j["p90_s"] = seconds(l.p90_ns);
  j["p99_s"] = seconds(l.p99_ns);
  j["max_s"] = seconds(l.max_ns);
  j["histogram"] = Json::array();
  for (const auto& [upper_ns, count] : l.histogram) j["histogram"].push_back({seconds(upper_ns), count});
  return j;
}

/// Under a key that has the unit.
Json latency_s_json(const LatencySummary& l) {
  if (l.count == 0) return nullptr;
  const Json with_units = latency_json(l);
  return {{"count", l.count},           {"p50", with_units["p50_s"]}, {"p90", with_units["p90_s"]},
          {"p99", with_units["p99_s"]}, {"max", with_units["max_s"]}, {"histogram", with_units["histogram"]}};
}

Json times_json(const ClassTimes& time_ns, bool known) {
  Json times;
  for (std::size_t c = 0; c < kTimeClasses; ++c)
    times[std::string(kTimeClassNames[c])] = known ? Json(seconds(time_ns[c])) : Json(nullptr);
  return times;
}

Json by_batch_json(const RegionSummary& r) {
  Json all = Json::array();
  for (const BatchLatency& b : r.by_batch)
    all.push_back({{"unit", std::string(kBatchUnitNames[static_cast<std::size_t>(b.unit)])},
                   {"batch_min", b.batch_min},
                   {"batch_max", b.batch_max},
                   {"instances", b.instances},
                   {"tokens", b.tokens},
                   {"elapsed_s", seconds(b.elapsed_ns)},
                   {"latency_s", latency_s_json(b.latency)},
                   {"flop", number_or_null(b.flop)},
                   {"bytes", number_or_null(b.bytes)},
                   {"mfu", number_or_null(b.mfu)},
                   {"mbu", number_or_null(b.mbu)}});
  return all;
}

Json slowest_json(const RegionSummary& r) {
  Json all = Json::array();
  for (const SlowInstance& s : r.slowest)
    all.push_back({{"nth", s.nth},
                   {"t0_ns", s.t0_ns},
                   {"elapsed_s", seconds(s.elapsed_ns)},
                   {"time_s", times_json(s.time_ns, r.classes_known)},
                   {"lost_to", r.classes_known ? Json(std::string(kTimeClassNames[static_cast<std::size_t>(s.lost_to)]))
                                               : Json(nullptr)},
                   {"excess_s", r.classes_known ? Json(seconds(s.excess_ns)) : Json(nullptr)}});
  return all;
}

Json to_json(const RegionSummary& r) {
  Json j;
  j["region"] = r.region;
  j["device"] = r.device ? Json(*r.device) : Json(nullptr);
  j["t0_ns"] = r.window.begin_ns;
  j["t1_ns"] = r.window.end_ns;
  j["instances"] = r.instances;
  j["open"] = r.open;
  j["tokens"] = r.tokens;
  j["elapsed_s"] = seconds(r.elapsed_ns);
  j["busy_s"] = r.classes_known ? Json(seconds(r.busy_ns)) : Json(nullptr);
  j["kernel_sum_s"] = r.classes_known ? Json(seconds(r.kernel_sum_ns)) : Json(nullptr);
  j["kernels"] = r.kernels;
  j["launches"] = r.launches;
  j["comm_kernels"] = r.comm_kernels;
  j["comm_sum_s"] = r.classes_known ? Json(seconds(r.comm_sum_ns)) : Json(nullptr);
  j["latency"] = latency_json(r.latency);
  j["flop"] = number_or_null(r.flop);
  j["bytes"] = number_or_null(r.bytes);
  j["mfu"] = number_or_null(r.mfu);
  j["mfu_busy"] = number_or_null(r.mfu_busy);
  j["hfu"] = number_or_null(r.hfu);
  j["mbu"] = number_or_null(r.mbu);
  j["roofline_s"] = number_or_null(r.roofline_s);
  j["bound"] = r.bound == Bound::kUnknown ? Json(nullptr) : Json(bound_name(r.bound));
  j["clock_ratio"] = number_or_null(r.clock_ratio);
  j["suspect"] = r.suspect.empty() ? Json(nullptr) : Json(r.suspect);
  j["overlapped"] = r.overlapped;
  Json lost;
  for (std::size_t c = 0; c < kTimeClasses; ++c)
    lost[std::string(kTimeClassNames[c])] = r.lost && r.classes_known ? Json((*r.lost)[c]) : Json(nullptr);
  j["time_s"] = times_json(r.time_ns, r.classes_known);
  j["lost"] = std::move(lost);
  j["top_kernels"] = Json::array();
  for (const TopKernel& k : r.top_kernels)
    j["top_kernels"].push_back({{"name", k.name},
                                {"class", std::string(name(k.kernel_class))},
                                {"count", k.count},
                                {"sum_s", seconds(k.sum_ns)}});
  j["inter_token_s"] = latency_s_json(r.inter_token);
  j["by_batch"] = by_batch_json(r);
  j["prefill_to_decode_s"] = latency_s_json(r.prefill_to_decode);
  j["after_prefill"] = r.after_prefill ? Json(*r.after_prefill) : Json(nullptr);
  j["slowest"] = slowest_json(r);
  if (!r.shape_source.empty()) {
    Json sources;
    for (const auto& [key, source] : r.shape_source) sources[key] = source;
    j["shape_source"] = std::move(sources);
  }
  j["named_by"] = r.named_by.empty() ? Json(nullptr) : Json(r.named_by);
  if (r.detected)
    j["detected"] = {{"kind", r.detected->kind},
                     {"period_launches", r.detected->period_launches},
                     {"confidence", r.detected->confidence},
                     {"micro_steps", r.detected->micro_steps}};
  return j;
}

Json self_json(const SelfCost& self) {
  return {{"cpu_s", self.cpu_s}, {"rss_bytes", self.rss_bytes}, {"overhead", self.overhead}};
}

Json parsed(const std::string& text) {
  Json j = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return j.is_discarded() ? Json(nullptr) : j;
}

Json to_json(const RunInfo& run) {
  Json j;
  j["host"] = run.host;
  j["pid"] = run.pid;
  j["rank"] = run.rank;
  j["local_rank"] = run.local_rank ? Json(*run.local_rank) : Json(nullptr);
  j["world"] = run.world_size;
  j["version"] = run.version;
  j["devices"] = Json::array();
  for (const DeviceInfo& d : run.devices)
    j["devices"].push_back({{"device", d.device},
                            {"name", d.name},
                            {"uuid", d.uuid},
                            {"peak_flop_per_s", number_or_null(d.peak_flop_per_s)},
                            {"peak_bytes_per_s", number_or_null(d.peak_bytes_per_s)},
                            {"peak_source", d.peak_source},
                            {"dtype", d.dtype},
                            {"dtype_source", d.dtype_source},
                            {"sparse", d.sparse}});
  j["cupti"] = {{"path", run.cupti_path.empty() ? Json(nullptr) : Json(run.cupti_path)},
                {"version", run.cupti_version},
                {"level", run.level}};
  j["config"] = parsed(run.config_json);
  j["model"] = parsed(run.model_json);
  j["convention"] = run.convention.empty() ? Json(nullptr) : Json(run.convention);
  return j;
}

Json to_json(const WindowSummary& window) {
  Json j;
  j["t0_ns"] = window.window.begin_ns;
  j["t1_ns"] = window.window.end_ns;
  j["regions"] = Json::array();
  for (const RegionSummary& region : window.regions) j["regions"].push_back(to_json(region));
  const LaunchAccount& l = window.launches;
  j["launches"] = {{"seen", l.seen},       {"attributed", l.attributed},
                   {"outside", l.outside}, {"unattributed", l.unattributed},
                   {"dropped", l.dropped}, {"not_timed", l.not_timed}};
  j["self"] = self_json(window.self);
  j["counters"] = Json::object();
  for (const auto& [counter, count] : window.counters) j["counters"][counter] = count;
  return j;
}

std::string dump(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

TimeNs utc_now() {
  ::timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<TimeNs>(t.tv_sec) * kNsPerSecond + t.tv_nsec;
}

Json line(const char* type, TimeNs t_ns, std::uint64_t seq) {
  Json j;
  j["v"] = 1;
  j["type"] = type;
  j["t_ns"] = t_ns;
  j["seq"] = seq;
  return j;
}

std::string file_name(const std::string& directory, const RunInfo& run) {
  std::string host;
  for (const char c : run.host) host.push_back(c == '/' || c == '\0' ? '_' : c);
  return directory + "/" + host + "-" + std::to_string(run.rank) + "-" + std::to_string(run.pid) + ".jsonl";
}

}  // namespace

std::string region_json(const RegionSummary& region) { return dump(to_json(region)); }
std::string run_json(const RunInfo& run) { return dump(to_json(run)); }
std::string whole_run_json(const WindowSummary& whole) { return dump(to_json(whole)); }

JsonlSink::JsonlSink(const std::string& directory, const RunInfo& run)
    : file_(file_name(directory, run), LineFile::Owner::kOurs) {}

Result<void> JsonlSink::append(const std::string& line) {
  if (!start_line_.empty() && line != start_line_ && file_.fresh()) {
    // The directory was cleaned under us: without its first line a file says nothing.
    if (auto done = file_.append(start_line_); !done) return done;
  }
  return file_.append(line);
}

Result<void> JsonlSink::start(const RunInfo& run) {
  try {
    Json j = line("start", run.t_ns, seq_++);
    j.update(to_json(run));
    start_line_ = dump(j);
    return append(start_line_);
  } catch (const std::exception& e) {
    return Error{std::string("start line: ") + e.what()};
  }
}

Result<void> JsonlSink::write(const WindowSummary& window) {
  try {
    if (!window.final_run) {
      for (const RegionSummary& region : window.regions) {
        Json j = line("window", utc_now(), seq_++);
        j.update(to_json(region));
        j["settled"] = window.settled;
        if (region.region == "total") {
          for (const auto& [counter, count] : window.counters) j["counters"][counter] = count;
          j["self"] = self_json(window.self);
        }
        if (auto done = append(dump(j)); !done) return done;
      }
      return {};
    }
    Json j = line("end", utc_now(), seq_++);
    j.update(to_json(window));
    return append(dump(j));
  } catch (const std::exception& e) {
    return Error{std::string("window: ") + e.what()};
  }
}

Result<void> JsonlSink::event(TimeNs t_ns, std::string_view kind, std::string_view message) {
  try {
    Json j = line("event", t_ns, seq_++);
    j["kind"] = std::string(kind);
    j["message"] = std::string(message);
    return append(dump(j));
  } catch (const std::exception& e) {
    return Error{std::string("event: ") + e.what()};
  }
}

}  // namespace mfu

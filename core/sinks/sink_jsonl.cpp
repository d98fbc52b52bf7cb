#include "core/sinks/sink_jsonl.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "core/sinks/region_json.h"

namespace mfu {

namespace {

using Json = nlohmann::ordered_json;

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

std::string region_json(const RegionSummary& region) { return text_of(to_json(region)); }

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
    start_line_ = text_of(j);
    return append(start_line_);
  } catch (const std::exception& e) {
    return Error{std::string("start line: ") + e.what()};
  }
}

Result<void> JsonlSink::write(const WindowSummary& window) {
  try {
    if (!window.final_run) {
      // All rows with one write: on a shared file system it is opening and closing that costs.
      std::string rows;
      for (const RegionSummary& region : window.regions) {
        Json j = line("window", utc_now(), seq_++);
        j.update(to_json(region));
        j["settled"] = window.settled;
        if (region.region == "total") {
          for (const auto& [counter, count] : window.counters) j["counters"][counter] = count;
          j["self"] = to_json(window.self);
        }
        if (!rows.empty()) rows += '\n';
        rows += text_of(j);
      }
      if (!rows.empty()) return append(rows);
      return {};
    }
    Json j = line("end", utc_now(), seq_++);
    j.update(to_json(window));
    return append(text_of(j));
  } catch (const std::exception& e) {
    return Error{std::string("window: ") + e.what()};
  }
}

Result<void> JsonlSink::event(TimeNs t_ns, std::string_view kind, std::string_view message) {
  try {
    Json j = line("event", t_ns, seq_++);
    j["kind"] = std::string(kind);
    j["message"] = std::string(message);
    return append(text_of(j));
  } catch (const std::exception& e) {
    return Error{std::string("event: ") + e.what()};
  }
}

}  // namespace mfu

#include "core/sinks/sink_jsonl.h"

#include <nlohmann/json.hpp>

#include "core/base/clock.h"
#include "core/sinks/region_json.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

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

JsonlSink::JsonlSink(const std::string& directory, const RunInfo& run, double bytes_per_day)
    : file_(file_name(directory, run), LineFile::Owner::kOurs), budget_("run directory", bytes_per_day) {}

Result<void> JsonlSink::start(const RunInfo& run) {
  try {
    budget_.start(run);
    Json j = line("start", run.t_ns, seq_++);
    j.update(to_json(run));
    const std::string text = text_of(j);
    const Result<void> done = file_.append(text);
    // Should the directory be cleaned under us: without its first line a file says nothing.
    file_.begins_with(text + '\n');
    return done;
  } catch (const std::exception& e) {
    return Error{std::string("start line: ") + e.what()};
  }
}

/// The row of `total` is the last, and says how long the next window is where that is longer than usual.
Result<void> JsonlSink::write_window(const WindowSummary& window) {
  std::vector<std::string> lines;
  std::size_t bytes = 0;
  for (const RegionSummary& region : window.regions) {
    Json j = line("window", utc_now(), seq_++);
    j.update(to_json(region));
    j["settled"] = window.settled;
    const bool total = region.region == "total";
    if (total) {
      for (const auto& [counter, count] : window.counters) j["counters"][counter] = count;
      j["self"] = to_json(window.self);
      if (!window.trust.empty()) j["trust"] = to_json(window.trust);
      if (window.stall) j["stall"] = to_json(*window.stall);
    }
    lines.push_back(text_of(j));
    bytes += lines.back().size() + 1;
    if (!total) continue;
    budget_.wrote(bytes);
    if (budget_.next_ns() == 0) continue;
    j["next_s"] = seconds(budget_.next_ns());
    lines.back() = text_of(j);
  }
  if (lines.empty()) return {};
  // All rows with one write: on a shared file system it is opening and closing that costs.
  std::string rows = std::move(lines.front());
  for (std::size_t i = 1; i < lines.size(); ++i) rows += '\n' + lines[i];
  return file_.append(rows);
}

Result<void> JsonlSink::write(const WindowSummary& window) {
  try {
    const bool whole = window.final_run;
    const WindowSummary* now = !whole ? budget_.take(window) : window.so_far ? nullptr : budget_.rest();
    if (now != nullptr)
      if (auto done = write_window(*now); !done && !whole) return done;
    if (!whole) return {};
    Json j = line("end", utc_now(), seq_++);
    j.update(to_json(window));
    if (window.so_far) j["so_far"] = true;
    return file_.append(text_of(j));
  } catch (const std::exception& e) {
    return Error{std::string("window: ") + e.what()};
  }
}

Result<void> JsonlSink::event(const RunEvent& event) {
  try {
    Json j = line("event", event.t_ns, seq_++);
    j["kind"] = event.kind;
    j["message"] = event.message;
    if (event.stall) j["stall"] = to_json(*event.stall);
    const std::string text = text_of(j);
    if (!budget_.allows_event(text.size() + 1)) return Error{path() + ": more events than its limit allows"};
    return file_.append(text);
  } catch (const std::exception& e) {
    return Error{std::string("event: ") + e.what()};
  }
}

}  // namespace mfu

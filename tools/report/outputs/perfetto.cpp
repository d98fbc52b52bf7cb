#include "tools/report/outputs/perfetto.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/base/number_text.h"
#include "core/sinks/region_json.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

PerfettoWriter::PerfettoWriter(std::ostream& out) : out_(out) {
  out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

void PerfettoWriter::process(const RunHistory& history) {
  const auto emit = [this](const Json& event) {
    out_ << (first_ ? "\n" : ",\n") << text_of(event);
    first_ = false;
  };
  const std::int64_t pid = processes_++;
  if (!base_ns_ && !history.windows.empty()) base_ns_ = history.windows.front().window.begin_ns;
  const TimeNs base_ns = base_ns_.value_or(0);
  const auto us = [base_ns](TimeNs t) { return static_cast<double>(t - base_ns) / 1e3; };
  const auto meta = [&](const char* what, std::int64_t tid, Json args) {
    emit({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", std::move(args)}});
  };
  meta("process_name", 0,
       Json::object(
           {{"name", fmt::format("rank {} ({}, pid {})", history.run.rank, history.run.host, history.run.pid)}}));
  meta("process_sort_index", 0, Json::object({{"sort_index", history.run.rank}}));

  std::map<std::string, std::pair<std::int64_t, TimeNs>> tracks;  // by name: thread, and up to where its counters hold
  const auto counters = [&](const std::string& track, TimeNs at, const std::optional<double>& mfu,
                            const std::optional<double>& mbu, const std::optional<double>& tflop_per_s) {
    const auto counter = [&](const char* name, const std::optional<double>& value) {
      if (value)
        emit({{"ph", "C"},
              {"name", track + " " + name},
              {"pid", pid},
              {"ts", us(at)},
              {"args", Json::object({{name, *value}})}});
    };
    counter("MFU %", mfu ? std::optional(*mfu * 100) : std::nullopt);
    counter("MBU %", mbu ? std::optional(*mbu * 100) : std::nullopt);
    counter("TFLOP/s", tflop_per_s);
  };
  std::map<std::string, const RegionSummary*> last;
  const auto tflop_per_s = [](const RegionSummary& r) {
    return r.flop && r.elapsed_ns > 0 ? std::optional(*r.flop / seconds(r.elapsed_ns) / 1e12) : std::nullopt;
  };
  const auto zero_where = [](const std::optional<double>& v) { return v ? std::optional(0.0) : std::nullopt; };
  const auto drop_to_zero = [&](const std::string& track) {  // a counter holds its value until the next one
    if (const RegionSummary* r = last[track])
      counters(track, r->window.end_ns, zero_where(r->mfu), zero_where(r->mbu), zero_where(tflop_per_s(*r)));
  };
  for (const WindowSummary& window : history.windows) {
    for (const RegionSummary& r : window.regions) {
      const std::string track = r.device ? fmt::format("{}@gpu{}", r.region, *r.device) : r.region;
      const auto [at, inserted] = tracks.try_emplace(track, static_cast<std::int64_t>(tracks.size()) + 1, 0);
      if (inserted) meta("thread_name", at->second.first, Json::object({{"name", track}}));
      if (last[track] != nullptr && last[track]->window.end_ns < r.window.begin_ns) drop_to_zero(track);
      emit({{"ph", "X"},
            {"name", track},
            {"cat", "window"},
            {"pid", pid},
            {"tid", at->second.first},
            {"ts", us(r.window.begin_ns)},
            {"dur", static_cast<double>(r.window.length_ns()) / 1e3},
            {"args",
             {{"instances", r.instances},
              {"elapsed_s", seconds(r.elapsed_ns)},
              {"mfu", number_or_null(r.mfu)},
              {"mbu", number_or_null(r.mbu)},
              {"flop", number_or_null(r.flop)},
              {"p50_s", r.latency.count != 0 ? Json(seconds(r.latency.p50_ns)) : Json(nullptr)},
              {"suspect", r.suspect.empty() ? Json(nullptr) : Json(r.suspect)}}}});
      counters(track, r.window.begin_ns, possible(r.mfu), possible(r.mbu), tflop_per_s(r));
      last[track] = &r;
    }
  }
  for (const auto& [track, thread] : tracks) drop_to_zero(track);
  for (const RunEvent& event : history.events)
    emit({{"ph", "i"},
          {"name", event.kind},
          {"s", "p"},
          {"pid", pid},
          {"tid", 0},
          {"ts", us(event.t_ns)},
          {"args", Json::object({{"message", event.message}})}});
}

void PerfettoWriter::finish(const Job& job) {
  out_ << "],\n\"baseTimeNanoseconds\":" << base_ns_.value_or(0)
       << ",\"otherData\":" << text_of({{"source", job.path}, {"by", "mfu report"}}) << "}\n";
}

}  // namespace mfu

#include "tools/report/outputs/outputs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "core/sinks/sink_jsonl.h"
#include "core/sinks/sink_text.h"
#include "tools/job/region_figures.h"
#include "tools/report/format.h"

namespace mfu {

namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

/// The text between the braces of an object.
std::string_view inside(std::string_view object) { return object.substr(1, object.size() - 2); }

std::string shortest(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

std::string file_name(std::string_view path) { return std::string(path.substr(path.find_last_of('/') + 1)); }

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
  for (const RegionSum& sum : whole_run(history)) whole.regions.push_back(sum.totals().sum);
  Json end = Json::parse(whole_run_json(whole));
  if (!history.end) end["launches"] = end["self"] = nullptr;
  Json notes;
  notes["events"] = Json::array();
  for (const RunEvent& event : history.events)
    notes["events"].push_back({{"t_ns", event.t_ns}, {"kind", event.kind}, {"message", event.message}});
  notes["oddities"] = history.oddities;
  out_ << "{" << inside(text_of(Json::object({{"source", history.source}}))) << "," << inside(run_json(history.run))
       << ",\"complete\":" << (history.end ? "true" : "false") << "," << inside(text_of(end)) << ","
       << inside(text_of(notes)) << ",\"windows\":[";
  bool first = true;
  for (const WindowSummary& window : history.windows) {
    for (const RegionSummary& region : window.regions) {
      out_ << (first ? "\n" : ",\n") << region_json(region);
      first = false;
    }
  }
  out_ << "]}";
}

void JsonWriter::finish(const Job& job) { out_ << "],\n\"job\":" << job_json(job) << "}\n"; }

std::string job_json(const Job& job) {
  Json j;
  j["regions"] = Json::array();
  for (const JobRegion& region : job.regions) {
    Json r = Json::parse(region_json(region.sum()));
    const Weights& w = region.totals.weights;
    for (std::size_t i = 0; i < region.slowest_at.size(); ++i) r["slowest"][i]["where"] = region.slowest_at[i];
    r["devices"] = region.devices;
    r["processes"] = region.processes;
    r["tokens_per_s"] = number_or_null(tokens_per_s(region.sum()));
    r["each_s"] = number_or_null(each_s(region.sum()));
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
  const WindowSummary window = job_window(job);
  Json whole = Json::parse(whole_run_json({window.window, true, {}, window.launches, window.self, window.counters}));
  whole.erase("regions");
  if (job.processes_without_account == job.processes.size()) whole["launches"] = whole["self"] = nullptr;
  j.update(whole);
  j["warnings"] = Json::array();
  for (const JobWarning& w : job.warnings)
    j["warnings"].push_back({{"kind", w.kind}, {"message", w.message}, {"source", w.source}, {"count", w.count}});
  return text_of(j);
}

const char* const kCsvHeader =
    "source,host,rank,pid,region,device,t0_ns,t1_ns,instances,open,tokens,elapsed_s,busy_s,kernel_sum_s,kernels,"
    "launches,"
    "comm_kernels,comm_sum_s,latency_count,latency_p50_s,latency_p90_s,latency_p99_s,latency_max_s,flop,bytes,mfu,"
    "mfu_busy,hfu,mbu,roofline_s,bound,clock_ratio,suspect,overlapped,time_matmul_s,time_other_s,time_comm_s,"
    "time_memcpy_s,time_idle_s,lost_matmul,lost_other,lost_comm,lost_memcpy,lost_idle,named_by,"
    "inter_token_p50_s,inter_token_p99_s,prefill_to_decode_p50_s,prefill_to_decode_p99_s,after_prefill,slowest_nth,"
    "slowest_t0_ns,slowest_s,slowest_lost_to,slowest_excess_s,latency_by_batch";

namespace {

/// `sequences 5-8: p50=0.0013 p99=0.0049; sequences 9-16: ...` [s].
std::string batches_text(const RegionSummary& r) {
  std::string text;
  for (const BatchLatency& b : r.by_batch)
    text += fmt::format("{}{} {}: p50={} p99={}", text.empty() ? "" : "; ",
                        kBatchUnitNames[static_cast<std::size_t>(b.unit)], batch_range(b), seconds(b.latency.p50_ns),
                        seconds(b.latency.p99_ns));
  return text;
}

}  // namespace

CsvWriter::CsvWriter(std::ostream& out) : out_(out) { out_ << kCsvHeader << "\r\n"; }

void CsvWriter::process(const RunHistory& history) {
  const std::string run = fmt::format("{},{},{},{}", csv_text(file_name(history.source)), csv_text(history.run.host),
                                      history.run.rank, history.run.pid);
  for (const WindowSummary& window : history.windows) {
    for (const RegionSummary& r : window.regions) {
      const auto measured = [&r](DurationNs ns) { return r.classes_known ? shortest(seconds(ns)) : std::string(); };
      const auto latency = [&r](DurationNs ns) { return r.latency.count != 0 ? shortest(seconds(ns)) : std::string(); };
      std::string line = fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", run, csv_text(r.region),
          r.device ? std::to_string(*r.device) : "", r.window.begin_ns, r.window.end_ns, r.instances, r.open, r.tokens,
          shortest(seconds(r.elapsed_ns)), measured(r.busy_ns), measured(r.kernel_sum_ns), r.kernels, r.launches,
          r.comm_kernels, measured(r.comm_sum_ns), r.latency.count, latency(r.latency.p50_ns),
          latency(r.latency.p90_ns), latency(r.latency.p99_ns), latency(r.latency.max_ns));
      for (const auto& value : {r.flop, r.bytes, r.mfu, r.mfu_busy, r.hfu, r.mbu, r.roofline_s})
        line += "," + shortest(value);
      line += fmt::format(",{},{},{},{}",
                          r.bound == Bound::kUnknown   ? ""
                          : r.bound == Bound::kCompute ? "compute"
                                                       : "memory",
                          shortest(r.clock_ratio), csv_text(r.suspect), r.overlapped);
      for (const DurationNs t : r.time_ns) line += "," + measured(t);
      for (std::size_t c = 0; c < kTimeClasses; ++c)
        line += "," + (r.lost && r.classes_known ? shortest((*r.lost)[c]) : std::string());
      line += "," + csv_text(r.named_by);
      for (const LatencySummary* l : {&r.inter_token, &r.prefill_to_decode})
        for (const DurationNs ns : {l->p50_ns, l->p99_ns})
          line += "," + (l->count != 0 ? shortest(seconds(ns)) : std::string());
      line += "," + (r.after_prefill ? std::to_string(*r.after_prefill) : std::string());
      if (r.slowest.empty()) {
        line += ",,,,,";
      } else {
        const SlowInstance& s = r.slowest.front();
        line += fmt::format(",{},{},{},{},{}", s.nth, s.t0_ns, shortest(seconds(s.elapsed_ns)),
                            r.classes_known ? kTimeClassNames[static_cast<std::size_t>(s.lost_to)] : std::string_view(),
                            measured(s.excess_ns));
      }
      out_ << line << "," << csv_text(batches_text(r)) << "\r\n";
    }
  }
}

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
  const auto drop_to_zero = [&](const std::string& track) {  // a counter holds its value until told otherwise
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
      counters(track, r.window.begin_ns, r.mfu, r.mbu, tflop_per_s(r));
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

std::string job_text(const Job& job) {
  WindowSummary window = job_window(job);
  // Of several ranks or devices the table cannot say whose: below it.
  std::string slowest;
  for (std::size_t i = 0; i < job.regions.size(); ++i) {
    const JobRegion& r = job.regions[i];
    if (r.devices < 2 || r.slowest_at.empty()) continue;
    window.regions[i].slowest.clear();
    slowest += fmt::format("slowest of {}:", r.name);
    for (std::size_t k = 0; k < std::min(SlowestInstances::kMost, r.slowest_at.size()); ++k)
      slowest += fmt::format("{} {} {}", k == 0 ? "" : ",", r.slowest_at[k],
                             slow_instance(r.sum().slowest[k], r.sum().classes_known));
    slowest += "\n";
  }
  std::string text = region_table(window) + "\n" + slowest;
  if (job.processes_without_account == job.processes.size()) {  // nobody counted them to the end
    const std::size_t account = text.find("\nlaunches ");
    if (account != std::string::npos) text.erase(account, text.find('\n', account + 1) - account);
  }
  for (const JobRegion& r : job.regions)
    if (!r.words.empty()) text += r.words + "\n";
  std::set<std::string> reasons;
  for (const JobRegion& r : job.regions)
    if (!r.why_no_mfu.empty() && reasons.insert(r.why_no_mfu).second)
      text += fmt::format("no MFU of {}: {}\n", r.name, r.why_no_mfu);
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(kShown, job.warnings.size()); ++i) {
    const JobWarning& w = job.warnings[i];
    text += fmt::format("{}: {}{}{}\n", w.kind, w.message, w.source.empty() ? "" : " [" + file_name(w.source) + "]",
                        w.count > 1 ? fmt::format(" ({} times)", w.count) : "");
  }
  if (job.warnings.size() > kShown) text += fmt::format("... and {} more remarks\n", job.warnings.size() - kShown);
  return text;
}

namespace {

std::string batches_markdown(const Job& job) {
  std::string text;
  for (const JobRegion& region : job.regions) {
    for (const BatchLatency& b : region.sum().by_batch) {
      const auto tokens_per_s = b.tokens != 0 && b.elapsed_ns > 0
                                    ? std::optional(static_cast<double>(b.tokens) / seconds(b.elapsed_ns))
                                    : std::nullopt;
      text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", markdown_text(region.name),
                          batch_range(b), kBatchUnitNames[static_cast<std::size_t>(b.unit)], b.instances,
                          duration_text(seconds(b.latency.p50_ns)), duration_text(seconds(b.latency.p90_ns)),
                          duration_text(seconds(b.latency.p99_ns)), duration_text(seconds(b.latency.max_ns)),
                          percent_text(b.mfu), percent_text(b.mbu), scaled_text(tokens_per_s, "token/s"));
    }
  }
  if (text.empty()) return "";
  return "\n## Latency by batch\n\n| region | batch | in | instances | p50 | p90 | p99 | max | MFU | MBU | tokens |\n"
         "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n" +
         text;
}

std::string slowest_markdown(const Job& job) {
  std::string text;
  for (const JobRegion& region : job.regions) {
    const RegionSummary& r = region.sum();
    for (std::size_t i = 0; i < region.slowest_at.size(); ++i) {
      const SlowInstance& s = r.slowest[i];
      text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", markdown_text(region.name),
                          markdown_text(region.slowest_at[i]), s.nth,
                          duration_text(seconds(s.t0_ns - job.span.begin_ns)), duration_text(seconds(s.elapsed_ns)),
                          r.classes_known ? kTimeClassNames[static_cast<std::size_t>(s.lost_to)] : "-",
                          duration_text(r.classes_known ? std::optional(seconds(s.excess_ns)) : std::nullopt));
    }
  }
  if (text.empty()) return "";
  return "\n## Slowest instances\n\n| region | where | nth | began after | took | lost to | more than the others |\n"
         "|---|---|--:|--:|--:|---|--:|\n" +
         text;
}

}  // namespace

std::string job_markdown(const Job& job) {
  std::string text = fmt::format("# MFU of {}\n\n", markdown_text(job.path));
  text += fmt::format("{} process{}, {}", job.processes.size(), job.processes.size() == 1 ? "" : "es",
                      duration_text(seconds(job.span.length_ns())));
  std::set<std::string> peaks, conventions;
  for (const JobProcess& p : job.processes) {
    for (const DeviceInfo& d : p.run.devices)
      peaks.insert(fmt::format("{}: {} {}{}, {} ({})", markdown_text(d.name), scaled_text(d.peak_flop_per_s, "FLOP/s"),
                               d.dtype, d.sparse ? " sparse" : "", scaled_text(d.peak_bytes_per_s, "B/s"),
                               markdown_text(d.peak_source.substr(0, d.peak_source.find(';')))));
    if (!p.run.convention.empty()) conventions.insert(p.run.convention);
  }
  for (const std::string& peak : peaks) text += "; peak of " + peak;
  for (const std::string& convention : conventions) text += "; FLOP counted: " + convention;
  text += "\n\n| region | instances | each | p50 | p99 | MFU | HFU | MBU | matmul | other | comm | copy | idle |\n";
  text += "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const JobRegion& region : job.regions) {
    const RegionSummary& r = region.sum();
    const bool latency = r.latency.count != 0;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |", markdown_text(region.name + origin(r)),
                        r.instances, duration_text(each_s(r)),
                        duration_text(latency ? std::optional(seconds(r.latency.p50_ns)) : std::nullopt),
                        duration_text(latency ? std::optional(seconds(r.latency.p99_ns)) : std::nullopt),
                        percent_text(r.mfu), percent_text(r.hfu), percent_text(r.mbu));
    const auto shares = r.lost ? r.lost : region.totals.weights.time_shares();
    for (std::size_t c = 0; c < kTimeClasses; ++c)
      text +=
          fmt::format(" {} |", percent_text(shares && r.classes_known ? std::optional((*shares)[c]) : std::nullopt));
    text += "\n";
  }
  text +=
      "\nThe last five columns are shares of the elapsed time; where MFU is known, `matmul` is what its kernels lost "
      "to the peak, and MFU and the five add up to 100 %.\n\n";
  for (const JobRegion& r : job.regions) {
    if (!r.words.empty()) text += fmt::format("- {}\n", markdown_text(r.words));
    if (!r.why_no_mfu.empty())
      text += fmt::format("- no MFU of {}: {}\n", markdown_text(r.name), markdown_text(r.why_no_mfu));
  }
  text += batches_markdown(job) + slowest_markdown(job);
  for (const JobRegion& region : job.regions) {
    const RegionSummary& r = region.sum();
    if (r.top_kernels.empty() || (region.name == "total" && job.regions.size() > 1)) continue;
    text += fmt::format(
        "\n## Kernels of {}\n\n| kernel | class | count | time | of its kernel time |\n|---|---|--:|--:|--:|\n",
        markdown_text(region.name));
    for (const TopKernel& k : r.top_kernels)
      text += fmt::format("| {} | {} | {} | {} | {} |\n", markdown_text(k.name), name(k.kernel_class), k.count,
                          duration_text(seconds(k.sum_ns)),
                          percent_text(r.kernel_sum_ns > 0 ? std::optional(static_cast<double>(k.sum_ns) /
                                                                           static_cast<double>(r.kernel_sum_ns))
                                                           : std::nullopt));
  }
  if (job.processes_without_account < job.processes.size()) {
    const LaunchAccount& l = job.launches;
    text += fmt::format("\nLaunches: {} = {} attributed + {} outside every region + {} unattributed + {} dropped\n",
                        l.seen, l.attributed, l.outside, l.unattributed, l.dropped);
  }
  if (!job.warnings.empty()) text += "\n## To know\n\n";
  for (const JobWarning& w : job.warnings)
    text += fmt::format("- {}: {}{}{}\n", markdown_text(w.kind), markdown_text(w.message),
                        w.source.empty() ? "" : " (" + markdown_text(file_name(w.source)) + ")",
                        w.count > 1 ? fmt::format(", {} times", w.count) : "");
  return text;
}

}  // namespace mfu

#include "tools/report/timelines.h"

#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>

#include "tools/trace/open_trace.h"
#include "tools/trace/trace_input.h"

namespace mfu {
namespace {

using Spans = std::vector<InstanceSpan>;

DurationNs total(const Spans& spans) {
  DurationNs sum = 0;
  for (const InstanceSpan& span : spans) sum += span.time.length_ns();
  return sum;
}

bool shorter(const InstanceSpan& a, const InstanceSpan& b) { return a.time.length_ns() < b.time.length_ns(); }

RegionTimelines draw(const Trace& trace, const std::string& region, const Spans& spans, const std::string& where) {
  RegionTimelines drawn;
  drawn.region = region;
  drawn.where = where;
  drawn.recording = trace.path;
  drawn.base_ns = trace.base_ns;
  drawn.instances_in_all = spans.size();
  Spans by_length = spans;
  std::stable_sort(by_length.begin(), by_length.end(), shorter);
  const InstanceSpan& median = by_length[by_length.size() / 2];
  drawn.median_ns = median.time.length_ns();
  drawn.slowest = draw_instance(trace, by_length.back());
  drawn.median = draw_instance(trace, median);
  // The longest stay in any case: they are what a reader looks for.
  constexpr std::size_t kLongest = 100;
  const DurationNs long_ones =
      by_length.size() > kLongest ? by_length[by_length.size() - kLongest].time.length_ns() : 0;
  const std::size_t every = (spans.size() + RegionTimelines::kMostInstances - 1) / RegionTimelines::kMostInstances;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (i % every == 0 || (every > 1 && spans[i].time.length_ns() > long_ones))
      drawn.instances.emplace_back(spans[i].time.begin_ns + trace.base_ns, spans[i].time.length_ns());
  return drawn;
}

}  // namespace

void Timelines::add(const Trace& trace, const InstanceCollector& collector, const std::vector<std::string>& where) {
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // process, device
  std::vector<std::pair<DurationNs, const std::string*>> order;
  for (const auto& [region, spans] : collector.regions())
    if (!spans.empty()) order.emplace_back(total(spans), &region);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (order.size() > kMostRegions) order.resize(kMostRegions);
  for (const auto& entry : order) {
    const std::string& region = *entry.second;
    const Spans& spans = collector.regions().at(region);
    const InstanceSpan& slowest = *std::max_element(spans.begin(), spans.end(), shorter);
    const auto known =
        std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.region == region; });
    if (known == regions_.end() && regions_.size() == kMostRegions) continue;
    if (known != regions_.end() && known->slowest.span.time.length_ns() >= slowest.time.length_ns()) continue;
    const Place place{slowest.process, slowest.device};
    Spans beside;
    for (const InstanceSpan& span : spans)
      if (Place{span.process, span.device} == place) beside.push_back(span);
    const std::string of = slowest.process < where.size() ? where[slowest.process] : "";
    RegionTimelines drawn =
        draw(trace, region, beside, fmt::format("{}{}gpu{}", of, of.empty() ? "" : " ", slowest.device));
    if (known != regions_.end())
      *known = std::move(drawn);
    else
      regions_.push_back(std::move(drawn));
  }
}

const std::vector<std::string>& Recordings::traces_in(const std::string& folder) {
  if (folder_ != folder) {
    Result<std::vector<std::string>> traces = list_traces(folder);
    traces_ = traces ? std::move(*traces) : std::vector<std::string>();
    std::ranges::sort(traces_);
    folder_ = folder;
  }
  return traces_;
}

std::string Recordings::of(const RunHistory& history) {
  constexpr std::string_view kBefore = " ranges are in ";
  namespace fs = std::filesystem;
  // As it was called then; or it was moved together with the run directory.
  const auto found = [&history](const fs::path& named) -> std::string {
    for (const fs::path& path : {named, fs::path(history.source).parent_path() / named.filename()}) {
      std::error_code failed;
      if (fs::is_regular_file(path, failed) && ::access(path.c_str(), R_OK) == 0) return path.string();
    }
    return "";
  };
  for (auto event = history.events.rbegin(); event != history.events.rend(); ++event) {
    const std::size_t at = event->kind == "trace" ? event->message.rfind(kBefore) : std::string::npos;
    if (at == std::string::npos) continue;
    if (std::string path = found(event->message.substr(at + kBefore.size())); !path.empty()) return path;
  }
  // At the end of a run the recording is written after the last line: no event names it.
  if (!history.run.trace.empty())
    if (std::string path = found(history.run.trace); !path.empty()) return path;
  const fs::path own(history.source);
  const std::vector<std::string>& traces = traces_in(own.parent_path().string());
  const std::string named_alike = (own.parent_path() / own.stem()).string() + ".";
  const auto at = std::ranges::lower_bound(traces, named_alike);
  if (at != traces.end() && at->starts_with(named_alike)) return *at;
  return traces.size() == 1 && history.run.world_size <= 1 ? traces.front() : "";
}

Result<void> add_recording(Timelines& timelines, const std::string& recording, const RunHistory& history) {
  const Result<Trace> trace = open_trace_with_bar(recording);
  if (!trace) return trace.error();
  // A path that a later run wrote to again.
  if (trace->recording && trace->recording->pid != 0 && trace->recording->pid != history.run.pid)
    return Error{fmt::format("{}: recorded by process {}, not by {} of {}: its timelines are left out", recording,
                             trace->recording->pid, history.run.pid, history.source)};
  InstanceCollector collector;
  (void)trace_regions(*trace, recording_config(history.run.config_json), {.observer = &collector});
  timelines.add(*trace, collector,
                std::vector<std::string>(trace->processes.size(), fmt::format("rank {}", history.run.rank)));
  return {};
}

}  // namespace mfu

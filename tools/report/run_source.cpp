#include "tools/report/run_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "tools/replay/late_count.h"
#include "tools/replay/process_replay.h"
#include "tools/run_dir/run_file.h"
#include "tools/run_dir/run_processes.h"
#include "tools/trace/open_trace.h"

namespace mfu {
namespace {

/// 1, 2 or 5 times a power of ten, not below `s`.
double round_up(double s) {
  const double decade = std::pow(10, std::floor(std::log10(s)));
  for (const double step : {1.0, 2.0, 5.0})
    if (s <= step * decade * (1 + 1e-9)) return step * decade;
  return 10 * decade;
}

/// Seconds per window that show how a trace went: about fifty, none shorter than the longest instance, since FLOP are
/// known when an instance is over.
std::optional<double> fitting_interval(const std::vector<ProcessRegions>& processes, double interval_s) {
  DurationNs span_ns = 0, longest_ns = 0;
  for (const ProcessRegions& process : processes) {
    span_ns = std::max(span_ns, process.whole.window.length_ns());
    for (const RegionSummary& region : process.whole.regions) longest_ns = std::max(longest_ns, region.latency.max_ns);
  }
  constexpr double kWindows = 50;
  constexpr double kShortest = 1e-3;
  if (span_ns <= 0 || seconds(span_ns) >= kWindows / 5 * interval_s) return std::nullopt;
  const double fitting = round_up(std::max({seconds(span_ns) / kWindows, seconds(longest_ns), kShortest}));
  return fitting < interval_s ? std::optional(fitting) : std::nullopt;
}

Result<void> for_each_run(const RunSource& source, const std::function<Result<void>(RunHistory&&)>& each,
                          const OnRemark& remark) {
  const Result<std::vector<std::string>> files = list_run_files(source.path);
  if (!files) return files.error();
  std::optional<Error> first_error;
  std::size_t used = 0, recordings = 0;
  Recordings recorded;
  const auto failed = [&](const std::string& message) {
    remark(message);
    if (!first_error) first_error = Error{message};
  };
  std::vector<std::string> failures;
  const std::vector<RunProcess> processes = find_processes(*files, failures);
  std::optional<Config> config;
  if (!source.work.config.empty()) {
    Result<Config> read = trace_config(source.work);
    if (!read) return read.error();
    config = std::move(*read);
  }
  const bool one_file = files->size() == 1 && files->front() == source.path;
  if (one_file && !failures.empty()) return Error{failures.front()};
  for (const std::string& failure : failures) failed(failure);
  for (const RunProcess& process : processes) {
    Result<RunHistory> history = read_process(process);
    if (!history) {
      if (one_file && processes.size() == 1) return history.error();
      failed(history.error().message);
      continue;
    }
    ++used;
    if (config)
      if (const auto counted = count_late(*config, *history); !counted) return counted.error();
    // Each is read whole: of a large job a few must do.
    constexpr std::size_t kMostRecordings = 8;
    if (const std::string recording =
            source.timelines != nullptr && recordings < kMostRecordings ? recorded.of(*history) : "";
        !recording.empty() && ++recordings != 0)
      if (const auto added = add_recording(*source.timelines, recording, *history); !added)
        remark(added.error().message);
    if (auto done = each(std::move(*history)); !done) return done;
  }
  if (used != 0) return {};
  return Error{fmt::format("{}: no file of a run in it can be used{}", source.path,
                           first_error ? "; " + first_error->message : "")};
}

Result<void> for_each_trace(const RunSource& source, const std::function<Result<void>(RunHistory&&)>& each,
                            const OnRemark& remark) {
  const Result<std::vector<std::string>> files = list_traces(source.path);
  if (!files) return files.error();
  Result<Config> config = trace_config(source.work);
  if (!config) return config.error();
  for (const std::string& warning : config->warnings) remark(warning);
  const bool choose_interval = source.work.interval.empty() && std::getenv("MFU_INTERVAL") == nullptr;
  std::optional<Error> first_error;
  std::size_t used = 0;
  for (const std::string& file : *files) {
    const Result<Trace> trace = open_trace_with_bar(file);
    if (!trace) {
      if (file == source.path) return trace.error();
      remark(trace.error().message);
      if (!first_error) first_error = trace.error();
      continue;
    }
    InstanceCollector collector;
    const RegionsOptions options{.observer = source.timelines != nullptr ? &collector : nullptr};
    std::vector<ProcessRegions> processes = trace_regions(*trace, *config, options);
    if (const auto interval_s = fitting_interval(processes, config->interval_s); choose_interval && interval_s) {
      Config fitting = *config;
      fitting.interval_s = *interval_s;
      processes = trace_regions(*trace, fitting);
    }
    if (source.timelines != nullptr) {
      std::vector<std::string> where;
      for (std::size_t p = 0; p < trace->processes.size(); ++p)
        where.push_back(trace->rank                   ? fmt::format("rank {}", *trace->rank)
                        : trace->processes.size() > 1 ? "process " + trace->processes[p].name
                                                      : "");
      source.timelines->add(*trace, collector, where);
    }
    for (ProcessRegions& process : processes) {
      if (process.whole.regions.empty()) continue;
      ++used;
      RunHistory history;
      history.source = trace->processes.size() == 1 ? file : fmt::format("{} process {}", file, process.process);
      history.run = std::move(process.run);
      history.run.pid = std::atoll(process.process.c_str());
      history.windows = std::move(process.windows);
      history.end = std::move(process.whole);
      const auto note = [&history](const TraceNotes& notes) {
        for (const auto& [name, count] : notes) {
          std::string words = name;
          std::replace(words.begin(), words.end(), '_', ' ');
          history.oddities.push_back(fmt::format("{}: {}", words, count));
        }
      };
      note(trace->notes);
      for (const TraceProcess& p : trace->processes)
        if (p.name == process.process) note(p.notes);
      if (auto done = each(std::move(history)); !done) return done;
    }
  }
  if (used != 0) return {};
  return Error{
      fmt::format("{}: {}", source.path,
                  first_error ? first_error->message : "no GPU activity and no region in it: nothing to report")};
}

}  // namespace

Result<void> count_late(const Config& config, RunHistory& history) {
  LateCount late(config);
  if (!late.start(history.run))
    return Error{history.source + ": was counted with its config; --config is for traces, and for runs that had none"};
  for (WindowSummary& window : history.windows)
    for (RegionSummary& row : window.regions) late.count(row);
  if (history.end)
    for (RegionSummary& row : history.end->regions) late.count(row, true);
  history.oddities.push_back(
      fmt::format("FLOP were counted after the run, by {}{}", config.model_source,
                  late.missing().empty() ? "" : "; only a bound of MFU, for a shape lacks " + late.missing()));
  return {};
}

Result<SourceKind> kind_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (!fs::exists(status))
    return Error{fmt::format(
        "{}: {}", path,
        failed && failed != std::errc::no_such_file_or_directory ? failed.message() : "no such file or directory")};
  if (!fs::is_directory(status))
    return fs::path(path).extension() == ".jsonl" ? SourceKind::kRunDirectory : SourceKind::kTraces;
  const Result<std::vector<std::string>> files = list_run_files(path);
  if (!files) return files.error();
  if (!files->empty()) return SourceKind::kRunDirectory;
  if (list_traces(path)) return SourceKind::kTraces;
  return Error{fmt::format(
      "{}: holds neither files of a run (*.jsonl) nor traces (.json, .json.gz, .sqlite, .sqlite.gz)", path)};
}

Result<void> for_each_process(const RunSource& source, const std::function<Result<void>(RunHistory&&)>& each,
                              const OnRemark& remark) {
  const Result<SourceKind> kind = kind_of(source.path);
  if (!kind) return kind.error();
  return *kind == SourceKind::kRunDirectory ? for_each_run(source, each, remark) : for_each_trace(source, each, remark);
}

}  // namespace mfu

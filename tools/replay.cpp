// `mfu replay TRACE...`: reads stored traces and says what their ranges cost on the GPU.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/sink_jsonl.h"
#include "core/sink_text.h"
#include "tools/commands.h"
#include "tools/trace/open_trace.h"
#include "tools/trace/trace_detect.h"
#include "tools/trace/trace_figures.h"
#include "tools/trace/trace_regions.h"

namespace mfu {
namespace {

struct ReplayOptions {
  std::vector<std::string> paths;
  bool json = false, detect = false;
  std::string config, run_dir, interval;
};

/// A bar on stderr while a file is read, when a person looks at it and the file is large enough to wait for.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)), shown_(::isatty(STDERR_FILENO) == 1) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() {
    if (percent_ >= 0) std::fputs("\r\033[K", stderr);
  }
  void update(std::uint64_t done, std::uint64_t total) {
    constexpr std::uint64_t kWorthABar = 8u << 20u;  // smaller files are read before the eye sees it
    if (!shown_ || total < kWorthABar) return;
    const int percent = static_cast<int>(std::min<std::uint64_t>(100, done * 100 / total));
    if (percent == percent_) return;
    percent_ = percent;
    constexpr int kWidth = 30;
    const int filled = percent * kWidth / 100;
    fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {:3} % of {:.1f} MB  {}", "", filled, "", kWidth - filled, percent,
               static_cast<double>(total) / 1e6, label_);
    std::fflush(stderr);
  }

 private:
  std::string label_;
  bool shown_;
  int percent_ = -1;
};

std::string ms(DurationNs ns) { return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6); }

std::string percent(DurationNs part, DurationNs whole) {
  return whole <= 0 ? "-" : fmt::format("{:.1f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// At most `width` bytes of a name, cut in the middle, where names of one family are alike. Never inside a UTF-8
/// sequence.
std::string shortened(std::string_view name, std::size_t width) {
  if (name.size() <= width) return std::string(name);
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80; };
  std::size_t head = width / 2;
  std::size_t tail = name.size() - (width - 2 - head);
  while (head > 0 && continues(head)) --head;
  while (tail < name.size() && continues(tail)) ++tail;
  return fmt::format("{}..{}", name.substr(0, head), name.substr(tail));
}

void print_process(const ProcessFigures& f) {
  const SetFigures& t = f.totals;
  fmt::print(
      "process {}: {} device{}, {} kernels, {} copies, {} sets; span {} ms, busy {} ms ({} %), kernel sum {} ms\n",
      f.process, f.devices, f.devices == 1 ? "" : "s", t[Figure::kKernels], t[Figure::kMemcpyOps],
      t[Figure::kMemsetOps], ms(t[Figure::kSpan]), ms(t[Figure::kGpuBusy]),
      percent(t[Figure::kGpuBusy], t[Figure::kSpan]), ms(t[Figure::kKernelSum]));
  if (t[Figure::kNcclKernels] > 0) {
    fmt::print("  communication: {} kernels, busy {} ms, exposed {} ms\n", t[Figure::kNcclKernels],
               ms(t[Figure::kNcclBusy]), ms(t[Figure::kNcclExposed]));
  }
  fmt::print("  launches: {} host calls; {} operations with a launch, {} without ({} ms)", f.launches.host_calls,
             f.launches.gpu_ops_with_launch, f.launches.gpu_ops_without_launch,
             ms(f.launches.gpu_ops_without_launch_sum_ns));
  if (f.launches.graph_launches > 0) {
    fmt::print("; {} graph launches with {} operations", f.launches.graph_launches, f.launches.gpu_ops_from_graphs);
  }
  fmt::print("\n  in no range: {} operations by thread, {} by process\n", f.unattributed.by_thread_gpu_ops,
             f.unattributed.by_process_gpu_ops);
  for (const auto& [name, count] : f.notes) fmt::print("  note: {} {}\n", name, count);
  if (f.ranges.empty()) return;

  std::vector<const RangeFigures*> ranges;
  for (const RangeFigures& range : f.ranges) ranges.push_back(&range);
  std::stable_sort(ranges.begin(), ranges.end(), [](const RangeFigures* a, const RangeFigures* b) {
    return a->by_process[Figure::kGpuBusy] > b->by_process[Figure::kGpuBusy];
  });
  constexpr std::size_t kRows = 30;
  constexpr std::size_t kNameWidth = 44;
  fmt::print("  {:<{}} {:>7} {:>11} {:>11} {:>11} {:>9} {:>11} {:>7}\n", "range (times in ms)", kNameWidth, "count",
             "wall", "busy/thread", "busy/proc.", "kernels", "exp. comm", "GPU %");
  for (std::size_t i = 0; i < std::min(kRows, ranges.size()); ++i) {
    const RangeFigures& r = *ranges[i];
    fmt::print("  {:<{}} {:>7} {:>11} {:>11} {:>11} {:>9} {:>11} {:>7}\n", shortened(r.name, kNameWidth), kNameWidth,
               r.instances, ms(r.wall_ns), ms(r.by_thread[Figure::kGpuBusy]), ms(r.by_process[Figure::kGpuBusy]),
               r.by_process[Figure::kKernels], ms(r.by_process[Figure::kNcclExposed]),
               percent(r.window_busy_ns, r.window_busy_ns + r.window_idle_ns));
  }
  if (ranges.size() > kRows) fmt::print("  ... and {} more (--json has all)\n", ranges.size() - kRows);
}

void print_report(const TraceReport& report) {
  fmt::print("{}: {}", report.facts.path,
             report.facts.format == TraceFormat::kKineto ? "Kineto trace" : "Nsight Systems export");
  if (report.facts.rank) fmt::print(", rank {}", *report.facts.rank);
  if (report.facts.world_size) fmt::print(" of {}", *report.facts.world_size);
  for (const std::string& name : report.facts.gpu_names) fmt::print(", {}", name);
  fmt::print("\n");
  for (const auto& [name, count] : report.facts.notes) fmt::print("  note: {} {}\n", name, count);
  for (const ProcessFigures& process : report.processes) print_process(process);
}

/// The regions of one trace, as a table.
void print_regions(const std::vector<ProcessRegions>& processes) {
  for (const ProcessRegions& process : processes) {
    if (process.whole.regions.empty()) continue;
    fmt::print("process {}", process.process);
    for (const DeviceInfo& device : process.run.devices) {
      if (device.peak_flop_per_s)
        fmt::print("; gpu{} {}: {} peak {:.4g} TFLOP/s ({}), dtype by {}", device.device, device.name, device.dtype,
                   *device.peak_flop_per_s / 1e12, device.peak_source.substr(0, device.peak_source.find(';')),
                   device.dtype_source);
      else
        fmt::print("; gpu{} {}: peak unknown, set MFU_PEAK_TFLOPS", device.device, device.name);
    }
    fmt::print("{}{}\n", process.run.convention.empty() ? "" : "; FLOP counted: ", process.run.convention);
    fmt::print("{}\n", region_table(process.whole));
  }
}

/// The same lines that a live run writes, one file per process of the trace.
Result<void> write_run_directory(const std::string& directory, const std::vector<ProcessRegions>& processes) {
  for (const ProcessRegions& process : processes) {
    if (process.whole.regions.empty()) continue;
    RunInfo run = process.run;
    run.host = "replay";
    run.pid = std::atoll(process.process.c_str());
    JsonlSink sink(directory, run);
    if (auto done = sink.start(run); !done) return done;
    for (const WindowSummary& window : process.windows)
      if (auto done = sink.write(window); !done) return done;
    if (auto done = sink.write(process.whole); !done) return done;
  }
  return {};
}

/// Exit code: 0, or 1 when a trace could not be used. A file that was named ends it all; one of a folder is reported,
/// and the others are still worked out.
int replay(const ReplayOptions& options) {
  std::vector<TraceReport> reports;
  std::vector<std::vector<ProcessRegions>> regions;
  std::vector<std::vector<DetectedSteps>> detected;
  int code = 0;
  const auto environment = [&options](const char* name) -> const char* {
    if (!options.interval.empty() && std::string_view(name) == "MFU_INTERVAL") return options.interval.c_str();
    if (std::string_view(name) == "MFU_MODEL_CONFIG") return nullptr;  // --config says it
    return ::getenv(name);
  };
  Config config = load_config(environment, nullptr);
  if (!options.config.empty()) {
    Result<Config> given = load_config_file(options.config, environment);
    if (!given) {
      fmt::print(stderr, "mfu replay: {}\n", given.error().message);
      return 1;
    }
    config = std::move(given).value();
  }
  for (const std::string& warning : config.warnings) fmt::print(stderr, "mfu replay: {}\n", warning);
  for (const std::string& path : options.paths) {
    const Result<std::vector<std::string>> files = list_traces(path);
    if (!files) {
      fmt::print(stderr, "mfu replay: {}\n", files.error().message);
      return 1;
    }
    for (const std::string& file : files.value()) {
      Result<Trace> trace = [&] {
        ProgressBar bar(file);
        return open_trace(file, [&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); });
      }();
      if (!trace) {
        fmt::print(stderr, "mfu replay: {}\n", trace.error().message);
        code = 1;
        if (file == path) return code;
        continue;
      }
      reports.push_back(make_report(trace.value()));
      regions.push_back(trace_regions(trace.value(), config));
      if (options.detect) detected.push_back(detect_steps(trace.value()));
      if (!options.run_dir.empty()) {
        if (const auto done = write_run_directory(options.run_dir, regions.back()); !done) {
          fmt::print(stderr, "mfu replay: {}\n", done.error().message);
          return 1;
        }
      }
    }
  }
  if (reports.empty()) return code;
  if (options.json) {
    std::vector<ProcessRegions> all;
    for (auto& of_trace : regions) std::move(of_trace.begin(), of_trace.end(), std::back_inserter(all));
    std::vector<std::pair<std::string, std::string>> more{{"regions", regions_json(all)}};
    if (options.detect) {
      std::vector<DetectedSteps> steps;
      for (auto& of_trace : detected) std::move(of_trace.begin(), of_trace.end(), std::back_inserter(steps));
      more.emplace_back("detected", detected_json(steps));
    }
    fmt::print("{}\n", report_json(reports, more));
  } else {
    for (std::size_t i = 0; i < reports.size(); ++i) {
      print_report(reports[i]);
      print_regions(regions[i]);
      if (options.detect) fmt::print("{}", detected_text(detected[i]));
    }
  }
  return code;
}

}  // namespace

void add_replay(CLI::App& app) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command = app.add_subcommand("replay", "figures of stored Kineto and Nsight Systems traces");
  command->add_option("trace", options->paths, "trace files, or folders of them (.json, .json.gz, .sqlite, .sqlite.gz)")
      ->required();
  command->add_flag("--json", options->json, "print everything as JSON");
  command->add_flag("--detect", options->detect,
                    "find training steps and serving iterations in the launches alone, without ranges");
  command->add_option("-c,--config", options->config,
                      "model, for MFU: HF config.json, its folder, a model id, or an own config");
  command->add_option("--run-dir", options->run_dir, "write the windows there as a live run does");
  command->add_option("-i,--interval", options->interval, "seconds per window; default: 10");
  command->callback([options] {
    if (const int code = replay(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace mfu

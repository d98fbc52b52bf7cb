// `mfu replay TRACE...`: reads stored traces and says what their ranges cost on the GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "core/base/regex.h"
#include "core/base/say.h"
#include "core/config/config.h"
#include "core/model/kernel_flop.h"
#include "core/peak/peak.h"
#include "core/sinks/sink_jsonl.h"
#include "core/sinks/sink_text.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/commands/replay_counters.h"
#include "tools/replay/process_replay.h"
#include "tools/replay/trace_detect.h"
#include "tools/replay/trace_figures.h"
#include "tools/replay/trace_query.h"
#include "tools/trace/open_trace.h"

namespace mfu {
namespace {

struct ReplayOptions {
  std::vector<std::string> paths;
  bool json = false, detect = false, explain = false, partial = false;
  std::string gpu;
  WorkOptions work;
  std::string run_dir;
  std::string match = "contains", phase, kernel_per = "launch";
  TraceQuery query;  ///< neither range nor kernel: none
  [[nodiscard]] bool asks() const { return !query.range.empty() || !query.kernel.empty(); }
};

/// What is worked out of one trace.
struct Replayed {
  TraceReport report;
  std::vector<ProcessRegions> regions;
  QueryAnswers answers;
  std::vector<DetectedSteps> detected;
};

std::string ms(DurationNs ns) { return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6); }

std::string percent(DurationNs part, DurationNs whole) {
  return whole <= 0 ? "-" : fmt::format("{:.1f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// At most `width` bytes of a name out of a trace, cut in the middle, where names of one family are alike. Never inside
/// a UTF-8 sequence.
std::string shortened(std::string_view raw, std::size_t width) {
  std::string name = printable(raw);
  if (name.size() <= width) return name;
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80; };
  std::size_t head = width / 2;
  std::size_t tail = name.size() - (width - 2 - head);
  while (head > 0 && continues(head)) --head;
  while (tail < name.size() && continues(tail)) ++tail;
  return name.substr(0, head) + ".." + name.substr(tail);
}

/// Work on the GPUs of a process, and the calls that launched it.
void print_device_work(const ProcessFigures& f) {
  const SetFigures& t = f.totals;
  if (t[Figure::kKernels] + t[Figure::kMemcpyOps] + t[Figure::kMemsetOps] == 0) {
    std::uint64_t unusable = 0;
    for (const char* note : {"events_with_unusable_time", "rows_with_unusable_time"})
      if (const auto at = f.notes.find(note); at != f.notes.end()) unusable += at->second;
    if (unusable > 0) {
      say("process {}: no GPU activity that can be used: {} events have a time that is none\n", f.process, unusable);
      return;
    }
    if (f.launches.kernel_launches > 0)
      say("process {}: no GPU activity in it, though it launched {} kernels: the profiler dropped their records, as it "
          "does "
          "with those before its window; record several steps, the first ones as its warmup\n",
          f.process, f.launches.kernel_launches);
    else
      say("process {}: no GPU activity in it: record with ProfilerActivity.CUDA, or nsys profile --trace=cuda,nvtx\n",
          f.process);
    return;
  }
  say("process {}: {} device{}, {} kernels, {} copies, {} sets; span {} ms, busy {} ms ({} %), kernel sum {} ms\n",
      f.process, f.devices, f.devices == 1 ? "" : "s", t[Figure::kKernels], t[Figure::kMemcpyOps],
      t[Figure::kMemsetOps], ms(t[Figure::kSpan]), ms(t[Figure::kGpuBusy]),
      percent(t[Figure::kGpuBusy], t[Figure::kSpan]), ms(t[Figure::kKernelSum]));
  if (t[Figure::kNcclKernels] > 0) {
    say("  communication: {} kernels, busy {} ms, exposed {} ms\n", t[Figure::kNcclKernels], ms(t[Figure::kNcclBusy]),
        ms(t[Figure::kNcclExposed]));
  }
  say("  launches: {} host calls; {} operations with a launch, {} without ({} ms)", f.launches.host_calls,
      f.launches.gpu_ops_with_launch, f.launches.gpu_ops_without_launch, ms(f.launches.gpu_ops_without_launch_sum_ns));
  if (f.launches.graph_launches > 0) {
    say("; {} graph launches with {} operations", f.launches.graph_launches, f.launches.gpu_ops_from_graphs);
  }
  say("\n  in no range: {} operations by thread, {} by process\n", f.unattributed.by_thread_gpu_ops,
      f.unattributed.by_process_gpu_ops);
}

void print_process(const ProcessFigures& f) {
  print_device_work(f);
  for (const auto& [name, count] : f.notes) say("  note: {} {}\n", name, count);
  if (f.ranges.empty()) return;

  std::vector<const RangeFigures*> ranges;
  for (const RangeFigures& range : f.ranges) ranges.push_back(&range);
  std::stable_sort(ranges.begin(), ranges.end(), [](const RangeFigures* a, const RangeFigures* b) {
    return a->by_process[Figure::kGpuBusy] > b->by_process[Figure::kGpuBusy];
  });
  constexpr std::size_t kRows = 30;
  constexpr std::size_t kNameWidth = 44;
  say("  {:<{}} {:>7} {:>11} {:>11} {:>11} {:>9} {:>11} {:>7}\n", "range (times in ms)", kNameWidth, "count", "wall",
      "busy/thread", "busy/proc.", "kernels", "exp. comm", "GPU %");
  for (std::size_t i = 0; i < std::min(kRows, ranges.size()); ++i) {
    const RangeFigures& r = *ranges[i];
    say("  {:<{}} {:>7} {:>11} {:>11} {:>11} {:>9} {:>11} {:>7}\n", shortened(r.name, kNameWidth), kNameWidth,
        r.instances, ms(r.wall_ns), ms(r.by_thread[Figure::kGpuBusy]), ms(r.by_process[Figure::kGpuBusy]),
        r.by_process[Figure::kKernels], ms(r.by_process[Figure::kNcclExposed]),
        percent(r.window_busy_ns, r.window_busy_ns + r.window_idle_ns));
  }
  if (ranges.size() > kRows) say("  ... and {} more (--json has all)\n", ranges.size() - kRows);
  say("  busy/thread: work that the range's own thread launched; busy/proc.: that any thread launched meanwhile;\n"
      "  exp. comm: communication with no other kernel beside it; GPU %: of the range's time, in which anything ran\n");
}

void print_report(const TraceReport& report) {
  say("{}: {}", report.facts.path,
      report.facts.format == TraceFormat::kKineto ? "Kineto trace" : "Nsight Systems export");
  if (report.facts.rank) say(", rank {}", *report.facts.rank);
  if (report.facts.world_size) say(" of {}", *report.facts.world_size);
  for (const std::string& name : report.facts.gpu_names) say(", {}", name);
  say("\n");
  for (const auto& [name, count] : report.facts.notes) say("  note: {} {}\n", name, count);
  for (const ProcessFigures& process : report.processes) print_process(process);
}

/// The regions of one trace, as a table.
void print_regions(const std::vector<ProcessRegions>& processes) {
  for (const ProcessRegions& process : processes) {
    for (const std::string& note : process.notes) say("process {}: note: {}\n", process.process, note);
    if (process.whole.regions.empty()) continue;
    say("process {}", process.process);
    for (const DeviceInfo& device : process.run.devices) {
      if (device.peak_flop_per_s)
        say("; gpu{} {}: {} peak {:.4g} TFLOP/s ({}), dtype {}{}", device.device, device.name, device.dtype,
            *device.peak_flop_per_s / 1e12, device.peak_source.substr(0, device.peak_source.find(';')),
            device.dtype_source == "assumed" ? "" : "from the ", device.dtype_source);
      else
        say("; gpu{}{}{}: peak unknown, set MFU_PEAK_TFLOPS", device.device, device.name.empty() ? "" : " ",
            device.name);
    }
    say("{}{}\n", process.run.convention.empty() ? "" : "; FLOP counted: ", process.run.convention);
    say("{}\n", Lines{region_table(process.whole)});
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

/// Figures and regions side by side, then what was asked.
Result<Replayed> work_out(const Trace& trace, const Config& config, const ReplayOptions& options) {
  Replayed out;
  const RegionsOptions regions_options{.detect = options.detect};
  std::future<std::vector<ProcessRegions>> regions;
  try {
    regions = std::async(std::launch::async, [&] { return trace_regions(trace, config, regions_options); });
  } catch (const std::system_error&) {
    // No thread to be had: one after the other.
  }
  out.report = make_report(trace);
  if (options.detect) out.detected = detect_steps(trace, options.explain);
  out.regions = regions.valid() ? regions.get() : trace_regions(trace, config, regions_options);
  if (options.asks()) {
    Result<QueryAnswers> answers = answer_query(trace, config, options.query);
    if (!answers) return answers.error();
    out.answers = std::move(answers).value();
  }
  return out;
}

void print_json(std::vector<Replayed>& traces, const ReplayOptions& options) {
  std::vector<TraceReport> reports;
  std::vector<ProcessRegions> regions;
  std::vector<DetectedSteps> detected;
  std::map<std::string, std::vector<std::string>> answers;
  for (Replayed& trace : traces) {
    reports.push_back(std::move(trace.report));
    std::move(trace.regions.begin(), trace.regions.end(), std::back_inserter(regions));
    std::move(trace.detected.begin(), trace.detected.end(), std::back_inserter(detected));
    for (auto& [key, json] : query_json(options.query, trace.answers)) answers[key].push_back(std::move(json));
  }
  std::vector<std::pair<std::string, std::string>> more{{"regions", regions_json(regions)}};
  if (options.detect) more.emplace_back("detected", detected_json(detected));
  for (const auto& [key, list] : answers) {
    // Of several traces a list, in their order.
    more.emplace_back(key, list.size() == 1 ? list.front() : fmt::format("[{}]", fmt::join(list, ",")));
  }
  say("{}\n", Lines{report_json(reports, more)});
}

void print_text(const Replayed& trace, const ReplayOptions& options) {
  if (options.asks()) {
    say("{}\n{}", trace.report.facts.path, Lines{query_text(options.query, trace.answers)});
    return;
  }
  print_report(trace.report);
  print_regions(trace.regions);
  if (options.detect) say("{}", Lines{detected_text(trace.detected)});
}

/// A trace that lacks records: what is overstated, on the error output. \return whether it ends in the middle.
bool say_if_cut(const TraceReport& report) {
  std::uint64_t calls = 0, without = 0;
  std::int64_t kernels = 0, unseen = 0;
  bool cut = false;
  for (const auto& [name, count] : report.facts.notes) cut = cut || name == "cut_off";
  for (const ProcessFigures& process : report.processes) {
    for (const auto& [name, count] : process.notes) cut = cut || name == "cut_off";
    const auto launches = static_cast<std::uint64_t>(process.launches.host_calls);
    const auto found = static_cast<std::uint64_t>(process.launches.gpu_ops_with_launch);
    calls += launches;
    kernels += process.launches.kernel_launches;
    unseen += process.launches.kernel_launches_unseen;
    without += launches > found ? launches - found : 0;
  }
  constexpr std::int64_t kFew = 100;  // at the ends of a profile some work lies outside
  if (!cut && kFew * unseen > kernels)
    say(stderr,
        "mfu replay: {}: {} of {} kernel launches have no record of their work (the profiler lost them, or they lie "
        "outside the profile); idle is overstated\n",
        report.facts.path, unseen, kernels);
  if (!cut) return false;
  say(stderr, "mfu replay: {} ends in the middle: {}idle is overstated, and what came later is missing\n",
      report.facts.path,
      calls != 0 ? fmt::format("of {} launches {} have no record of their work; ", calls, without) : "");
  return true;
}

/// The device that --gpu names instead of what the trace says.
void name_device(const std::string& gpu, Trace& trace) {
  for (TraceDevice& device : trace.devices) {
    device.facts = DeviceFacts{};
    device.facts.name = gpu;
  }
  trace.gpu_names = {gpu};
}

int fail(const Error& error, int code = 1) { return say_error("replay", error.message, code); }

/// Mistakes in the words alone. The values of single options were checked before.
Result<void> check_words(const ReplayOptions& options) {
  const TraceQuery& q = options.query;
  const bool asks = options.asks();
  for (const auto& [option, given] : {std::pair{"--nth", q.nth.has_value()},
                                      {"--device", q.device.has_value()},
                                      {"--flop", q.flop.has_value()},
                                      {"--gpus", q.gpus.has_value()},
                                      {"--phase", !options.phase.empty()}})
    if (given && !asks) return Error{std::string(option) + ": expected --range or --kernel beside it"};
  const bool gemm = q.kernel_kind == "gemm";
  if (gemm && (!q.m || !q.n || !q.k)) return Error{"--kernel-kind gemm: expected --m, --n and --k"};
  if (!gemm && (q.m || q.n || q.k)) return Error{"--m, --n, --k: expected --kernel-kind gemm beside them"};
  if (q.per_pass && q.range.empty())
    return Error{"--kernel-per pass: expected --range: its occurrences are the passes"};
  if (!q.kernel_kind.empty() && !gemm && options.work.config.empty())
    return Error{"--kernel-kind " + q.kernel_kind + ": expected a model: name it with --config"};
  if (!q.kernel.empty())
    if (const auto pattern = NamePattern::compile(q.kernel); !pattern)
      return Error{"--kernel: " + pattern.error().message};
  if (!options.gpu.empty() && !options.work.peak_tflops) {
    const Result<Peak> peak = find_peak_of_name(options.gpu, DType::kBf16, {});
    if (!peak) return Error{"--gpu: " + peak.error().message + "; or give --peak-tflops"};
  }
  if (const std::string wrong = wrong_work_options(options.paths, options.work); !wrong.empty()) return Error{wrong};
  return {};
}

/// Exit code: 0, or 1 when a trace could not be used. A file that was named ends it all; one of a folder is reported,
/// and the others are still worked out.
int replay(const ReplayOptions& options) {
  if (are_counters(options.paths)) {
    PeakOptions peak;
    peak.tflops = options.work.peak_tflops;
    peak.gbps = options.work.peak_gbps;
    return replay_counters(options.paths, options.gpu, peak, options.json);
  }
  std::vector<Replayed> traces;
  int code = 0;
  Result<Config> config = trace_config(options.work);
  if (!config) return fail(config.error());
  for (const std::string& warning : config->warnings) say_error("replay", warning);
  for (const std::string& path : options.paths) {
    const Result<std::vector<std::string>> files = list_traces(path);
    if (!files) return fail(files.error());
    for (const std::string& file : files.value()) {
      Result<Trace> trace = open_trace_with_bar(file);
      if (!trace) {
        code = fail(trace.error());
        if (file == path) return code;
        continue;
      }
      if (!options.gpu.empty()) name_device(options.gpu, *trace);
      Result<Replayed> replayed = work_out(*trace, *config, options);
      if (!replayed) {
        code = fail(Error{file + ": " + replayed.error().message});
        if (file == path) return code;
        continue;
      }
      traces.push_back(std::move(replayed).value());
      if (say_if_cut(traces.back().report) && !options.partial) code = 1;
      if (!options.run_dir.empty()) {
        if (const auto done = write_run_directory(options.run_dir, traces.back().regions); !done)
          return fail(done.error());
      }
    }
  }
  if (traces.empty()) return code;
  if (options.json)
    print_json(traces, options);
  else
    for (const Replayed& trace : traces) print_text(trace, options);
  return code;
}

}  // namespace

void add_replay(CommandLine& line) {
  auto options = std::make_shared<ReplayOptions>();
  Command command = line.command("replay", "Figures of stored Kineto and Nsight Systems traces");
  command.option(
      "trace", options->paths,
      "trace files, or folders of them (.json, .json.gz, .sqlite, .sqlite.gz); or .csv files of ncu and nsys stats",
      {.required = true});
  command.flag("--json", options->json, "print everything as JSON");
  command.flag("--detect", options->detect,
               "find training steps and serving iterations in the launches alone, whatever the ranges say");
  command.flag("--explain", options->explain,
               "with --detect: what was considered as a step, and why it was taken or refused, by number of launch",
               {.needs = {"--detect"}});
  add_work_options(command, options->work);
  command.option("--gpu", options->gpu, "the device that ran it, whatever the trace says", {.type = "GPU"});
  command.flag("--partial", options->partial, "exit 0 for a trace that ends in the middle");
  command.option("--run-dir", options->run_dir, "write the windows there as a live run does", {.type = "DIR"});
  constexpr double kMostFlop = 1e30;
  TraceQuery& query = options->query;
  command.option("--range", query.range, "MFU of the ranges whose name contains this");
  command.option("--match", options->match, "how --range compares names; default: contains",
                 {.one_of = {"contains", "exact"}, .needs = {"--range"}});
  command.option("--nth", query.nth, "the n-th occurrence only, from 1; without --range the n-th launch",
                 {.between = kFromOne});
  command.option("--device", query.device, "on this device only", {.between = {0, 0xFFFFFFFFU}});
  command.option("--phase", options->phase, "what the range does; default: as its name says",
                 {.one_of = {"train", "prefill", "decode"}});
  command.option("--flop", query.flop, "FLOP of one occurrence of --range, or of one launch of --kernel",
                 {.between = {0.0, kMostFlop}});
  command.option("--gpus", query.gpus, "GPUs that share these FLOP; default: those that took part",
                 {.between = {1, 1 << 24}});
  command.option("--kernel", query.kernel, "MFU of the kernels whose name this regular expression finds");
  command.option("--kernel-kind", query.kernel_kind, "what they compute; with --config their FLOP",
                 {.one_of = {kKernelKinds.begin(), kKernelKinds.end()}, .needs = {"--kernel"}});
  command.option("--kernel-per", options->kernel_per,
                 "a launch is one layer's work, or an occurrence of --range is a pass; default: launch",
                 {.one_of = {"launch", "pass"}, .needs = {"--kernel"}});
  command.option("--m", query.m, "rows of the GEMM", {.between = kFromOne});
  command.option("--n", query.n, "columns of the GEMM", {.between = kFromOne});
  command.option("--k", query.k, "inner dimension of the GEMM", {.between = kFromOne});
  command.footer({"mfu replay trace.json.gz", "mfu replay -c Qwen/Qwen3-8B report.sqlite",
                  "mfu replay --json traces/ > figures.json", "mfu replay --run-dir run -i 1 trace.json.gz",
                  "mfu replay -c config.json --range ProfilerStep --nth 3 trace.json.gz",
                  "mfu replay -c config.json --kernel flash_fwd --kernel-kind flash_fwd t.json"},
                 "0; 1 when a trace or the config cannot be read, or a trace ends in the middle");
  command.action([options] {
    TraceQuery& q = options->query;
    q.exact = options->match == "exact";
    q.per_pass = options->kernel_per == "pass";
    if (options->phase == "train") q.phase = Phase::kTrain;
    if (options->phase == "prefill") q.phase = Phase::kPrefill;
    if (options->phase == "decode") q.phase = Phase::kDecode;
    if (const auto understood = check_words(*options); !understood) return fail(understood.error(), kUsageError);
    return replay(*options);
  });
}

}  // namespace mfu

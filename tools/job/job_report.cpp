#include "tools/job/job_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/base/printable.h"
#include "core/rows/layers.h"
#include "core/rows/metrics.h"

namespace mfu {
namespace {

constexpr std::size_t kMatmul = static_cast<std::size_t>(TimeClass::kMatmul);

/// The sentence that answers: where did the time go?
std::string words_of(const JobRegion& region) {
  const RegionSummary& r = region.sum();
  if (!r.classes_known)
    return fmt::format("What ran on the GPU in {} was not measured{}", region.name,
                       r.untimed != 0 ? ": " + why_no_times(r) : "");
  const auto shares = r.lost ? r.lost : region.totals.weights.time_shares();
  if (!shares) return "";
  const auto largest = static_cast<std::size_t>(std::max_element(shares->begin(), shares->end()) - shares->begin());
  static constexpr std::array<std::string_view, kTimeClasses> kNames{"matmul", "other kernels", "exposed communication",
                                                                     "copies", "idle"};
  const bool lost = r.lost.has_value();
  std::string text = fmt::format("{:.1f} % of {} is {}: {}", 100 * (*shares)[largest],
                                 region.name == "total" ? "the process's time" : region.name,
                                 lost && largest == kMatmul ? "matmul loss" : kNames[largest],
                                 class_meaning(static_cast<TimeClass>(largest), lost));
  if (static_cast<TimeClass>(largest) == TimeClass::kOther) {
    const auto longest = std::find_if(r.top_kernels.begin(), r.top_kernels.end(), [](const TopKernel& kernel) {
      return kernel.kernel_class == KernelClass::kOther;
    });
    if (longest != r.top_kernels.end()) text += fmt::format(", {} most of all", printable(longest->name, 60));
  }
  return text;
}

/// The slowest instances of a region, longest first, and where they ran.
void collect_slowest(const std::vector<JobProcess>& processes, JobRegion& region) {
  constexpr std::size_t kShown = 10;
  std::vector<std::pair<SlowInstance, std::string>> all;
  for (const JobProcess& p : processes)
    for (const SummedRegion& t : p.regions)
      if (t.sum.region == region.name)
        for (const SlowInstance& s : t.sum.slowest) all.emplace_back(s, row_label(p, t.sum));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first.elapsed_ns > b.first.elapsed_ns; });
  all.resize(std::min(kShown, all.size()));
  region.totals.sum.slowest.clear();
  for (auto& [instance, where] : all) {
    region.totals.sum.slowest.push_back(instance);
    region.slowest_at.push_back(std::move(where));
  }
}

/// `3, 5-7, 9`, at most a dozen pieces.
std::string ranges_of(const std::vector<std::int64_t>& sorted) {
  std::string text;
  std::size_t pieces = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (pieces++ == 12) return text + ", ...";
    text += text.empty() ? "" : ", ";
    text += last == i ? std::to_string(sorted[i]) : fmt::format("{}-{}", sorted[i], sorted[last]);
    i = last + 1;
  }
  return text;
}

/// The start lines of all processes, taken together.
struct JobFacts {
  std::map<std::int64_t, std::uint64_t> of_rank;  ///< processes by rank
  std::set<std::string> dtypes, conventions, gpus;
  std::set<std::optional<double>> peaks;
  std::int64_t world = 0;
  bool any_model = false, any_peak = false;
};

/// Labels the processes and adds up what is the job's own: span, launches, the library's cost, counters.
JobFacts add_up_processes(Job& job) {
  JobFacts facts;
  for (const JobProcess& p : job.processes) ++facts.of_rank[p.run.rank];
  std::map<std::string, std::uint64_t> counters;
  std::uint64_t accounts = 0;
  for (JobProcess& p : job.processes) {
    p.label = fmt::format("rank {}", p.run.rank);
    if (facts.of_rank[p.run.rank] > 1) p.label += fmt::format(" (pid {})", p.run.pid);
    // A process with nothing but its start line has no time.
    if (const bool measured = p.span.end_ns != 0; measured && job.span.end_ns == 0)
      job.span = p.span;
    else if (measured)
      job.span = {std::min(job.span.begin_ns, p.span.begin_ns), std::max(job.span.end_ns, p.span.end_ns)};
    if (p.launches) {
      job.launches.seen += p.launches->seen;
      job.launches.attributed += p.launches->attributed;
      job.launches.outside += p.launches->outside;
      job.launches.unattributed += p.launches->unattributed;
      job.launches.dropped += p.launches->dropped;
      ++accounts;
    }
    if (p.self) {
      job.self.cpu_s += p.self->cpu_s;
      job.self.rss_bytes += p.self->rss_bytes;
      job.self.overhead += p.self->overhead;
    }
    for (const auto& [name, count] : p.counters) counters[name] += count;
    facts.conventions.insert(p.run.convention);
    facts.world = std::max(facts.world, p.run.world_size);
    facts.any_model = facts.any_model || p.run.model_json != "null";
    for (const DeviceInfo& d : p.run.devices) {
      facts.dtypes.insert(d.dtype);
      facts.peaks.insert(d.peak_flop_per_s);
      facts.gpus.insert(d.name);
      facts.any_peak = facts.any_peak || d.peak_flop_per_s;
    }
  }
  if (accounts != 0) job.self.overhead /= static_cast<double>(accounts);
  job.processes_without_account = job.processes.size() - accounts;
  job.counters.assign(counters.begin(), counters.end());
  return facts;
}

std::string why_no_mfu(const Job& job, const JobFacts& facts, const std::string& region, const RegionSummary& s) {
  if (s.is_update()) return "an update of the weights is no model FLOP";
  if (!facts.any_model)
    return job.trace ? "no model config: --config says what the model computes"
                     : "the run had no model config (MFU_MODEL_CONFIG)";
  if (!facts.any_peak) return fmt::format("the peak of {} is unknown: set MFU_PEAK_TFLOPS", joined(facts.gpus));
  if (s.flop) return "its devices have different peaks, or one has none";
  if (region == "total") return "no work with known FLOP";
  return "the shapes of its instances are not known";
}

void warn_of_ranks(JobBuilder& builder, const JobFacts& facts, std::size_t attempts) {
  const auto warn = [&builder](std::string message) { builder.warn({"ranks", std::move(message), "", 1}); };
  std::vector<std::int64_t> missing;
  constexpr std::int64_t kLargestWorld = 1 << 20;
  for (std::int64_t rank = 0; rank < std::min(facts.world, kLargestWorld); ++rank)
    if (!facts.of_rank.contains(rank)) missing.push_back(rank);
  if (!missing.empty())
    warn(fmt::format("{} of {} ranks are not here: {}", missing.size(), facts.world, ranges_of(missing)));
  for (const auto& [rank, processes] : facts.of_rank)
    if (processes > attempts)
      warn(fmt::format("rank {} has {} processes that ran at the same time: all are added up", rank, processes));
  if (facts.gpus.size() > 1) warn("different GPUs: " + joined(facts.gpus) + "; each is divided by its own peak");
  if (facts.peaks.size() > 1 && facts.gpus.size() <= 1)
    warn("the same GPU was divided by different peaks in different processes");
  if (facts.dtypes.size() > 1) warn("peaks of different dtypes: " + joined(facts.dtypes));
  if (facts.conventions.size() > 1) warn("FLOP were counted by different conventions: " + joined(facts.conventions));
}

/// By the processes that a launcher started together, where each rank is one of them.
Clocks clocks_of(const std::vector<ProcessLife>& lives) {
  struct Start {
    std::vector<ProcessTimes> processes;
    std::set<std::int64_t> ranks;
    DurationNs limit = 0;
  };
  std::map<std::pair<std::string, std::int64_t>, Start> starts;
  for (const ProcessLife& life : lives) {
    Start& start = starts[{life.run.job_id, life.run.restart}];
    start.processes.push_back({life.run.host, life.run.t_ns, life.span.end_ns});
    start.ranks.insert(life.run.rank);
    start.limit = std::max(start.limit, 3 * life.longest_window_ns);
  }
  Clocks clocks;
  for (const auto& [of, start] : starts)
    if (start.ranks.size() == start.processes.size()) clocks.merge(find_clocks(start.processes, start.limit));
  return clocks;
}

}  // namespace

std::string joined(const std::set<std::string>& values, std::string_view none) {
  std::string text;
  for (const std::string& value : values)
    text += (text.empty() ? "" : ", ") + (value.empty() ? std::string(none) : value);
  return text.empty() ? std::string(none) : text;
}

std::string_view class_meaning(TimeClass c, bool lost) noexcept {
  constexpr std::array<std::string_view, kTimeClasses> kMeanings{
      "matmul kernels ran", "only compute kernels other than matmuls ran", "only communication kernels ran",
      "only copies ran", "nothing ran on the GPU"};
  if (lost && c == TimeClass::kMatmul) return "matmul kernels ran, but slower than the peak";
  return kMeanings[static_cast<std::size_t>(c)];
}

const JobRegion* Job::find(std::string_view region) const noexcept {
  for (const JobRegion& r : regions)
    if (r.name == region) return &r;
  return nullptr;
}

RowPeak peak_of(const RunInfo& run, const std::optional<std::uint32_t>& device) {
  RowPeak peak;
  bool first = true;
  for (const DeviceInfo& d : run.devices) {
    if (device && d.device != *device) continue;
    const RowPeak of_device{d.peak_flop_per_s, d.peak_bytes_per_s};
    if (first) {
      peak = of_device;
      first = false;
    } else if (peak.flop_per_s != of_device.flop_per_s || peak.bytes_per_s != of_device.bytes_per_s) {
      return {};
    }
  }
  return peak;
}

std::vector<RegionTotals> whole_run(const RunHistory& history) {
  using Key = std::pair<std::string, std::optional<std::uint32_t>>;
  std::map<Key, std::size_t> index;
  std::vector<RegionTotals> sums;
  std::map<Key, std::pair<double, double>> clocks;  // weighted ratio, seconds
  const auto add = [&](const RegionSummary& row) {
    // A process that comes to use a second device has a total for one first, and for all of them later.
    const Key key{row.region, row.region == "total" ? std::nullopt : row.device};
    const auto [at, inserted] = index.try_emplace(key, sums.size());
    if (inserted) sums.emplace_back();
    sums[at->second].add(row, peak_of(history.run, row.device));
  };
  if (history.end) {
    // The clock is read window by window; the run's is their mean.
    for (const WindowSummary& window : history.windows) {
      for (const RegionSummary& row : window.regions) {
        if (!row.clock_ratio) continue;
        auto& [weighted, s] = clocks[{row.region, row.device}];
        weighted += *row.clock_ratio * seconds(row.elapsed_ns);
        s += seconds(row.elapsed_ns);
      }
    }
    for (RegionSummary row : history.end->regions) {
      const auto clock = clocks.find({row.region, row.device});
      if (!row.clock_ratio && clock != clocks.end() && clock->second.second > 0)
        row.clock_ratio = clock->second.first / clock->second.second;
      add(row);
    }
    return sums;
  }
  for (const WindowSummary& window : history.windows)
    for (const RegionSummary& row : window.regions) add(row);
  std::stable_partition(sums.begin(), sums.end(),
                        [](const RegionTotals& sum) { return sum.summed().sum.region != "total"; });
  return sums;
}

JobBuilder::JobBuilder(std::string path, bool trace) {
  job_.path = std::move(path);
  job_.trace = trace;
}

void JobBuilder::warn(JobWarning warning) {
  for (JobWarning& known : job_.warnings) {
    if (known.kind == warning.kind && known.message == warning.message) {
      known.count += warning.count;
      return;
    }
  }
  // A run may warn for days: the first ones say what went wrong, the rest is counted.
  constexpr std::size_t kKept = 200;
  if (job_.warnings.size() < kKept) {
    job_.warnings.push_back(std::move(warning));
  } else if (job_.warnings.size() == kKept) {
    job_.warnings.push_back({"more", "further warnings are in the run's own files", "", 1});
  } else {
    ++job_.warnings.back().count;
  }
}

void JobBuilder::add(const RunHistory& history) {
  JobProcess process;
  process.source = history.source;
  process.run = history.run;
  process.ended = history.ended();
  process.windows = history.windows.size();
  bool first = true;
  const auto reach = [&](const Interval& window) {
    process.span = first ? window
                         : Interval{std::min(process.span.begin_ns, window.begin_ns),
                                    std::max(process.span.end_ns, window.end_ns)};
    first = false;
  };
  TimeGrid series = TimeGrid::like(job_.series);
  for (const WindowSummary& window : history.windows) {
    reach(window.window);
    for (const RegionSummary& row : window.regions)
      series.add(row.region, row.window, Weights::of(row, peak_of(history.run, row.device)), row.classes_known,
                 row.latency);
  }
  job_.series.add_rank(std::move(series));
  if (history.end) {
    reach(history.end->window);
    process.launches = history.end->launches;
    process.self = history.end->self;
    process.counters = history.end->counters;
  } else if (!history.windows.empty()) {
    process.counters = history.windows.back().counters;
  }

  std::set<std::string> here;
  for (RegionTotals& sum : whole_run(history)) {
    process.regions.push_back(sum.summed());
    const RegionSummary& s = process.regions.back().sum;
    Region& region = regions_[s.region];
    region.sum.add(sum);
    region.devices += s.device || s.region != "total" ? 1 : std::max<std::size_t>(1, history.run.devices.size());
    if (here.insert(s.region).second) ++region.processes;
  }

  const std::string& source = history.source;
  if (!process.ended)
    warn({"unfinished",
          "no end line: still running, or killed. The figures are the sum of its windows; what came after the last one "
          "is not in them",
          source, 1});
  if (process.regions.empty()) warn({"empty", "no region and no device activity was measured", source, 1});
  for (const RunEvent& event : history.events) warn({event.kind, event.message, source, 1});
  for (const std::string& oddity : history.oddities) warn({"oddity", oddity, source, 1});
  for (const SummedRegion& t : process.regions) {
    const std::string where = row_label(process, t.sum);
    if (!t.sum.suspect.empty()) warn({"suspect", t.sum.region + ": " + t.sum.suspect, where, 1});
    if (t.weights.with_flop > 0 && t.weights.left_out > 0)
      warn({"left_out",
            fmt::format("{}: MFU covers {:.0f} of {} windows; the FLOP of the others were not known when they closed",
                        t.sum.region, static_cast<double>(t.rows) - t.weights.left_out, t.rows),
            where, 1});
    if (t.sum.overlapped)
      warn({"overlapped",
            t.sum.region +
                ": instances of several threads ran on the device at the same time, and each counts all of it",
            where, 1});
  }
  job_.processes.push_back(std::move(process));
  if (job_.trace) return;
  ProcessLife& life = lives_.emplace_back();
  life.start(history.run);
  for (const RunEvent& event : history.events) life.event(event);
  for (const WindowSummary& window : history.windows) life.window(window);
  look_for_stall(history);
  if (history.ended()) life.end(history.end->window.end_ns);
}

void JobBuilder::look_for_stall(const RunHistory& history) {
  const WindowSummary* last = history.windows.empty() ? nullptr : &history.windows.back();
  const RegionSummary* total = last == nullptr || last->regions.empty() ? nullptr : &last->regions.back();
  HangProcess hang(history.run, std::nullopt, total);
  for (const RunEvent& event : history.events) {
    hang.last_ns = std::max(hang.last_ns, event.t_ns);
    if (event.kind == "stalled" || event.kind == "resumed") hang.stall = event.stall;
  }
  hang.last_ns = std::max(hang.last_ns, last != nullptr ? last->window.end_ns : history.run.t_ns);
  hang.ended = history.ended();
  if (last != nullptr) hang.window_ns = last->window.length_ns();
  const auto known = hangs_.find(history.run.rank);  // of each rank the latest process
  if (known == hangs_.end() || known->second.begin_ns <= hang.begin_ns)
    hangs_.insert_or_assign(history.run.rank, std::move(hang));
}

void JobBuilder::warn_of_hang(const Clocks& clocks) {
  std::vector<HangProcess> processes;
  TimeNs newest = 0;
  for (auto& [rank, p] : hangs_) {
    p.set_clock(ahead_of(clocks, p.host));
    newest = std::max(newest, p.last_ns);
  }
  for (auto& [rank, p] : hangs_) {
    p.quiet = newest - p.last_ns > 3 * p.window_ns;
    processes.push_back(p);
  }
  if (const std::optional<Hang> hang = find_hang(processes, newest)) warn({"hang", hang->text(), "", 1});
}

Job JobBuilder::finish() {
  Job& job = job_;
  std::stable_sort(job.processes.begin(), job.processes.end(),
                   [](const JobProcess& a, const JobProcess& b) { return a.run.rank < b.run.rank; });
  const JobFacts facts = add_up_processes(job);
  std::vector<const ProcessLife*> lives;
  for (const ProcessLife& life : lives_) lives.push_back(&life);
  const Clocks clocks = clocks_of(lives_);
  for (const auto& [host, ahead] : clocks) warn({"clock", clock_text(host, ahead), "", 1});
  job.life = job_life(lives, clocks);
  warn_of_hang(clocks);
  for (auto& [name, region] : regions_) {
    JobRegion r;
    r.name = name;
    r.totals = region.sum.summed();
    r.totals.sum.region = name;
    if (job.processes.size() > 1) r.totals.sum.device.reset();
    r.devices = region.devices;
    r.processes = region.processes;
    const RegionSummary& s = r.totals.sum;
    if (!s.mfu && !layer_name(name)) r.why_no_mfu = why_no_mfu(job, facts, name, s);
    r.words = words_of(r);
    collect_slowest(job.processes, r);
    job.regions.push_back(std::move(r));
  }
  std::stable_sort(job.regions.begin(), job.regions.end(), [](const JobRegion& a, const JobRegion& b) {
    if ((a.name == "total") != (b.name == "total")) return b.name == "total";
    return a.sum().elapsed_ns > b.sum().elapsed_ns;
  });

  warn_of_ranks(*this, facts, job.life.attempts.size());
  for (const JobRegion& r : job.regions)
    if (r.sum().clock_ratio && *r.sum().clock_ratio < 0.95 && r.name != "total")
      warn({"clock",
            fmt::format("{}: the SM clock was {:.0f} % of what the peak stands for: power or heat", r.name,
                        100 * *r.sum().clock_ratio),
            "", 1});
  if (const LaunchAccount& l = job.launches; l.dropped + l.unattributed > l.seen / 1000)
    warn({"launches",
          fmt::format("{} of {} launches could not be assigned; region times and FLOP exclude them",
                      l.dropped + l.unattributed, l.seen),
          "", 1});
  return std::move(job_);
}

WindowSummary job_window(const Job& job) {
  WindowSummary w;
  w.window = job.span;
  w.final_run = true;
  for (const JobRegion& r : job.regions) {
    w.regions.push_back(r.sum());
    w.regions.back().window = job.span;
  }
  w.launches = job.launches;
  w.self = job.self;
  w.counters = job.counters;
  return w;
}

std::string row_label(const JobProcess& process, const RegionSummary& row) {
  const std::string rank = process.label.empty() ? fmt::format("rank {}", process.run.rank) : process.label;
  return row.device ? fmt::format("{} gpu{}", rank, *row.device) : rank;
}

}  // namespace mfu

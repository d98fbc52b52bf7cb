#include "tools/replay/trace_figures.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <unordered_map>

#include "tools/replay/interval_union.h"

namespace mfu {

SetFigures& SetFigures::operator+=(const SetFigures& other) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
  return *this;
}

namespace {

/// One GPU operation as the figures need it.
struct Op {
  TimeNs begin_ns;
  TimeNs end_ns;
  std::uint32_t device;  ///< 0-based within the process
  ActivityKind kind;
  bool nccl;

  [[nodiscard]] Interval interval() const noexcept { return {begin_ns, end_ns}; }
  [[nodiscard]] DurationNs length_ns() const noexcept { return end_ns - begin_ns; }
  [[nodiscard]] bool kernel() const noexcept { return kind == ActivityKind::kKernel; }
};

/// A whole CUDA graph recorded as one row keeps the GPU busy, but is no operation: how many it held is unknown.
bool counts(const Op& op) noexcept { return op.kind != ActivityKind::kGraph; }

/// Counts and sums of the operations up to some point. One per operation is kept, so it is small.
struct Tally {
  enum Class : std::uint8_t { kCompute, kNccl, kMemcpy, kMemset, kClasses };
  std::array<DurationNs, kClasses> sum_ns{};
  std::array<std::uint32_t, kClasses> count{};

  void add(const Op& op) noexcept {
    if (!counts(op)) return;
    const Class c = op.kernel() ? (op.nccl ? kNccl : kCompute) : (op.kind == ActivityKind::kMemcpy ? kMemcpy : kMemset);
    sum_ns[c] += op.length_ns();
    ++count[c];
  }
};

/// Writes what `to` counts beyond `from`.
void set_counts(SetFigures& f, const Tally& from, const Tally& to) noexcept {
  const auto sum = [&](Tally::Class c) { return to.sum_ns[c] - from.sum_ns[c]; };
  const auto count = [&](Tally::Class c) { return static_cast<std::int64_t>(to.count[c] - from.count[c]); };
  f[Figure::kComputeKernels] = count(Tally::kCompute);
  f[Figure::kComputeSum] = sum(Tally::kCompute);
  f[Figure::kNcclKernels] = count(Tally::kNccl);
  f[Figure::kNcclSum] = sum(Tally::kNccl);
  f[Figure::kMemcpyOps] = count(Tally::kMemcpy);
  f[Figure::kMemcpySum] = sum(Tally::kMemcpy);
  f[Figure::kMemsetOps] = count(Tally::kMemset);
  f[Figure::kMemsetSum] = sum(Tally::kMemset);
  f[Figure::kKernels] = f[Figure::kComputeKernels] + f[Figure::kNcclKernels];
  f[Figure::kKernelSum] = f[Figure::kComputeSum] + f[Figure::kNcclSum];
  f[Figure::kGpuOps] = f[Figure::kKernels] + f[Figure::kMemcpyOps] + f[Figure::kMemsetOps];
}

void set_idle(SetFigures& f) noexcept { f[Figure::kIdle] = f[Figure::kSpan] - f[Figure::kGpuBusy]; }

/// The operations of one process, read straight from the trace, and what holds for all of its sets.
class ProcessSets {
 public:
  /// \param activities indices of the process's activities
  ProcessSets(const Trace& trace, const std::vector<std::uint32_t>& activities)
      : trace_(trace), activities_(activities), local_device_(trace.devices.size(), kNoDevice) {
    for (const std::uint32_t index : activities) {
      std::uint32_t& local = local_device_[trace.streams[trace.activities[index].stream].device];
      if (local == kNoDevice) local = devices_++;
    }
    for (std::uint32_t device = 0; device < devices_; ++device) {
      all_.push_back(union_of(device, [](const Op&) { return true; }));
      compute_.push_back(union_of(device, [](const Op& op) { return op.kernel() && !op.nccl; }));
    }
  }

  [[nodiscard]] const Trace& trace() const noexcept { return trace_; }
  [[nodiscard]] const std::vector<std::uint32_t>& activities() const noexcept { return activities_; }
  [[nodiscard]] std::uint32_t devices() const noexcept { return devices_; }

  [[nodiscard]] Op op(std::uint32_t activity_index) const noexcept {
    const TraceActivity& a = trace_.activities[activity_index];
    return {a.begin_ns, a.end_ns, local_device_[trace_.streams[a.stream].device], a.kind, a.nccl != 0};
  }
  [[nodiscard]] const TraceLaunch* launch(std::uint32_t activity_index) const noexcept {
    const std::uint32_t launch = trace_.activities[activity_index].launch;
    return launch == kNoLaunch ? nullptr : &trace_.launches[launch];
  }

  /// Union of all operations in [begin, end), per device and added.
  [[nodiscard]] DurationNs window_busy_ns(TimeNs begin_ns, TimeNs end_ns) const noexcept {
    DurationNs busy = 0;
    for (const IntervalUnion& line : all_) busy += line.length_before(end_ns) - line.length_before(begin_ns);
    return busy;
  }

  /// `t` on a time line of the device on which moments with a compute kernel running have no length.
  [[nodiscard]] TimeNs without_compute(std::uint32_t device, TimeNs t) const noexcept {
    return t - compute_[device].length_before(t);
  }

  [[nodiscard]] SetFigures totals() const {
    SetFigures f;
    if (activities_.empty()) return f;
    Tally tally;
    Interval hull = op(activities_.front()).interval();
    for (const std::uint32_t index : activities_) {
      const Op each = op(index);
      tally.add(each);
      hull = {std::min(hull.begin_ns, each.begin_ns), std::max(hull.end_ns, each.end_ns)};
    }
    set_counts(f, {}, tally);
    for (std::uint32_t device = 0; device < devices_; ++device) {
      const DurationNs compute = compute_[device].length_ns();
      f[Figure::kGpuBusy] += all_[device].length_ns();
      f[Figure::kComputeBusy] += compute;
      if (f[Figure::kNcclKernels] == 0) {
        f[Figure::kKernelBusy] += compute;
        continue;
      }
      const DurationNs kernels = union_of(device, [](const Op& each) { return each.kernel(); }).length_ns();
      f[Figure::kKernelBusy] += kernels;
      f[Figure::kNcclExposed] += kernels - compute;
      f[Figure::kNcclBusy] += union_of(device, [](const Op& each) { return each.nccl; }).length_ns();
    }
    f[Figure::kNcclExposedDevice] = f[Figure::kNcclExposed];
    f[Figure::kSpan] = hull.end_ns - hull.begin_ns;
    set_idle(f);
    return f;
  }

 private:
  static constexpr std::uint32_t kNoDevice = 0xFFFFFFFFu;

  template <typename Predicate>
  [[nodiscard]] IntervalUnion union_of(std::uint32_t device, Predicate holds) const {
    std::vector<Interval> intervals;
    for (const std::uint32_t index : activities_) {
      const Op each = op(index);
      if (each.device == device && holds(each)) intervals.push_back(each.interval());
    }
    return IntervalUnion(std::move(intervals));
  }

  const Trace& trace_;
  const std::vector<std::uint32_t>& activities_;
  std::vector<std::uint32_t> local_device_;  ///< device of the trace > 0-based in this process
  std::uint32_t devices_ = 0;
  std::vector<IntervalUnion> all_;      ///< per device
  std::vector<IntervalUnion> compute_;  ///< per device
};

/// A time window whose launches make a set, and where its figures go.
struct SetQuery {
  Interval window;
  SetFigures* result;
};

/// Earliest begin and latest end from any operation up to the newest one: the operations that still are an extreme seen
/// from the newest one, in two stacks. O(1) a push, O(log n) a look-up.
class Span {
 public:
  void push(std::size_t index, const Interval& interval) {
    while (!begins_.empty() && begins_.back().second >= interval.begin_ns) begins_.pop_back();
    begins_.emplace_back(index, interval.begin_ns);
    while (!ends_.empty() && ends_.back().second <= interval.end_ns) ends_.pop_back();
    ends_.emplace_back(index, interval.end_ns);
  }
  /// Of all pushed since `first`, which has been pushed.
  [[nodiscard]] DurationNs since(std::size_t first) const noexcept { return at(ends_, first) - at(begins_, first); }
  void forget_before(std::size_t first) noexcept {
    while (!begins_.empty() && begins_.front().first < first) begins_.pop_front();
    while (!ends_.empty() && ends_.front().first < first) ends_.pop_front();
  }

 private:
  using Stack = std::deque<std::pair<std::size_t, TimeNs>>;
  static TimeNs at(const Stack& stack, std::size_t first) noexcept {
    return std::partition_point(stack.begin(), stack.end(), [first](const auto& e) { return e.first < first; })->second;
  }
  Stack begins_, ends_;
};

/// Answers every query over `ops` (indices of launched activities, sorted by launch): the operations of a window are
/// one run of them, so counts and sums are differences of running totals and unions come from RunUnions.
void answer(const ProcessSets& process, const std::vector<std::uint32_t>& ops, const std::vector<SetQuery>& queries) {
  struct Run {
    std::size_t first, last;
    SetFigures* result;
  };
  std::vector<Run> runs;
  const auto before = [&](std::uint32_t op, TimeNs t) { return process.launch(op)->begin_ns < t; };
  for (const SetQuery& query : queries) {
    const auto first = std::lower_bound(ops.begin(), ops.end(), query.window.begin_ns, before);
    const auto last = std::lower_bound(first, ops.end(), query.window.end_ns, before);
    if (first != last) {
      runs.push_back(
          {static_cast<std::size_t>(first - ops.begin()), static_cast<std::size_t>(last - ops.begin()), query.result});
    }
  }
  if (runs.empty()) return;
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.last < b.last; });
  // The first operation that this run or a later one needs: those before it are forgotten on the way, so that
  // memory is that of the longest run and not of the trace.
  std::vector<std::size_t> needed(runs.size());
  for (std::size_t i = runs.size(), least = ops.size(); i-- > 0;) needed[i] = least = std::min(least, runs[i].first);

  // Which unions differ at all: without NCCL kernels all kernels are compute kernels, without copies all are kernels.
  bool any_nccl = false;
  bool any_other = false;
  for (const std::uint32_t index : ops) {
    const Op op = process.op(index);
    any_nccl = any_nccl || op.nccl;
    any_other = any_other || !op.kernel();
  }
  const std::size_t lines = process.devices();
  RunUnions all(any_other ? ops.size() : 0, lines);
  RunUnions kernels(ops.size(), lines);
  RunUnions compute(any_nccl ? ops.size() : 0, lines);
  RunUnions nccl(any_nccl ? ops.size() : 0, lines);
  RunUnions nccl_alone(any_nccl ? ops.size() : 0, lines);
  Span span;
  std::deque<Tally> running(1);  // [i]: of the operations before forgotten + i
  std::size_t forgotten = 0;
  std::size_t painted = 0;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Run& run = runs[r];
    for (; painted < run.last; ++painted) {
      const Op op = process.op(ops[painted]);
      running.push_back(running.back());
      running.back().add(op);
      if (painted < needed[r]) continue;  // counted, but in no run that is still to come
      span.push(painted, op.interval());
      if (any_other) all.paint(op.device, op.interval(), painted);
      if (!op.kernel()) continue;
      kernels.paint(op.device, op.interval(), painted);
      if (any_nccl && !op.nccl) compute.paint(op.device, op.interval(), painted);
      if (op.nccl) {
        nccl.paint(op.device, op.interval(), painted);
        nccl_alone.paint(
            op.device, {process.without_compute(op.device, op.begin_ns), process.without_compute(op.device, op.end_ns)},
            painted);
      }
    }
    if (needed[r] > forgotten) {
      running.erase(running.begin(), running.begin() + static_cast<std::ptrdiff_t>(needed[r] - forgotten));
      forgotten = needed[r];
      span.forget_before(forgotten);
      for (RunUnions* unions : {&all, &kernels, &compute, &nccl, &nccl_alone}) unions->forget_before(forgotten);
    }
    SetFigures& f = *run.result;
    set_counts(f, running[run.first - forgotten], running[run.last - forgotten]);
    f[Figure::kKernelBusy] = kernels.painted_since(run.first);
    f[Figure::kGpuBusy] = any_other ? all.painted_since(run.first) : f[Figure::kKernelBusy];
    f[Figure::kComputeBusy] = any_nccl ? compute.painted_since(run.first) : f[Figure::kKernelBusy];
    if (any_nccl) {
      f[Figure::kNcclBusy] = nccl.painted_since(run.first);
      f[Figure::kNcclExposed] = f[Figure::kKernelBusy] - f[Figure::kComputeBusy];
      f[Figure::kNcclExposedDevice] = nccl_alone.painted_since(run.first);
    }
    f[Figure::kSpan] = span.since(run.first);
    set_idle(f);
  }
}

/// The part of a trace that belongs to one process, by index.
struct ProcessPart {
  std::vector<std::uint32_t> activities;
  std::vector<std::uint32_t> ranges;  ///< by begin
};

class ProcessWork {
 public:
  ProcessWork(const Trace& trace, std::uint32_t process, const ProcessPart& part)
      : trace_(trace), part_(part), sets_(trace, part.activities) {
    figures_.process = trace.processes[process].name;
    figures_.notes = trace.processes[process].notes;
    figures_.devices = sets_.devices();
  }

  ProcessFigures run() {
    figures_.totals = sets_.totals();
    fill_launches();
    fill_streams();
    fill_ranges();
    fill_unattributed();
    return std::move(figures_);
  }

  /// Counts of host records, which the trace keeps for all processes together.
  LaunchFigures& launches() { return figures_.launches; }

 private:
  void fill_launches() {
    LaunchFigures& f = figures_.launches;
    std::unordered_map<std::uint32_t, std::size_t> slots;
    auto& threads = figures_.gpu_ops_by_launching_thread;
    for (const std::uint32_t index : part_.activities) {
      const Op op = sets_.op(index);
      const TraceLaunch* launch = sets_.launch(index);
      if (!counts(op)) continue;
      if (launch == nullptr) {
        ++f.gpu_ops_without_launch;
        f.gpu_ops_without_launch_sum_ns += op.length_ns();
        continue;
      }
      ++f.gpu_ops_with_launch;
      if (launch->graph != 0) {
        ++f.gpu_ops_from_graphs;
        f.kernels_from_graphs += op.kernel() ? 1 : 0;
      }
      const auto [slot, fresh] = slots.try_emplace(launch->thread, threads.size());
      if (fresh) threads.emplace_back(trace_.threads[launch->thread].label, 0);
      ++threads[slot->second].second;
    }
    std::ranges::stable_sort(threads, std::greater{}, &std::pair<std::string, std::int64_t>::second);
  }

  void fill_streams() {
    std::unordered_map<std::uint32_t, std::size_t> slots;
    std::vector<std::vector<Interval>> intervals;
    auto& streams = figures_.streams;
    for (const std::uint32_t index : part_.activities) {
      const Op op = sets_.op(index);
      if (!counts(op)) continue;
      const std::uint32_t stream = trace_.activities[index].stream;
      const auto [slot, fresh] = slots.try_emplace(stream, streams.size());
      if (fresh) {
        const TraceStream& facts = trace_.streams[stream];
        streams.push_back({trace_.devices[facts.device].label, facts.label, 0, 0, 0, 0});
        intervals.emplace_back();
      }
      StreamFigures& f = streams[slot->second];
      ++f.gpu_ops;
      f.kernels += op.kernel() ? 1 : 0;
      f.sum_ns += op.length_ns();
      intervals[slot->second].push_back(op.interval());
    }
    for (std::size_t i = 0; i < streams.size(); ++i)
      streams[i].busy_ns = IntervalUnion(std::move(intervals[i])).length_ns();
    std::ranges::stable_sort(streams, std::greater{}, &StreamFigures::gpu_ops);
  }

  void fill_ranges() {
    // Every instance on its own first; the sums per name come last.
    std::vector<RangeFigures> instances(part_.ranges.size());
    std::vector<SetQuery> in_process;
    std::unordered_map<std::uint32_t, std::vector<SetQuery>> in_thread;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const TraceRange& range = trace_.ranges[part_.ranges[i]];
      const Interval window{range.begin_ns, range.end_ns};
      RangeFigures& f = instances[i];
      f.instances = 1;
      f.start_ns = range.begin_ns;
      f.wall_ns = range.end_ns - range.begin_ns;
      f.window_busy_ns = sets_.window_busy_ns(range.begin_ns, range.end_ns);
      f.window_idle_ns = f.wall_ns * std::max<std::int64_t>(1, figures_.devices) - f.window_busy_ns;
      in_process.push_back({window, &f.by_process});
      in_thread[range.thread].push_back({window, &f.by_thread});
    }
    const std::vector<std::uint32_t> launched = launched_in_order();
    answer(sets_, launched, in_process);
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> by_thread;
    for (const std::uint32_t index : launched)
      if (in_thread.contains(sets_.launch(index)->thread)) by_thread[sets_.launch(index)->thread].push_back(index);
    for (const auto& [thread, ops] : by_thread) {
      if (ops.size() < launched.size()) {
        answer(sets_, ops, in_thread[thread]);
        continue;
      }
      // One thread launched everything, as in most serving traces: its ranges hold the same either way.
      for (std::size_t i = 0; i < instances.size(); ++i)
        if (trace_.ranges[part_.ranges[i]].thread == thread) instances[i].by_thread = instances[i].by_process;
    }

    std::unordered_map<std::uint32_t, std::size_t> slots;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const std::uint32_t key = trace_.ranges[part_.ranges[i]].key;
      const auto [slot, fresh] = slots.try_emplace(key, figures_.ranges.size());
      if (fresh) {
        figures_.ranges.emplace_back();
        figures_.ranges.back().name = trace_.strings.at(key);
        figures_.ranges.back().start_ns = instances[i].start_ns;
      }
      RangeFigures& sum = figures_.ranges[slot->second];
      sum.instances += 1;
      sum.wall_ns += instances[i].wall_ns;
      sum.window_busy_ns += instances[i].window_busy_ns;
      sum.window_idle_ns += instances[i].window_idle_ns;
      sum.by_thread += instances[i].by_thread;
      sum.by_process += instances[i].by_process;
      if (sum.name.starts_with("ProfilerStep#")) {
        instances[i].name = sum.name;
        figures_.steps.push_back(instances[i]);
      }
    }
  }

  /// Launched activities by begin of their launch; where equal, as in the file.
  [[nodiscard]] std::vector<std::uint32_t> launched_in_order() const {
    std::vector<std::pair<TimeNs, std::uint32_t>> keyed;
    for (const std::uint32_t index : part_.activities) {
      if (const TraceLaunch* launch = sets_.launch(index); launch != nullptr)
        keyed.emplace_back(launch->begin_ns, index);
    }
    if (!std::is_sorted(keyed.begin(), keyed.end())) std::sort(keyed.begin(), keyed.end());
    std::vector<std::uint32_t> launched;
    launched.reserve(keyed.size());
    for (const auto& [begin_ns, index] : keyed) launched.push_back(index);
    return launched;
  }

  void fill_unattributed() {
    std::vector<Interval> everywhere;
    std::unordered_map<std::uint32_t, std::vector<Interval>> intervals;
    for (const std::uint32_t index : part_.ranges) {
      const TraceRange& range = trace_.ranges[index];
      everywhere.push_back({range.begin_ns, range.end_ns});
      intervals[range.thread].push_back({range.begin_ns, range.end_ns});
    }
    const IntervalUnion in_process(std::move(everywhere));
    std::unordered_map<std::uint32_t, IntervalUnion> in_thread;
    for (auto& [thread, list] : intervals) in_thread.emplace(thread, IntervalUnion(std::move(list)));
    UnattributedFigures& f = figures_.unattributed;
    for (const std::uint32_t index : part_.activities) {
      const Op op = sets_.op(index);
      const TraceLaunch* launch = sets_.launch(index);
      if (!counts(op)) continue;
      const auto thread = launch == nullptr ? in_thread.end() : in_thread.find(launch->thread);
      if (thread == in_thread.end() || !thread->second.contains(launch->begin_ns)) {
        ++f.by_thread_gpu_ops;
        f.by_thread_sum_ns += op.length_ns();
      }
      if (launch == nullptr || !in_process.contains(launch->begin_ns)) {
        ++f.by_process_gpu_ops;
        f.by_process_sum_ns += op.length_ns();
      }
    }
  }

  const Trace& trace_;
  const ProcessPart& part_;
  ProcessSets sets_;
  ProcessFigures figures_;
};

}  // namespace

std::vector<ProcessFigures> process_figures(const Trace& trace) {
  std::vector<ProcessPart> parts(trace.processes.size());
  for (std::uint32_t i = 0; i < trace.activities.size(); ++i)
    parts[trace.activities[i].process].activities.push_back(i);
  std::vector<std::uint32_t> ranges(trace.ranges.size());
  std::iota(ranges.begin(), ranges.end(), 0);
  std::ranges::stable_sort(ranges, {}, [&](std::uint32_t range) { return trace.ranges[range].begin_ns; });
  for (const std::uint32_t range : ranges)
    parts[trace.threads[trace.ranges[range].thread].process].ranges.push_back(range);
  std::vector<LaunchFigures> host(trace.processes.size());
  std::vector<bool> has_work(trace.launches.size()), captures(trace.processes.size());
  for (const TraceActivity& activity : trace.activities)
    if (activity.launch != kNoLaunch) has_work[activity.launch] = true;
  for (std::size_t i = 0; i < trace.launches.size(); ++i) {
    const TraceLaunch& launch = trace.launches[i];
    if (launch.counted == 0) continue;
    const std::uint32_t process = trace.threads[launch.thread].process;
    LaunchFigures& f = host[process];
    ++f.host_calls;
    f.graph_launches += launch.graph;
    f.kernel_launches += launch.kernel;
    f.kernel_launches_unseen += launch.kernel != 0 && !has_work[i];
    if (launch.capture != 0) captures[process] = true;
  }
  for (std::size_t i = 0; i < host.size(); ++i)
    if (captures[i]) host[i].kernel_launches = host[i].kernel_launches_unseen = 0;
  std::vector<ProcessFigures> figures;
  for (std::uint32_t process = 0; process < parts.size(); ++process) {
    ProcessWork work(trace, process, parts[process]);
    work.launches() = host[process];
    figures.push_back(work.run());
    parts[process] = {};
  }
  return figures;
}

TraceReport make_report(const Trace& trace) { return {trace, process_figures(trace)}; }

}  // namespace mfu

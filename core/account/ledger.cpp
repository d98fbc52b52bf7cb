#include "core/account/ledger.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/rows/metrics.h"
#include "core/rows/region_totals.h"

namespace mfu {

namespace {

constexpr DurationNs kBetweenLooks = kNsPerSecond / 100;  ///< time that is swept between two looks at the clock
constexpr std::size_t kQueuesKept = 64;                   ///< of threads that have no instance open, on a device

}  // namespace

Ledger::Ledger(const RegionRules& rules, const FlopsModel* model, const Workload& workload, KernelNames& names,
               Counters& counters, LedgerOptions options, WindowCallback on_window)
    : rules_(rules),
      model_(model),
      workload_(workload),
      names_(names),
      counters_(counters),
      options_(options),
      on_window_(std::move(on_window)),
      shapes_(workload),
      roles_(model, names),
      swept_(options.origin_ns),
      noticed_(rules.regions().size(), false),
      named_by_(rules.regions().size(), NamedBy::kNobody) {
  if (options_.ranges_only) device_at(0);
}

Ledger::~Ledger() = default;

Ledger::Device& Ledger::new_device(std::uint32_t device) {
  if (device >= devices_.size()) devices_.resize(device + 1);
  devices_[device] =
      std::make_unique<Device>(device, options_.origin_ns, options_.window_ns, static_cast<TimelineListener&>(*this));
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested) continue;
    if (instance->shares.size() < devices_.size()) instance->shares.resize(devices_.size());
    ++instance->shares_left;
    devices_[device]->timeline.add_open_mark(*instance, instance->open_ns);
    if (instance->closed) devices_[device]->timeline.add_end_mark(*instance, instance->close_ns);
  }
  note_added();
  // It was idle until now; nothing can be pending before what the others have swept.
  devices_[device]->sweep(swept_);
  return *devices_[device];
}

void Ledger::set_peak(std::uint32_t device, const Peak& peak) { device_at(device).peak = peak; }

RegionRow& Ledger::row(std::int64_t window, std::uint32_t region, std::uint32_t device) {
  // Late data for an emitted window goes into the run's totals only.
  return window < next_window_ ? run_[{region, device}] : windows_[window][{region, device}];
}

std::uint32_t Ledger::region_path_of(std::uint32_t outer, RegionId region) {
  const auto [it, inserted] =
      region_path_index_.try_emplace({outer, region}, static_cast<std::uint32_t>(region_paths_.size()));
  if (inserted) region_paths_.push_back({outer, region});
  return it->second;
}

void Ledger::open(const InstanceSlot& slot, TimeNs at, const DetectedWork* work) {
  const bool detected = slot.kind == InstanceKind::kDetected;
  if (observer_ != nullptr && !detected) observer_->on_open(slot, at);
  NamedBy& named_by = named_by_[raw(slot.region)];
  named_by = std::max(named_by, detected                            ? NamedBy::kDetector
                                : rules_.is_of_framework(slot.rule) ? NamedBy::kFramework
                                                                    : NamedBy::kRange);
  Instance& instance = live_.insert(slot.id);
  instance.kind = slot.kind;
  instance.region = slot.region;
  instance.rule = slot.rule;
  instance.phase = rules_.regions()[raw(slot.region)].phase;
  instance.thread = raw(slot.opener);
  instance.own_shape = slot.shape;
  if (work != nullptr) {
    instance.detected_shape = work->shape;
    // Rows of a training step are tokens in a language model only, and nobody said that this is one.
    if (is_training(instance.phase) && !model_) instance.detected_shape = {};
    instance.passes = work->passes;
    instance.parts_of_step = work->parts;
  }
  instance.open_ns = std::max(at, options_.origin_ns);
  instance.parts = Work::none();
  instance.parts_given = Work::none();
  instance.parent = slot.parent == InstanceId::kNone ? nullptr : live_.find(slot.parent);
  if (instance.parent != nullptr) ++instance.parent->live_children;
  if (instance.parent != nullptr) instance.root = instance.parent->root;
  instance.region_path = region_path_of(instance.parent != nullptr ? instance.parent->region_path : 0, instance.region);
  const auto home = home_of_thread_.find(instance.thread);
  if (home != home_of_thread_.end()) instance.home_device = home->second;
  instance.cached_at_open = shapes_.cached(instance.home_device.value_or(0));
  if (instance.kind == InstanceKind::kNested) return;
  instance.shares.resize(devices_.size());
  for (const auto& device : devices_) {
    if (!device) continue;
    ++instance.shares_left;
    device->timeline.add_open_mark(instance, instance.open_ns);
  }
}

void Ledger::close(const InstanceSlot& slot, TimeNs at, std::optional<std::uint32_t> home_device) {
  Instance* instance = live_.find(slot.id);
  if (instance == nullptr || instance->closed) return;
  if (observer_ != nullptr && slot.kind != InstanceKind::kDetected) observer_->on_close(slot, at);
  instance->closed = true;
  instance->close_ns = std::max(at, instance->open_ns);
  if (home_device) {
    if (home_of_thread_.size() > 4096) home_of_thread_.clear();  // threads come and go; this is a hint only
    home_of_thread_[instance->thread] = *home_device;
    instance->home_device = home_device;
  }
  // What the detector found has all its records; those of a range are still to come.
  resolve_work(*instance, slot.kind == InstanceKind::kDetected || slot.kind == InstanceKind::kNested);
  if (instance->kind == InstanceKind::kNested) {
    if (Instance* whole = instance->parent; whole != nullptr && instance->phase != Phase::kNone) {
      ++whole->part_count;
      whole->parts.add(instance->work);
      whole->decode.add(instance->decode);
      const std::int64_t window = (instance->close_ns - options_.origin_ns) / options_.window_ns;
      auto [slot_of_window, inserted] = whole->parts_by_window.try_emplace(window, Work::none());
      slot_of_window->second.add(instance->work);
    }
    finish_if_complete(instance);
    return;
  }
  for (std::uint32_t d = 0; d < devices_.size(); ++d)
    if (devices_[d]) devices_[d]->timeline.add_end_mark(*instance, instance->close_ns);
  finish_if_complete(instance);
}

void Ledger::tell_observer(const ActivityRecord& record, const Instance* instance, InstanceId owner,
                           bool first_of_launch) {
  const bool detected = instance != nullptr && instance->kind == InstanceKind::kDetected;
  observer_->on_record(record, detected ? InstanceId::kNone : owner, first_of_launch);
}

/// Work that was launched in no region.
void Ledger::add_unowned(const ActivityRecord& record, bool first_of_launch) {
  DeviceTimeline& timeline = device_at(raw(record.device)).timeline;
  if (observer_ != nullptr) tell_observer(record, nullptr, InstanceId::kNone, first_of_launch);
  const ActivityTraits traits = traits_of(record, nullptr, first_of_launch);
  if (record.begin_ns < timeline.now()) return add_behind(record, InstanceId::kNone, nullptr, traits);
  timeline.add(record.begin_ns, record.end_ns, traits, nullptr);
}

/// Work whose owner is over, or that begins before where the timeline stands.
void Ledger::add_behind(const ActivityRecord& record, InstanceId owner, Instance* instance, ActivityTraits traits) {
  counters_.add(Counter::kRecordsLate);
  const std::uint32_t device = raw(record.device);
  DeviceTimeline& timeline = devices_[device]->timeline;
  if (record.begin_ns < timeline.now() && add_late(record, owner, traits)) return;
  // An instance that is over here may be gone before its late activity is swept; one around it that is not over stays.
  while (instance != nullptr && instance->shares[device].ended) instance = instance->parent;
  timeline.add(record.begin_ns, record.end_ns, traits, instance);
}

// --- the sweep ------------------------------------------------------------------------------------------------------

void Ledger::on_open(std::uint32_t device, Instance& instance, TimeNs) {
  InstanceOnDevice& share = instance.shares[device];
  share.opened = true;
  share.open_portion.window = devices_[device]->timeline.window();
  if (instance.top_level()) {
    std::deque<Instance*>& queue = devices_[device]->top_level[instance.thread];
    queue.push_back(&instance);
    if (queue.size() == 1) begin_share(device, instance);
  } else if (instance.root->shares[device].begun) {
    begin_share(device, instance);
  } else {
    instance.root->waiting.emplace_back(device, &instance);
  }
}

void Ledger::begin_share(std::uint32_t device, Instance& instance) {
  const DeviceTimeline& timeline = devices_[device]->timeline;
  InstanceOnDevice& share = instance.shares[device];
  share.begun = true;
  share.begin_ns = timeline.now();
  share.counted = timeline.class_times();
  if (!instance.top_level()) return;
  for (auto it = instance.waiting.begin(); it != instance.waiting.end();) {
    if (it->first != device) {
      ++it;
      continue;
    }
    Instance* nested = it->second;
    it = instance.waiting.erase(it);
    begin_share(device, *nested);
    (void)end_if_due(device, *nested);  // not top-level: cannot come back here
  }
}

void Ledger::on_end(std::uint32_t device, Instance& instance, TimeNs) {
  InstanceOnDevice& share = instance.shares[device];
  if (instance.awaited) {
    share.end_waits = true;
    return;
  }
  share.end_due = true;
  if (!share.begun) return;  // its thread's previous instance still runs here; it ends when it begins
  const std::uint32_t thread = instance.thread;
  const bool top_level = instance.top_level();
  end_share(device, instance);
  if (top_level) next_on_thread(device, thread);
}

/// An instance that just began, and whose end was met before: ends it, unless activities came meanwhile that still run.
bool Ledger::end_if_due(std::uint32_t device, Instance& instance) {
  InstanceOnDevice& share = instance.shares[device];
  if (!share.end_due) return false;
  DeviceTimeline& timeline = devices_[device]->timeline;
  if (instance.awaited || share.last_activity_end_ns > timeline.now()) {
    share.end_due = false;
    timeline.add_end_mark(instance, instance.close_ns);
    return false;
  }
  end_share(device, instance);
  return true;
}

void Ledger::end_share(std::uint32_t device, Instance& instance) {
  Device& on = *devices_[device];
  InstanceOnDevice& share = instance.shares[device];
  share.ended = true;
  share.end_ns = on.timeline.now();
  cut_slice(device, share);
  if (share.has_work() && !instance.closed_by_exit) follow_in_order(device, instance);
  if (instance.top_level()) {
    const auto queue = on.top_level.find(instance.thread);
    if (queue != on.top_level.end()) {
      // Nearly always the front one; behind it there may be as many as the CPU has run ahead.
      if (!queue->second.empty() && queue->second.front() == &instance)
        queue->second.pop_front();
      else
        std::erase(queue->second, &instance);
      // Threads come and go; those of a steady few keep their queues.
      if (queue->second.empty() && on.top_level.size() > kQueuesKept) on.top_level.erase(queue);
    }
  }
  --instance.shares_left;
  finish_if_complete(&instance);
}

/// What depends on the instances that ended on the device before this one.
void Ledger::follow_in_order(std::uint32_t device, Instance& instance) {
  Device& on = *devices_[device];
  InstanceOnDevice& share = instance.shares[device];
  share.nth = on.next_nth(instance.region);
  if (instance.decode.passes > 0 && !on.prefills.empty())
    row(window_of_end(share), raw(instance.region), device)
        .latency.add_decode(on.prefills, share.begin_ns, share.active ? share.first_activity_ns : share.begin_ns);
  if (instance.prefills()) on.prefills.add(share.last_activity_end_ns);
}

void Ledger::next_on_thread(std::uint32_t device, std::uint32_t thread) {
  while (true) {
    const auto queue = devices_[device]->top_level.find(thread);
    if (queue == devices_[device]->top_level.end() || queue->second.empty()) return;
    Instance& next = *queue->second.front();
    if (next.shares[device].begun) return;
    begin_share(device, next);
    if (!end_if_due(device, next)) return;
  }
}

void Ledger::cut_slice(std::uint32_t device, InstanceOnDevice& share) {
  // The timeline stands exactly here, so the instance's counters are complete up to now.
  const DeviceTimeline& timeline = devices_[device]->timeline;
  WindowSlice& portion = share.open_portion;
  if (share.begun) {
    const ClassTimes times = timeline.class_times();
    for (std::size_t c = 0; c < kTimeClasses; ++c) portion.time_ns[c] = times[c] - share.counted[c];
    share.counted = times;
  }
  for (std::size_t c = 0; c < kTimeClasses; ++c) share.time_ns[c] += portion.time_ns[c];
  share.elapsed_ns += portion.elapsed_ns();
  share.kernel_sum_ns += portion.kernel_sum_ns;
  share.matmul_sum_ns += portion.matmul_sum_ns;
  if (portion.elapsed_ns() != 0 || portion.kernel_sum_ns != 0) share.portions.push_back(portion);
  portion = WindowSlice{};
  portion.window = timeline.window() + 1;
}

void Ledger::on_edge(std::uint32_t device, std::int64_t window, TimeNs) {
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested) continue;
    InstanceOnDevice& share = instance->shares[device];
    if (share.opened && !share.ended) cut_slice(device, share);
  }
  Device& on = *devices_[device];
  RegionRow& total = row(window, kTotal, device);
  const ClassTimes times = on.timeline.class_times();
  for (std::size_t c = 0; c < kTimeClasses; ++c) total.time_ns[c] += times[c] - on.edge_times[c];
  total.busy_ns += on.timeline.busy_ns() - on.edge_busy_ns;
  total.kernel_sum_ns += on.timeline.kernel_sum_ns() - on.edge_sum_ns;
  on.edge_times = times;
  on.edge_busy_ns = on.timeline.busy_ns();
  on.edge_sum_ns = on.timeline.kernel_sum_ns();
  take_counts(device, window);
}

/// What began on `device` in `window` goes to each region of its region_path and to the process.
void Ledger::take_counts(std::uint32_t device, std::int64_t window) {
  std::vector<ActivityCounts>& by_region_path = devices_[device]->timeline.counts();
  for (std::uint32_t region_path = 0; region_path < by_region_path.size(); ++region_path) {
    ActivityCounts& counts = by_region_path[region_path];
    const std::uint64_t kernels =
        std::accumulate(counts.kernels.begin(), counts.kernels.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const KernelStat& stat) { return sum + stat.count; });
    if (counts.launches == 0 && kernels == 0) continue;
    for (std::uint32_t c = region_path;; c = region_paths_[c].outer) {
      RegionRow& into = row(window, c == 0 ? kTotal : raw(region_paths_[c].region), device);
      into.launches += counts.launches;
      into.kernels += kernels;
      into.add_kernels(counts.kernels);
      into.products.add(counts.products);
      if (c == 0) break;
    }
    counts.launches = 0;
    counts.products.clear();
    std::fill(counts.kernels.begin(), counts.kernels.end(), KernelStat{});
  }
}

// --- finished instances ---------------------------------------------------------------------------------------------

void Ledger::finish_if_complete(Instance* instance) {
  // Before the first record nobody knows on which device an instance ran; forget_idle settles those that ran on none.
  if (devices_.empty() && instance->kind != InstanceKind::kNested) return;
  while (instance != nullptr && instance->closed && instance->shares_left == 0 && instance->live_children == 0) {
    Instance* parent = instance->parent;
    if (instance->kind != InstanceKind::kNested) account(*instance);
    live_.remove(instance);
    if (parent != nullptr) --parent->live_children;
    instance = parent;
  }
}

// --- windows --------------------------------------------------------------------------------------------------------

std::size_t Ledger::pending() const noexcept {
  std::size_t sum = 0;
  for (const auto& device : devices_)
    if (device) sum += device->timeline.pending();
  return sum;
}

/// No device has appeared, so instances closed before `watermark` launched nothing: drop them.
void Ledger::forget_idle(TimeNs watermark) {
  for (std::size_t i = live_.size(); i-- > 0;) {
    if (i >= live_.size()) continue;
    Instance* instance = live_[i].get();
    if (!instance->closed || instance->awaited || instance->close_ns > watermark || instance->live_children != 0)
      continue;
    if (instance->parent != nullptr) --instance->parent->live_children;
    live_.remove(instance);
  }
}

void Ledger::await_launches_of(const std::vector<InstanceId>& owners) {
  const std::vector<InstanceId> before = std::exchange(awaited_, {});
  for (const InstanceId id : before)
    if (Instance* instance = live_.find(id)) instance->awaited = false;
  for (const InstanceId id : owners) {
    for (Instance* instance = live_.find(id); instance != nullptr && !instance->awaited; instance = instance->parent) {
      instance->awaited = true;
      awaited_.push_back(instance->id);
    }
  }
  for (const InstanceId id : before) {
    Instance* instance = live_.find(id);
    if (instance == nullptr || instance->awaited) continue;
    // Its last activity ends no earlier than the timeline stands: the mark moves on to there.
    for (std::uint32_t d = 0; d < instance->shares.size(); ++d)
      if (std::exchange(instance->shares[d].end_waits, false))
        devices_[d]->timeline.add_end_mark(*instance, instance->close_ns);
  }
}

void Ledger::advance(TimeNs watermark) {
  if (watermark <= swept_) return;
  if (devices_.empty()) forget_idle(watermark);
  note_added();
  sweep_to(watermark);
}

/// Stops where a window is emitted at the earliest and at the latest, so that its content follows from the times alone
/// and not from when somebody looked.
void Ledger::sweep_to(TimeNs watermark) {
  while (swept_ < watermark && !out_of_time()) {
    TimeNs stop = edge(next_window_ + 1);
    if (swept_ >= stop) stop += options_.window_ns;
    stop = stop > swept_ ? std::min(stop, watermark) : watermark;
    if (out_of_time_) stop = std::min(stop, swept_ + kBetweenLooks);
    for (const auto& device : devices_)
      if (device) device->sweep(stop);
    swept_ = stop;
    emit_ready(false);
  }
}

void Ledger::emit_ready(bool all) {
  while (edge(next_window_ + 1) <= swept_) {
    const TimeNs end = edge(next_window_ + 1);
    bool wait = false;
    if (!all && swept_ < end + options_.window_ns) {
      // Not for what can be split without knowing its end: parts, and time alone, if there is one place it can be.
      const auto several =
          std::count_if(devices_.begin(), devices_.end(), [](const auto& d) { return d != nullptr; }) > 1;
      for (const auto& instance : live_) {
        // What has begun nowhere begins later than the edge: its range opened early, as the CPU runs ahead.
        const bool begun = std::any_of(instance->shares.begin(), instance->shares.end(),
                                       [end](const auto& on) { return on.begun && on.begin_ns < end; });
        const bool can_split = (!instance->closed || instance->close_ns > end) && !several &&
                               (instance->phase == Phase::kNone || instance->by_parts());
        wait = wait || (instance->kind != InstanceKind::kNested && begun && !can_split);
      }
    }
    if (wait) return;
    emit(next_window_, end);
  }
}

/// An instance that is still open, or still runs, when a window is emitted: its time there is known, its FLOP only as
/// far as its parts say.
void Ledger::give_out_early(Instance& instance, std::int64_t window) {
  Work parts = Work::none();
  const bool by_parts = instance.by_parts();
  if (by_parts) {
    for (auto it = instance.parts_by_window.begin(); it != instance.parts_by_window.end() && it->first <= window;) {
      parts.add(it->second);
      it = instance.parts_by_window.erase(it);
    }
    instance.parts.flop -= parts.flop;
    instance.parts.hfu_flop -= parts.hfu_flop;
    instance.parts.bytes -= parts.bytes;
    instance.parts.tokens -= parts.tokens;
    instance.parts_given.add(parts);
  }
  const auto devices = devices_of(instance);
  for (const auto& [d, part] : devices) {
    if (d >= instance.shares.size()) continue;
    InstanceOnDevice& share = instance.shares[d];
    for (auto it = share.portions.begin(); it != share.portions.end();) {
      if (it->window > window) {
        ++it;
        continue;
      }
      RegionRow& into = row(window, raw(instance.region), d);
      add_times(into, *it);
      ++into.open;
      if (instance.phase != Phase::kNone && !by_parts) {
        into.flop_pending = true;
        bool inside_work = false;
        for (const Instance* outer = instance.parent; outer != nullptr; outer = outer->parent)
          inside_work = inside_work || outer->phase != Phase::kNone;
        if (!inside_work) row(window, kTotal, d).flop_pending = true;
      }
      it = share.portions.erase(it);
    }
    if (by_parts) add_work(instance, d, window, parts, part, true);
  }
}

void Ledger::emit(std::int64_t window, TimeNs end) {
  for (const auto& instance : live_)
    if (instance->kind != InstanceKind::kNested) give_out_early(*instance, window);
  WindowSummary out;
  out.window = {edge(window), end};
  const auto found = windows_.find(window);
  if (found != windows_.end()) {
    summarize(found->second, out);
    if (measured(out.window)) {
      for (const auto& [key, from] : found->second) run_[key].add(from);
    } else {
      for (RegionSummary& region : out.regions) {
        region.classes_known = false;
        region.flop = region.hfu_flop = region.bytes = region.mfu = region.mfu_busy = region.hfu = region.mbu =
            std::nullopt;
        region.roofline_s = region.mfu_lower = region.mbu_lower = std::nullopt;
        region.lost = std::nullopt;
        region.executed = std::nullopt;
        region.flop_source = FlopSource::kNone;
        region.components.clear();
        region.findings.clear();
        region.prefill_to_decode = LatencySummary{};
        region.after_prefill = std::nullopt;
        region.slowest.clear();
        for (BatchLatency& batch : region.by_batch) batch.flop = batch.bytes = batch.mfu = batch.mbu = std::nullopt;
        region.bound = Bound::kUnknown;
        region.suspect.clear();
      }
    }
    windows_.erase(found);
  }
  while (!unmeasured_.empty() && unmeasured_.front().end_ns <= out.window.begin_ns) unmeasured_.pop_front();
  next_window_ = window + 1;
  on_window_(std::move(out));
}

bool Ledger::measured(Interval window) const noexcept {
  return std::none_of(unmeasured_.begin(), unmeasured_.end(),
                      [window](const Interval& u) { return u.begin_ns < window.end_ns && window.begin_ns < u.end_ns; });
}

void Ledger::note_added() noexcept {
  for (const auto& device : devices_)
    if (device) device->timeline.note_added();
}

void Ledger::finish(TimeNs end) {
  note_added();
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested) continue;
    for (const InstanceOnDevice& share : instance->shares) end = std::max(end, share.last_activity_end_ns);
  }
  end = std::max(end, swept_);
  std::vector<Instance*> open;
  for (const auto& instance : live_)
    if (!instance->closed && instance->kind != InstanceKind::kNested) open.push_back(instance.get());
  // Parts that nobody closed say nothing: forget them, so that what they are part of can finish.
  for (std::size_t i = live_.size(); i-- > 0;) {
    if (i >= live_.size() || live_[i]->kind != InstanceKind::kNested) continue;
    live_[i]->closed = true;
    live_[i]->live_children = 0;
  }
  std::vector<Instance*> parts;
  for (const auto& instance : live_)
    if (instance->kind == InstanceKind::kNested) parts.push_back(instance.get());
  for (Instance* part : parts) {
    if (part->parent != nullptr) --part->parent->live_children;
    live_.remove(part);
  }
  for (Instance* instance : open) {
    instance->closed = true;
    instance->closed_by_exit = true;
    instance->close_ns = std::max(end, instance->open_ns);
    for (const auto& device : devices_)
      if (device) device->timeline.add_end_mark(*instance, instance->close_ns);
  }
  sweep_to(end);
  left_out_ns_ = end - swept_;
  end = swept_;
  for (const auto& device : devices_)
    if (device) device->sweep(end);  // marks at `end` where it was swept to already
  emit_ready(true);
  for (std::uint32_t d = 0; d < devices_.size(); ++d)
    if (devices_[d]) on_edge(d, devices_[d]->timeline.window(), end);
  if (end > edge(next_window_)) emit(next_window_, end);
  for (const auto& [window, rows] : windows_)  // of a window without length: what came late at its very begin
    for (const auto& [key, from] : rows) run_[key].add(from);
  WindowSummary out;
  out.final_run = true;
  out.window = {options_.origin_ns, end};
  summarize(run_, out);
  on_window_(std::move(out));
}

}  // namespace mfu

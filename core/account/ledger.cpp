#include "core/account/ledger.h"

#include <algorithm>
#include <utility>

#include "core/account/row_summary.h"

namespace mfu {
namespace {

constexpr DurationNs kBetweenLooks = kNsPerSecond / 100;  ///< time that is swept between two looks at the clock
constexpr std::size_t kQueuesKept = 64;                   ///< of threads that have no instance open, on a device
constexpr std::size_t kHistoryOfAll = 1u << 18;           ///< activities, of all devices: 4 MiB

}  // namespace

Ledger::Ledger(const RegionRules& rules, const FlopsModel* model, const Workload& workload, KernelNames& names,
               Counters& counters, LedgerOptions options, WindowCallback on_window)
    : rules_(rules),
      names_(names),
      counters_(counters),
      work_(rules, model, workload, names),
      rows_(rules, model, work_.roles(), names, {options.origin_ns, options.window_ns}, options.ranges_only,
            std::move(on_window)),
      swept_(options.origin_ns) {
  if (options.ranges_only) expect_device(0);
  if (rules.layer_in(rules.detected().forward, 0) != RegionId::kNone) layers_.emplace(*this, rules);
}

Ledger::Device& Ledger::new_device(std::uint32_t device) {
  if (device >= devices_.size()) devices_.resize(device + 1);
  devices_[device] = std::make_unique<Device>(device, rows_.grid(), static_cast<TimelineListener&>(*this));
  rows_.add_device(device);
  late_.add_device(device);
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested) continue;
    if (instance->shares.size() < devices_.size()) instance->shares.resize(devices_.size());
    ++instance->shares_left;
    devices_[device]->timeline.add_open_mark(*instance, instance->open_ns);
    if (instance->closed) devices_[device]->timeline.add_end_mark(*instance, instance->close_ns);
  }
  note_added();
  // It was idle until now; nothing can be pending before what the others have swept.
  sweep(device, swept_);
  return *devices_[device];
}

void Ledger::open(const InstanceSlot& slot, TimeNs at, const DetectedWork* work) {
  const bool detected = slot.kind == InstanceKind::kDetected;
  if (observer_ != nullptr && !detected) observer_->on_open(slot, at);
  rows_.note_named_by(slot.region, work != nullptr && work->by_interpreter ? NamedBy::kInterpreter
                                   : detected                              ? NamedBy::kDetector
                                   : rules_.is_of_framework(slot.rule)     ? NamedBy::kFramework
                                                                           : NamedBy::kRange);
  Instance& instance = live_.insert(slot.id);
  instance.kind = slot.kind;
  instance.region = slot.region;
  instance.rule = slot.rule;
  instance.phase = rules_.regions()[raw(slot.region)].phase;
  instance.thread = raw(slot.opener);
  instance.own_shape = slot.shape;
  instance.open_ns = std::max(at, origin());
  instance.parent = slot.parent == InstanceId::kNone ? nullptr : live_.find(slot.parent);
  leave_units_of_other_threads(instance);
  if (instance.parent != nullptr) {
    ++instance.parent->live_children;
    instance.root = instance.parent->root;
  }
  instance.region_path = rows_.path_of(instance.parent != nullptr ? instance.parent->region_path : 0, instance.region);
  const auto home = home_of_thread_.find(instance.thread);
  if (home != home_of_thread_.end()) instance.home_device = home->second;
  work_.open(instance, work);
  if (instance.kind == InstanceKind::kNested) return;
  instance.shares.resize(devices_.size());
  for (const auto& device : devices_) {
    if (!device) continue;
    ++instance.shares_left;
    device->timeline.add_open_mark(instance, instance.open_ns);
  }
}

/// Attribution nests a thread's outermost region in the one that another thread has open, as autograd's thread works
/// for the step of the main thread. Two threads that take steps side by side are not nested: a step or a pass of a
/// server is never inside another thread's region, and no region is inside its own kind.
void Ledger::leave_units_of_other_threads(Instance& instance) {
  const auto elsewhere = [&](const Instance& i) {
    return i.kind == InstanceKind::kThread && i.thread != instance.thread;
  };
  if (instance.kind != InstanceKind::kThread || instance.parent == nullptr || !elsewhere(*instance.parent)) return;
  const bool unit = instance.phase == Phase::kTrain || instance.phase == Phase::kPrefill ||
                    instance.phase == Phase::kDecode || instance.phase == Phase::kMixed;
  for (Instance* i = instance.parent; i != nullptr; i = i->parent)
    if (i->region == instance.region || (unit && elsewhere(*i))) instance.parent = i->parent;
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
  work_.close(*instance);
  if (instance->kind == InstanceKind::kNested) {
    join_parent(*instance);
    return finish_if_complete(instance);
  }
  for (std::uint32_t d = 0; d < devices_.size(); ++d)
    if (devices_[d]) devices_[d]->timeline.add_end_mark(*instance, instance->close_ns);
  finish_if_complete(instance);
}

/// The work of a part that closed is that of what it is a part of.
void Ledger::join_parent(Instance& part) {
  Instance* const whole = part.parent;
  if (whole == nullptr || part.phase == Phase::kNone) return;
  if (!whole->parts) whole->parts = std::make_unique<ClosedParts>();
  if (part.phase == Phase::kBackward && whole->phase != Phase::kBackward) part.work.tokens = 0;  // its forward pass's
  (part.detected().no_attention ? whole->parts->no_attention : whole->parts->attention) = true;
  whole->parts->sum.add(part.work);
  whole->parts->by_interpreter |= part.detected().by_interpreter;
  whole->flop_source = std::max(whole->flop_source, part.flop_source);
  whole->decode.add(part.decode);
  whole->parts->by_window.try_emplace(rows_.grid().window_of(part.close_ns), Work::none()).first->second.add(part.work);
  if (whole->closed) work_.close(*whole);  // a pass in a range is reported behind its end
}

void Ledger::notify_observer(const ActivityRecord& record, const Instance* instance, InstanceId owner,
                             bool first_of_launch) {
  const bool detected = instance != nullptr && instance->kind == InstanceKind::kDetected;
  observer_->on_record(record, detected ? InstanceId::kNone : owner, first_of_launch);
}

/// A graph that is one record: its time is work of an unknown class, with a name for itself.
ActivityTraits Ledger::graph_traits(bool first_of_launch) const {
  ActivityTraits traits(TimeClass::kOther, ActivityTraits::kKernel);
  traits.set_name(names_.intern(kWholeGraph));
  traits.set(first_of_launch ? ActivityTraits::kFirstOfLaunch : 0);
  return traits;
}

/// Work that was launched in no region.
void Ledger::add_unowned(const ActivityRecord& record, bool first_of_launch) {
  DeviceTimeline& timeline = device_at(raw(record.device)).timeline;
  if (observer_ != nullptr) notify_observer(record, nullptr, InstanceId::kNone, first_of_launch);
  const ActivityTraits traits = traits_of(record, nullptr, first_of_launch);
  if (record.direction == CopyDirection::kToHost) rows_.add_copied(raw(record.device), record.begin_ns, record.extent);
  if (record.begin_ns < timeline.now()) return add_behind(record, InstanceId::kNone, nullptr, traits);
  timeline.add(record.begin_ns, record.end_ns, traits, nullptr);
}

/// Work whose owner is over, or that begins before timeline.now().
void Ledger::add_behind(const ActivityRecord& record, InstanceId owner, Instance* instance, ActivityTraits traits) {
  counters_.add(Counter::kRecordsLate);
  const std::uint32_t device = raw(record.device);
  DeviceTimeline& timeline = devices_[device]->timeline;
  if (record.begin_ns < timeline.now() && late_.add(timeline, record, owner, traits)) return;
  // An instance that is over here may be gone before its late activity is swept; one around it that is not over stays.
  while (instance != nullptr && instance->shares[device].ended) instance = instance->parent;
  timeline.add(record.begin_ns, record.end_ns, traits, instance);
}

void Ledger::add_untimed(InstanceId owner, DeviceId device, Interval when, bool first) {
  expect_device(raw(device));
  for (Instance* i = live_.find(owner); i != nullptr; i = i->parent) ++i->shares[raw(device)].untimed;
  rows_.add_untimed(late_.region_path_of(raw(device), owner), raw(device), when, first);
}

void Ledger::on_open(std::uint32_t device, Instance& instance, TimeNs) {
  InstanceOnDevice& share = instance.shares[device];
  share.opened = true;
  share.open_portion.window = devices_[device]->timeline.window();
  if (instance.top_level()) {
    std::deque<Instance*>& queue = devices_[device]->top_level[instance.thread];
    queue.push_back(&instance);
    if (queue.size() == 1) begin_share(device, instance, devices_[device]->timeline.now());
  } else if (instance.parent->shares[device].begun) {
    begin_inside(device, instance, devices_[device]->timeline.now());
  } else {
    instance.parent->waiting.emplace_back(device, &instance);
  }
}

/// An instance inside one that has begun: at once, or where the one ends that its thread opened there before.
void Ledger::begin_inside(std::uint32_t device, Instance& instance, TimeNs at) {
  Instance* const before = std::exchange(instance.parent->shares[device].newest_inside, &instance);
  if (before != nullptr && before->thread == instance.thread)
    before->shares[device].behind = &instance;
  else
    begin_one_by_one(device, &instance, at);
}

/// An instance inside another one, and those that wait for its end, as far as they are over already.
void Ledger::begin_one_by_one(std::uint32_t device, Instance* next, TimeNs at) {
  while (next != nullptr) {
    begin_share(device, *next, at);
    Instance* const behind = next->shares[device].behind;
    at = end_of(device, *next);
    if (!end_if_due(device, *next)) return;
    next = behind;
  }
}

void Ledger::begin_share(std::uint32_t device, Instance& instance, TimeNs at) {
  DeviceTimeline& timeline = devices_[device]->timeline;
  InstanceOnDevice& share = instance.shares[device];
  share.begun = true;
  share.begin_ns = std::min(timeline.now(), std::max(at, instance.open_ns));
  share.counted = timeline.class_times();
  share.counted_gaps = timeline.cut_gaps().by_length();
  share.counted_work = timeline.idle_work().sums();
  late_.add_since(timeline, instance, device, share.begin_ns);
  for (auto it = instance.waiting.begin(); it != instance.waiting.end();) {
    if (it->first != device) {
      ++it;
      continue;
    }
    Instance* nested = it->second;
    it = instance.waiting.erase(it);
    begin_inside(device, *nested, share.begin_ns);
  }
}

/// Where an instance ends whose end mark is met. It is here, or before: where its launches were waited for, time may
/// have gone on beyond all of its work.
TimeNs Ledger::end_of(std::uint32_t device, const Instance& instance) const {
  const DeviceTimeline& timeline = devices_[device]->timeline;
  const InstanceOnDevice& share = instance.shares[device];
  const TimeNs over = std::max({share.begin_ns, instance.close_ns, share.last_activity_end_ns});
  return over < timeline.known_from() ? timeline.now() : std::min(over, timeline.now());
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
  Instance* const behind = share.behind;
  const TimeNs end = end_of(device, instance);
  end_share(device, instance, end);
  if (top_level)
    next_on_thread(device, thread, end);
  else
    begin_one_by_one(device, behind, end);
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
  end_share(device, instance, end_of(device, instance));
  return true;
}

void Ledger::end_share(std::uint32_t device, Instance& instance, TimeNs at) {
  Device& on = *devices_[device];
  InstanceOnDevice& share = instance.shares[device];
  late_.take_since(on.timeline, instance, device, at);
  share.ended = true;
  share.end_ns = at;
  cut_slice(device, share);
  if (share.has_work() && !instance.closed_by_exit) rows_.follow_in_order(device, instance);
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
  } else if (Instance*& newest = instance.parent->shares[device].newest_inside; newest == &instance) {
    newest = nullptr;
  }
  --instance.shares_left;
  finish_if_complete(&instance);
}

void Ledger::next_on_thread(std::uint32_t device, std::uint32_t thread, TimeNs at) {
  while (true) {
    const auto queue = devices_[device]->top_level.find(thread);
    if (queue == devices_[device]->top_level.end() || queue->second.empty()) return;
    Instance& next = *queue->second.front();
    if (next.shares[device].begun) return;
    begin_share(device, next, at);
    at = end_of(device, next);
    if (!end_if_due(device, next)) return;
  }
}

void Ledger::cut_slice(std::uint32_t device, InstanceOnDevice& share) {
  // The timeline is exactly here, so the instance's counters are complete up to now.
  DeviceTimeline& timeline = devices_[device]->timeline;
  WindowSlice& portion = share.open_portion;
  if (share.begun) {
    const ClassTimes times = timeline.class_times();
    for (std::size_t c = 0; c < kTimeClasses; ++c) portion.time_ns[c] = times[c] - share.counted[c];
    share.counted = times;
    const DurationNs idle_ns = portion.time_ns[static_cast<std::size_t>(TimeClass::kIdle)];
    if (!share.active) portion.idle.before = idle_ns;
    if (share.ended) portion.idle.after = std::min(timeline.quiet_ns(), idle_ns - portion.idle.before);
    portion.idle.inside = idle_ns - portion.idle.before - portion.idle.after;
    const auto gaps = timeline.cut_gaps().by_length();
    portion.idle.under_20us = gaps[0] - share.counted_gaps[0];
    portion.idle.under_1ms = gaps[1] - share.counted_gaps[1];
    portion.idle.longer = gaps[2] - share.counted_gaps[2];
    share.counted_gaps = gaps;
    portion.idle_work = timeline.idle_work().since(share.counted_work);
  }
  add_times(share.time_ns, portion.time_ns);
  share.elapsed_ns += portion.elapsed_ns();
  share.kernel_sum_ns += portion.kernel_sum_ns;
  share.matmul_sum_ns += portion.matmul_sum_ns;
  if (portion.elapsed_ns() != 0 || portion.kernel_sum_ns != 0) share.portions.push_back(portion);
  portion = WindowSlice{};
  portion.window = timeline.window() + 1;
}

void Ledger::on_edge(std::uint32_t device, std::int64_t, TimeNs) {
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested) continue;
    InstanceOnDevice& share = instance->shares[device];
    if (share.opened && !share.ended) cut_slice(device, share);
  }
  rows_.close_edge(device, devices_[device]->timeline);
}

void Ledger::on_corrected(std::uint32_t device, const Corrections& corrections) {
  late_.correct(devices_[device]->timeline, device, corrections);
}

void Ledger::finish_if_complete(Instance* instance) {
  // Before the first record the device of an instance is unknown; forget_idle settles those that ran on none.
  if (devices_.empty() && instance->kind != InstanceKind::kNested) return;
  while (instance != nullptr && instance->closed && instance->shares_left == 0 && instance->live_children == 0) {
    Instance* parent = instance->parent;
    if (instance->kind != InstanceKind::kNested) account(*instance);
    live_.remove(instance);
    if (parent != nullptr) --parent->live_children;
    instance = parent;
  }
}

void Ledger::account(Instance& instance) {
  if (instance.closed_by_exit && instance.phase != Phase::kNone) return counters_.add(Counter::kInstancesUnclosed);
  work_.complete(instance);
  const WindowRows::Shares shares = rows_.shares_of(instance);
  for (const auto& [device, part] : shares) {
    late_.keep(instance, device, devices_[device]->timeline.known_from());
    if (observer_ != nullptr) observer_->on_finished(instance, device, part);
  }
  rows_.account(instance, shares);
}

void Ledger::add_host_work(const WorkSpan& span) {
  rows_.note_host_seen();
  for (const auto& device : devices_)
    if (device) device->timeline.idle_work().add(span);
}

DurationNs Ledger::long_gaps_ns() const noexcept {
  DurationNs sum = 0;
  for (const auto& device : devices_)
    if (device) sum += device->timeline.idle_work().long_ns();
  return sum;
}

DurationNs Ledger::busy_ns() const noexcept {
  DurationNs sum = 0;
  for (const auto& device : devices_)
    if (device) sum += device->timeline.busy_ns();
  return sum;
}

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
    // Its last activity ends no earlier than timeline.now(): the mark moves on to there.
    for (std::uint32_t d = 0; d < instance->shares.size(); ++d)
      if (std::exchange(instance->shares[d].end_waits, false))
        devices_[d]->timeline.add_end_mark(*instance, instance->close_ns);
  }
}

void Ledger::advance(TimeNs watermark) {
  if (layers_) watermark = layers_->release(live_, watermark, false);
  if (watermark <= swept_) return;
  if (devices_.empty()) forget_idle(watermark);
  note_added();
  sweep_to(watermark);
}

void Ledger::sweep(std::uint32_t device, TimeNs until) {
  devices_[device]->timeline.sweep(until);
  late_.swept(device);
}

/// Stops where a window is emitted at the earliest and at the latest, so that its content follows from the times alone
/// and not from the moments at which advance() is called.
void Ledger::sweep_to(TimeNs watermark) {
  while (swept_ < watermark && !out_of_time()) {
    TimeNs stop = rows_.next_end();
    if (swept_ >= stop) stop += window_ns();
    stop = stop > swept_ ? std::min(stop, watermark) : watermark;
    if (out_of_time_) stop = std::min(stop, swept_ + kBetweenLooks);
    for (std::uint32_t d = 0; d < devices_.size(); ++d)
      if (devices_[d]) sweep(d, stop);
    swept_ = stop;
    emit_ready(false);
  }
}

/// The window that ends at `end` waits for instances in it. Not for what can be split without knowing its end: parts,
/// and time alone, if there is one device it can be on.
bool Ledger::waits_for_live(TimeNs end) const {
  const bool several = used_devices() > 1;
  return std::any_of(live_.begin(), live_.end(), [&](const auto& instance) {
    // An instance that began on no device begins later than the edge: its range opened early, as the CPU runs ahead.
    const bool begun = std::any_of(instance->shares.begin(), instance->shares.end(),
                                   [end](const auto& on) { return on.begun && on.begin_ns < end; });
    const bool can_split = (!instance->closed || instance->close_ns > end) && !several &&
                           (instance->phase == Phase::kNone || instance->by_parts());
    return instance->kind != InstanceKind::kNested && begun && !can_split;
  });
}

void Ledger::emit_ready(bool all) {
  while (rows_.next_end() <= swept_) {
    const TimeNs end = rows_.next_end();
    if (!all && swept_ < end + window_ns() && waits_for_live(end)) return;
    rows_.emit(live_);
  }
}

std::size_t Ledger::used_devices() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(devices_.begin(), devices_.end(), [](const auto& device) { return device != nullptr; }));
}

void Ledger::keep_from(TimeNs from) noexcept {
  const std::size_t count = used_devices();
  for (const auto& device : devices_)
    if (device) device->timeline.keep_from(from, kHistoryOfAll / count);
}

void Ledger::note_added() noexcept {
  for (const auto& device : devices_)
    if (device) device->timeline.note_added();
}

/// Closes everything that is open when the run ends.
void Ledger::close_all(TimeNs end, TimeNs exit) {
  // Open parts have no work: forget them, so that what they are part of can finish.
  std::vector<Instance*> parts;
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested) {
      instance->live_children = 0;
      parts.push_back(instance.get());
    } else if (!instance->closed || instance->close_ns > end) {
      instance->closed_by_exit = !instance->closed || instance->close_ns > std::max(end, exit);
      instance->closed = true;
      instance->close_ns = std::max(end, instance->open_ns);
      for (const auto& device : devices_)
        if (device) device->timeline.add_end_mark(*instance, instance->close_ns);
    }
  }
  for (Instance* part : parts) {
    if (part->parent != nullptr) --part->parent->live_children;
    live_.remove(part);
  }
}

void Ledger::finish(TimeNs end, TimeNs exit) {
  if (layers_) (void)layers_->release(live_, end, true);
  note_added();
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested) continue;
    for (const InstanceOnDevice& share : instance->shares) end = std::max(end, share.last_activity_end_ns);
  }
  end = std::max(end, swept_);
  close_all(end, exit);
  sweep_to(end);
  left_out_ns_ = end - swept_;
  end = swept_;
  for (std::uint32_t d = 0; d < devices_.size(); ++d)
    if (devices_[d]) sweep(d, end);  // marks at `end` where it was swept to already
  emit_ready(true);
  for (std::uint32_t d = 0; d < devices_.size(); ++d)
    if (devices_[d]) on_edge(d, devices_[d]->timeline.window(), end);
  rows_.finish(live_, end);
}

void Ledger::emit_so_far() {
  for (std::uint32_t d = 0; d < devices_.size(); ++d)
    if (devices_[d]) rows_.close_edge(d, devices_[d]->timeline);
  rows_.emit_run(swept_, true);
}

}  // namespace mfu

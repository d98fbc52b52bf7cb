#include "core/account/late_work.h"

#include <algorithm>
#include <optional>
#include <type_traits>

namespace mfu {
namespace {

constexpr std::size_t kMostLate = 1u << 13;  ///< on one device, between two sweeps
constexpr std::size_t kMostOver = 1u << 12;  ///< instances
constexpr std::size_t kKernelClasses = 3;    ///< matmul, other, comm
static_assert(static_cast<std::size_t>(TimeClass::kMemcpy) == kKernelClasses);

[[nodiscard]] bool runs_kernel(TimeClass time_class) noexcept {
  return static_cast<std::size_t>(time_class) < kKernelClasses;
}

[[nodiscard]] DurationNs busy_of(const ClassTimes& times) noexcept {
  DurationNs sum = 0;
  for (std::size_t c = 0; c < kKernelClasses; ++c) sum += times[c];
  return sum;
}

}  // namespace

void LateWork::add_device(std::uint32_t device) {
  if (device >= devices_.size()) devices_.resize(device + 1);
  devices_[device] = std::make_unique<Device>();
}

void LateWork::keep(const Instance& instance, std::uint32_t device, TimeNs known_from) {
  const InstanceOnDevice& share = instance.shares[device];
  if (!share.ended || !share.begun) return;
  std::deque<Over>& over = devices_[device]->over;
  over.push_back({instance.id, instance.parent != nullptr ? instance.parent->id : InstanceId::kNone,
                  raw(instance.region), instance.region_path, share.begin_ns, share.end_ns});
  while (!over.empty() && (over.size() > kMostOver || over.front().end_ns <= known_from)) over.pop_front();
}

/// Calls `change` with what is kept of an instance that is not accounted for in a window: the slice, or where it went.
template <typename Change>
void LateWork::change_slice(const DeviceTimeline& timeline, Instance& instance, std::uint32_t device,
                            std::int64_t window, Change&& change) {
  InstanceOnDevice& share = instance.shares[device];
  if (!share.ended && window == timeline.window()) return change(share.open_portion);
  if (rows_.is_emitted(window)) return rows_.change(window, raw(instance.region), device, change);
  auto slice = std::find_if(share.portions.begin(), share.portions.end(),
                            [window](const WindowSlice& portion) { return portion.window == window; });
  if (slice == share.portions.end()) {
    slice = share.portions.emplace(share.portions.end());
    slice->window = window;
  }
  change(*slice);
}

bool LateWork::add(DeviceTimeline& timeline, const ActivityRecord& record, InstanceId owner, ActivityTraits traits) {
  const std::uint32_t d = raw(record.device);
  Device& on = *devices_[d];
  if (on.owners.size() >= kMostLate) return false;
  const TimeClass time_class = traits.time_class();
  const bool is_kernel = runs_kernel(time_class);
  // From now on the timeline adds it up, for the process and for instances that are not over.
  const Interval past{record.begin_ns, std::min(record.end_ns, timeline.now())};
  const Interval whole{record.begin_ns, record.end_ns};
  const auto sum_up = [&](auto& of, DurationNs length) {
    of.kernel_sum_ns += length;
    if constexpr (std::is_same_v<decltype(of), WindowSlice&>)
      of.matmul_sum_ns += time_class == TimeClass::kMatmul ? length : 0;
  };
  const auto in_rows = [&](std::uint32_t region, Interval interval) {
    if (!is_kernel) return;
    rows_.grid().split(interval, [&](std::int64_t window, Interval part) {
      rows_.change(window, region, d, [&](RegionRow& of) { sum_up(of, part.end_ns - part.begin_ns); });
    });
  };
  in_rows(WindowRows::kTotal, past);
  const Owners owners = owners_from(on, owner);
  Instance* runs_in = nullptr;  // the innermost that is not over
  for (const auto& found : owners) {
    if (const auto* over = std::get_if<const Over*>(&found)) {
      in_rows((*over)->region, whole);
      continue;
    }
    Instance& instance = *std::get<Instance*>(found);
    InstanceOnDevice& share = instance.shares[d];
    if (!share.ended && runs_in == nullptr) runs_in = &instance;
    if (!is_kernel) continue;
    rows_.grid().split(share.ended ? whole : past, [&](std::int64_t window, Interval part) {
      const DurationNs length = part.end_ns - part.begin_ns;
      change_slice(timeline, instance, d, window, [&](auto& of) { sum_up(of, length); });
      if (!share.ended && window == timeline.window()) return;  // its sums follow when the slice is cut
      share.kernel_sum_ns += length;
      share.matmul_sum_ns += time_class == TimeClass::kMatmul ? length : 0;
    });
  }
  timeline.add_late(record.begin_ns, record.end_ns, traits, runs_in, path_of(owners));
  on.owners.push_back(owner);
  return true;
}

/// Of an interval before now(). Instances that were held open end one behind another, at one moment of a sweep.
ClassTimes LateWork::past_times(DeviceTimeline& timeline, std::uint32_t device, Interval interval) {
  Device& on = *devices_[device];
  if (!on.past || interval.begin_ns < on.past_from || interval.end_ns > on.past_until) {
    on.past = timeline.past_classes(on.past_from = interval.begin_ns);
    on.past_until = timeline.now();
  }
  ClassTimes times = on.past->within(interval);
  times[static_cast<std::size_t>(TimeClass::kIdle)] += interval.length_ns();
  return times;
}

/// Its class times since `at`, with the sign: those of past windows are kept by window, those of the one that the
/// timeline is in follow from `counted`.
void LateWork::change_since(DeviceTimeline& timeline, Instance& instance, std::uint32_t device, TimeNs at, int sign) {
  InstanceOnDevice& share = instance.shares[device];
  const auto times_of = [&](Interval interval) {
    ClassTimes times = past_times(timeline, device, interval);
    for (DurationNs& t : times) t *= sign;
    return times;
  };
  const TimeNs edge = std::max(at, rows_.grid().edge(timeline.window()));
  rows_.grid().split({at, edge}, [&](std::int64_t window, Interval part) {
    const ClassTimes times = times_of(part);
    add_times(share.time_ns, times);
    share.elapsed_ns += sign * part.length_ns();
    change_slice(timeline, instance, device, window, [&times](auto& of) { add_times(of.time_ns, times); });
  });
  const ClassTimes times = times_of({edge, timeline.now()});
  for (std::size_t c = 0; c < kTimeClasses; ++c) share.counted[c] -= times[c];
}

void LateWork::correct(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections) {
  const Interval hull = corrections.hull();
  correct_process(device, corrections, {hull.begin_ns, std::min(hull.end_ns, rows_.grid().edge(timeline.window()))});
  correct_instances(timeline, device, corrections);
  correct_owners(timeline, device, corrections);
}

/// The window that the timeline is in follows from class_times(), less those at its begin.
void LateWork::correct_process(std::uint32_t device, const Corrections& corrections, Interval past) {
  rows_.grid().split(past, [&](std::int64_t window, Interval part) {
    const ClassTimes by = corrections.within(part);
    rows_.correct_edge(device, by, busy_of(by));
    rows_.change(window, WindowRows::kTotal, device, [&](RegionRow& of) {
      add_times(of.time_ns, by);
      of.busy_ns += busy_of(by);
    });
  });
}

/// The instances that it fell into.
void LateWork::correct_instances(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections) {
  const Interval hull = corrections.hull();
  const TimeNs edge = rows_.grid().edge(timeline.window());
  const auto change_times = [](const ClassTimes& by) { return [&by](auto& of) { add_times(of.time_ns, by); }; };
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested || device >= instance->shares.size()) continue;
    InstanceOnDevice& share = instance->shares[device];
    if (!share.begun) continue;
    const TimeNs cut = share.ended ? share.end_ns : std::max(share.begin_ns, edge);
    rows_.grid().split(hull.overlap({share.begin_ns, cut}), [&](std::int64_t window, Interval part) {
      const ClassTimes by = corrections.within(part);
      add_times(share.time_ns, by);
      change_slice(timeline, *instance, device, window, change_times(by));
    });
    if (!share.ended) add_times(share.counted, corrections.within({hull.begin_ns, cut}));
  }
  for (const Over& over : devices_[device]->over)
    rows_.grid().split(hull.overlap({over.begin_ns, over.end_ns}), [&](std::int64_t window, Interval part) {
      const ClassTimes by = corrections.within(part);
      rows_.change(window, over.region, device, change_times(by));
    });
}

/// Those whose work it is: busy for as long as no kernel was known to run.
void LateWork::correct_owners(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections) {
  const Device& on = *devices_[device];
  Owners owners;
  std::optional<std::uint32_t> owners_of;
  for (const Correction& c : corrections.list()) {
    if (!runs_kernel(c.to) || runs_kernel(c.from)) continue;
    if (owners_of != c.late) {
      owners_of = c.late;
      owners = owners_from(on, on.owners.at(c.late));
    }
    for (const auto& owner : owners) {
      const auto* over = std::get_if<const Over*>(&owner);
      Instance* const instance = over == nullptr ? std::get<Instance*>(owner) : nullptr;
      Interval lived{c.begin_ns, c.end_ns};
      if (over != nullptr)
        lived = {(*over)->begin_ns, (*over)->end_ns};
      else if (const InstanceOnDevice& share = instance->shares[device]; share.ended)
        lived = {share.begin_ns, share.end_ns};
      rows_.grid().split(lived.overlap({c.begin_ns, c.end_ns}), [&](std::int64_t window, Interval part) {
        const auto busy = [&part](auto& of) { of.busy_ns += part.end_ns - part.begin_ns; };
        if (over != nullptr)
          rows_.change(window, (*over)->region, device, busy);
        else
          change_slice(timeline, *instance, device, window, busy);
      });
    }
  }
}

/// An instance and those around it, as far as something is kept of them.
LateWork::Owners LateWork::owners_from(const Device& on, InstanceId id) const {
  Owners owners;
  while (id != InstanceId::kNone) {
    if (Instance* instance = live_.find(id)) {
      owners.emplace_back(instance);
      id = instance->parent != nullptr ? instance->parent->id : InstanceId::kNone;
      continue;
    }
    const auto found = std::find_if(on.over.rbegin(), on.over.rend(), [id](const Over& o) { return o.id == id; });
    if (found == on.over.rend()) break;
    owners.emplace_back(&*found);
    id = found->outer;
  }
  return owners;
}

}  // namespace mfu

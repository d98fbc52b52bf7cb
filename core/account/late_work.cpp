// The part of the ledger that accounts for work whose record came after its time had been swept: a long kernel that
// time went past, a buffer that CUPTI kept back. Its time is put where it was, in windows that are not out yet and in
// the totals of the run, of the process as of the instances that it fell into.
#include <algorithm>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/account/ledger.h"

namespace mfu {

namespace {

constexpr std::size_t kMostLate = 1u << 13;      ///< on one device, between two sweeps
constexpr std::size_t kMostOver = 1u << 12;      ///< instances
constexpr std::size_t kHistoryOfAll = 1u << 18;  ///< activities, of all devices: 4 MiB
constexpr std::size_t kKernelClasses = 3;        ///< matmul, other, comm
static_assert(static_cast<std::size_t>(TimeClass::kMemcpy) == kKernelClasses);

[[nodiscard]] bool runs_kernel(TimeClass time_class) noexcept {
  return static_cast<std::size_t>(time_class) < kKernelClasses;
}

[[nodiscard]] DurationNs busy_of(const ClassTimes& times) noexcept {
  DurationNs sum = 0;
  for (std::size_t c = 0; c < kKernelClasses; ++c) sum += times[c];
  return sum;
}

void add_to(ClassTimes& to, const ClassTimes& more) noexcept {
  for (std::size_t c = 0; c < kTimeClasses; ++c) to[c] += more[c];
}

[[nodiscard]] Interval overlap(Interval a, Interval b) noexcept {
  return {std::max(a.begin_ns, b.begin_ns), std::min(a.end_ns, b.end_ns)};
}

}  // namespace

void Ledger::keep_from(TimeNs from) noexcept {
  const auto count = static_cast<std::size_t>(
      std::count_if(devices_.begin(), devices_.end(), [](const auto& device) { return device != nullptr; }));
  for (const auto& device : devices_)
    if (device) device->timeline.keep_from(from, kHistoryOfAll / count);
}

/// Calls `each` with every window that the interval touches and what of it is there.
template <typename Each>
void Ledger::by_window(Interval interval, Each&& each) const {
  interval.begin_ns = std::max(interval.begin_ns, options_.origin_ns);
  while (interval.begin_ns < interval.end_ns) {
    const std::int64_t window = (interval.begin_ns - options_.origin_ns) / options_.window_ns;
    const TimeNs end = std::min(interval.end_ns, edge(window + 1));
    each(window, Interval{interval.begin_ns, end});
    interval.begin_ns = end;
  }
}

/// Calls `change` with what is kept of a region on a device in a window: nothing where the window was not measured.
template <typename Change>
void Ledger::change_row(std::int64_t window, std::uint32_t region, std::uint32_t device, Change&& change) {
  if (window >= next_window_ || measured({edge(window), edge(window + 1)})) change(row(window, region, device));
}

/// The same of an instance that is not accounted for yet: the slice of the window, or where the slice has gone.
template <typename Change>
void Ledger::change_slice(Instance& instance, std::uint32_t device, std::int64_t window, Change&& change) {
  InstanceOnDevice& share = instance.shares[device];
  if (!share.ended && window == devices_[device]->timeline.window()) return change(share.open_portion);
  if (window < next_window_) return change_row(window, raw(instance.region), device, change);
  auto slice = std::find_if(share.portions.begin(), share.portions.end(),
                            [window](const WindowSlice& portion) { return portion.window == window; });
  if (slice == share.portions.end()) {
    slice = share.portions.emplace(share.portions.end());
    slice->window = window;
  }
  change(*slice);
}

/// The instance is accounted for; what comes late may still belong to it, or to its time.
void Ledger::keep_over(const Instance& instance, std::uint32_t device) {
  const InstanceOnDevice& share = instance.shares[device];
  if (!share.ended || !share.begun) return;
  Device& on = *devices_[device];
  on.over.push_back({instance.id, instance.parent != nullptr ? instance.parent->id : InstanceId::kNone,
                     raw(instance.region), instance.region_path, share.begin_ns, share.end_ns});
  while (on.over.size() > kMostOver || on.over.front().end_ns <= on.timeline.known_from()) {
    on.over.pop_front();
    if (on.over.empty()) break;
  }
}

/// \return false: there is too much of it; it counts from where the timeline stands.
bool Ledger::add_late(const ActivityRecord& record, InstanceId owner, ActivityTraits traits) {
  const TimeClass time_class = traits.time_class();
  const std::uint32_t d = raw(record.device);
  Device& on = *devices_[d];
  if (on.late_owners.size() >= kMostLate) return false;
  const bool is_kernel = runs_kernel(time_class);
  // From now on the timeline adds it up, for the process and for instances that are not over.
  const Interval past{record.begin_ns, std::min(record.end_ns, on.timeline.now())};
  const Interval whole{record.begin_ns, record.end_ns};
  const auto sum_up = [&](auto& of, DurationNs length) {
    of.kernel_sum_ns += length;
    if constexpr (std::is_same_v<decltype(of), WindowSlice&>)
      of.matmul_sum_ns += time_class == TimeClass::kMatmul ? length : 0;
  };
  const auto in_rows = [&](std::uint32_t region, Interval interval) {
    if (!is_kernel) return;
    by_window(interval, [&](std::int64_t window, Interval part) {
      change_row(window, region, d, [&](RegionRow& of) { sum_up(of, part.end_ns - part.begin_ns); });
    });
  };
  in_rows(kTotal, past);
  const Owners owners = owners_from(d, owner);
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
    by_window(share.ended ? whole : past, [&](std::int64_t window, Interval part) {
      const DurationNs length = part.end_ns - part.begin_ns;
      change_slice(instance, d, window, [&](auto& of) { sum_up(of, length); });
      if (!share.ended && window == on.timeline.window()) return;  // its sums follow when the slice is cut
      share.kernel_sum_ns += length;
      share.matmul_sum_ns += time_class == TimeClass::kMatmul ? length : 0;
    });
  }
  std::uint32_t region_path = 0;
  if (!owners.empty()) region_path = std::visit([](const auto* found) { return found->region_path; }, owners.front());
  on.timeline.add_late(record.begin_ns, record.end_ns, traits, runs_in, region_path);
  on.late_owners.push_back(owner);
  return true;
}

void Ledger::on_corrected(std::uint32_t device, const Corrections& corrections, TimeNs at) {
  Device& on = *devices_[device];
  const Interval hull = corrections.hull();
  const std::int64_t current = on.timeline.window();
  const auto change_times = [](const ClassTimes& by) { return [&by](auto& of) { add_to(of.time_ns, by); }; };

  // The process. The window that the timeline is in follows from class_times(), less those at its begin.
  by_window({hull.begin_ns, std::min(hull.end_ns, edge(current))}, [&](std::int64_t window, Interval part) {
    const ClassTimes by = corrections.within(part);
    add_to(on.edge_times, by);
    on.edge_busy_ns += busy_of(by);
    change_row(window, kTotal, device, [&](RegionRow& of) {
      add_to(of.time_ns, by);
      of.busy_ns += busy_of(by);
    });
  });

  // The instances that it fell into.
  for (const auto& instance : live_) {
    if (instance->kind == InstanceKind::kNested || device >= instance->shares.size()) continue;
    InstanceOnDevice& share = instance->shares[device];
    if (!share.begun) continue;
    const TimeNs cut = share.ended ? share.end_ns : std::max(share.begin_ns, edge(current));
    by_window(overlap(hull, {share.begin_ns, cut}), [&](std::int64_t window, Interval part) {
      const ClassTimes by = corrections.within(part);
      add_to(share.time_ns, by);
      change_slice(*instance, device, window, change_times(by));
    });
    if (!share.ended) add_to(share.counted, corrections.within({hull.begin_ns, cut}));
  }
  for (const Over& over : on.over)
    by_window(overlap(hull, {over.begin_ns, over.end_ns}), [&](std::int64_t window, Interval part) {
      const ClassTimes by = corrections.within(part);
      change_row(window, over.region, device, change_times(by));
    });

  // Those whose work it is: busy for as long as no kernel was known to run.
  Owners owners;
  std::optional<std::uint32_t> owners_of;
  for (const Correction& c : corrections.list()) {
    if (!runs_kernel(c.to) || runs_kernel(c.from)) continue;
    if (owners_of != c.late) {
      owners_of = c.late;
      owners = owners_from(device, on.late_owners.at(c.late));
    }
    for (const auto& owner : owners) {
      const auto busy = [](const Interval& part) {
        return [length = part.end_ns - part.begin_ns](auto& of) { of.busy_ns += length; };
      };
      if (const auto* over = std::get_if<const Over*>(&owner)) {
        by_window(overlap({c.begin_ns, c.end_ns}, {(*over)->begin_ns, (*over)->end_ns}),
                  [&](std::int64_t window, Interval part) { change_row(window, (*over)->region, device, busy(part)); });
        continue;
      }
      Instance& instance = *std::get<Instance*>(owner);
      const InstanceOnDevice& share = instance.shares[device];
      if (share.begun)
        by_window(overlap({c.begin_ns, c.end_ns}, {share.begin_ns, share.ended ? share.end_ns : at}),
                  [&](std::int64_t window, Interval part) { change_slice(instance, device, window, busy(part)); });
    }
  }
}

/// An instance and those around it, as far as something is kept of them.
Ledger::Owners Ledger::owners_from(std::uint32_t device, InstanceId id) {
  Owners owners;
  const std::deque<Over>& over = devices_[device]->over;
  while (id != InstanceId::kNone) {
    if (Instance* instance = live_.find(id)) {
      owners.emplace_back(instance);
      id = instance->parent != nullptr ? instance->parent->id : InstanceId::kNone;
      continue;
    }
    const auto found = std::find_if(over.rbegin(), over.rend(), [id](const Over& o) { return o.id == id; });
    if (found == over.rend()) break;
    owners.emplace_back(&*found);
    id = found->outer;
  }
  return owners;
}

}  // namespace mfu

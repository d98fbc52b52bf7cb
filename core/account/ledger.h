// The account of the run: instances and activities in, closed windows out.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/account/account_observer.h"
#include "core/account/device_timeline.h"
#include "core/account/instance.h"
#include "core/account/late_work.h"
#include "core/account/layer_splitter.h"
#include "core/account/live_instances.h"
#include "core/account/window_rows.h"
#include "core/account/work_resolver.h"
#include "core/base/activity_record.h"
#include "core/base/counters.h"
#include "core/kernels/kernel_names.h"
#include "core/model/flops_model.h"
#include "core/model/workload.h"
#include "core/peak/peak.h"
#include "core/ranges/region_rules.h"
#include "core/rows/region_summary.h"

namespace mfu {

struct LedgerOptions {
  TimeNs origin_ns = 0;
  DurationNs window_ns = 10 * kNsPerSecond;
  bool ranges_only = false;  ///< no device activity to be had: times of the ranges alone
};

/// [mfu-drain] Single-threaded, no clock, no I/O: windows follow from the calls alone. Times in ns on one clock.
///
/// Every instance is followed on every device: it begins at the later of its range's opening and the end of the
/// previous top-level instance of its thread there, and ends at the later of its range's closing and its last
/// activity. Windows are cut at fixed edges; an instance across an edge is split there, its FLOP by elapsed time. A
/// window is emitted once everything that touches it is finished, or one window later at most; an instance still open
/// then has its time in it, but no FLOP.
class Ledger final : private TimelineListener {
 public:
  using WindowCallback = WindowRows::WindowCallback;

  Ledger(const RegionRules& rules, const FlopsModel* model, const Workload& workload, KernelNames& names,
         Counters& counters, LedgerOptions options, WindowCallback on_window);

  /// The peaks that ratios on `device` are divided by. Before its first window is emitted.
  void set_peak(std::uint32_t device, const Peak& peak) {
    expect_device(device);
    rows_.set_peak(device, peak);
  }

  /// Records carry numbers of these products, which must outlive the ledger. Before the first add().
  void watch_products(const ProductTable& products) noexcept { work_.roles().watch(products); }

  /// Registers an observer, which must outlive the ledger. Call before the first open() or add().
  void observe(AccountObserver* observer) noexcept { observer_ = observer; }

  /// A range opened, or, with `detected`, work without one began. `slot` is copied from; call in order of time,
  /// together with `close`.
  void open(const InstanceSlot& slot, TimeNs at, const DetectedWork* detected = nullptr);
  /// Its range closed. `home_device`: where its thread launched last, if it ever did.
  void close(const InstanceSlot& slot, TimeNs at, std::optional<std::uint32_t> home_device);

  /// nullptr: it is accounted for, or was never opened.
  [[nodiscard]] const Instance* find(InstanceId id) noexcept { return live_.find(id); }

  /// In order of time; before time goes on past it.
  void add_host_work(const WorkSpan& span);
  /// Idle time so far in gaps that are long enough to look into, of all devices.
  [[nodiscard]] DurationNs long_gaps_ns() const noexcept;
  /// Time in which kernels ran so far, of all devices together.
  [[nodiscard]] DurationNs busy_ns() const noexcept;

  /// Work runs on `device`, whose activities come later.
  void expect_device(std::uint32_t device) { (void)device_at(device); }
  /// An activity that `owner` launched. `first_of_launch`: the launch had none before.
  [[gnu::always_inline]] void add(const ActivityRecord& record, InstanceId owner, bool first_of_launch) {
    if (owner == InstanceId::kNone) [[unlikely]]
      return add_unowned(record, first_of_launch);
    Device& device = device_at(raw(record.device));
    Instance* const instance = live_.find(owner);
    if (layers_ && instance != nullptr && layers_->take(record, *instance, first_of_launch)) [[unlikely]]
      return;
    if (observer_ != nullptr) [[unlikely]]
      notify_observer(record, instance, owner, first_of_launch);
    const ActivityTraits traits = traits_of(record, instance, first_of_launch);
    if (instance == nullptr || !device.timeline.try_add(record.begin_ns, record.end_ns, traits, *instance)) [[unlikely]]
      add_behind(record, owner, instance, traits);
  }

  /// A record of a launch of `owner` that carries no times: the launch ran somewhere in `when`. Once per launch.
  /// \param first no record of the launch came before.
  void add_untimed(InstanceId owner, DeviceId device, Interval when, bool first);

  /// How much work instances are.
  [[nodiscard]] WorkResolver& work() noexcept { return work_; }

  /// Instances, and those around them, that do not end on any device yet, however far advance() goes: a launch of
  /// theirs has no record so far. All others may.
  void await_launches_of(const std::vector<InstanceId>& owners);
  /// Everything that begins before `watermark` was added: sweep up to it and emit the windows that are complete.
  void advance(TimeNs watermark);
  /// The run ends at `end`: emits all windows and then the whole run (`final_run`). `end` is before the
  /// `exit` where some work has no end: an instance that closed between the two is whole.
  void finish(TimeNs end, TimeNs exit = 0);
  /// Emits the run so far; it goes on.
  void emit_so_far();
  /// Once this returns true the ledger stops advancing: exit never waits for a backlog, and finish() ends at now().
  void stop_when(std::function<bool()> out_of_time) { out_of_time_ = std::move(out_of_time); }
  [[nodiscard]] bool out_of_time() const { return out_of_time_ && out_of_time_(); }
  /// False: more instances wait for their records than can be followed on every device in the time there is. Callers
  /// then skip opening one more and count it as dropped.
  [[nodiscard]] bool has_room() const noexcept {
    const std::size_t devices = devices_.empty() ? 4 : devices_.size();
    return live_.size() * (sizeof(Instance) + devices * sizeof(InstanceOnDevice)) < kMostLiveBytes;
  }
  /// Time that finish() left out at the end of the run [ns].
  [[nodiscard]] DurationNs left_out_ns() const noexcept { return left_out_ns_; }

  /// Activities held back by the watermark.
  [[nodiscard]] std::size_t pending() const noexcept;
  [[nodiscard]] TimeNs now() const noexcept { return swept_; }
  [[nodiscard]] TimeNs origin() const noexcept { return rows_.grid().origin_ns; }
  [[nodiscard]] DurationNs window_ns() const noexcept { return rows_.grid().window_ns; }
  /// Devices are numbered 0 .. devices()-1; not every number need be one that was used.
  [[nodiscard]] std::uint32_t devices() const noexcept { return static_cast<std::uint32_t>(devices_.size()); }
  [[nodiscard]] bool has_device(std::uint32_t device) const noexcept {
    return device < devices_.size() && devices_[device] != nullptr;
  }
  /// Nothing is known from `at` on, until measured_again: windows that it touches say so, and the run leaves them out.
  void not_measured_from(TimeNs at) { rows_.not_measured_from(at); }
  void measured_again(TimeNs at) { rows_.measured_again(at); }
  /// Work that began at `from` or later may come late, at any time: the devices' activities since are kept as far as
  /// there is room. TimeHistory::kNever: none is expected.
  void keep_from(TimeNs from) noexcept;
  /// Instances that are not accounted for yet.
  [[nodiscard]] std::size_t live() const noexcept { return live_.size(); }
  /// Memory held for activities and instances that are not accounted yet; an estimate [B].
  [[nodiscard]] std::size_t held_bytes() const noexcept { return pending() * 48 + live_.size() * sizeof(Instance); }
  /// A line for the user, once each: regions whose FLOP are unknown and what is missing.
  [[nodiscard]] std::vector<std::string> take_notices() { return work_.take_notices(); }

 private:
  struct Device {
    Device(std::uint32_t device, const WindowGrid& grid, TimelineListener& listener)
        : timeline(device, grid.origin_ns, grid.window_ns, listener) {}
    DeviceTimeline timeline;
    /// By thread serial: top-level instances that opened and have not ended; the front one has begun.
    std::unordered_map<std::uint32_t, std::deque<Instance*>> top_level;
  };
  /// By KernelClass. A table, since the classes of consecutive kernels follow no pattern that a branch could learn.
  static constexpr std::array<ActivityTraits, 4> kTraitsOf = [] {
    constexpr auto kKernel = ActivityTraits::kKernel, kAttention = ActivityTraits::kAttention;
    std::array<ActivityTraits, 4> of{};
    of[static_cast<std::size_t>(KernelClass::kGemm)] = ActivityTraits(TimeClass::kMatmul, kKernel);
    of[static_cast<std::size_t>(KernelClass::kAttention)] = ActivityTraits(TimeClass::kMatmul, kKernel | kAttention);
    of[static_cast<std::size_t>(KernelClass::kComm)] = ActivityTraits(TimeClass::kComm, kKernel);
    of[static_cast<std::size_t>(KernelClass::kOther)] = ActivityTraits(TimeClass::kOther, kKernel);
    return of;
  }();
  /// Of live instances: some 20,000 on one device, which take a tenth of a second to add up.
  static constexpr std::size_t kMostLiveBytes = std::size_t{12} << 20;

  // TimelineListener
  void on_open(std::uint32_t device, Instance& instance, TimeNs at) override;
  void on_end(std::uint32_t device, Instance& instance, TimeNs at) override;
  void on_edge(std::uint32_t device, std::int64_t window, TimeNs at) override;
  void on_corrected(std::uint32_t device, const Corrections& corrections) override;

  Device& device_at(std::uint32_t device) { return has_device(device) ? *devices_[device] : new_device(device); }
  [[gnu::noinline]] Device& new_device(std::uint32_t device);
  [[gnu::noinline]] void notify_observer(const ActivityRecord& record, const Instance* instance, InstanceId owner,
                                         bool first_of_launch);
  [[gnu::always_inline]] ActivityTraits traits_of(const ActivityRecord& record, Instance* instance,
                                                  bool first_of_launch) {
    ActivityTraits traits(TimeClass::kMemcpy);
    if (record.kind == ActivityKind::kKernel) [[likely]]
      traits = kTraitsOf[static_cast<std::size_t>(names_.class_of(record.name))];
    else if (record.kind == ActivityKind::kGraph)
      return graph_traits(first_of_launch);
    traits.set_name(record.name);
    traits.set(first_of_launch ? ActivityTraits::kFirstOfLaunch : 0);
    if (traits.is_attention() || record.product != ProductId::kNone) {
      if (work_.roles().watched()) {
        traits.set_product(record.product);
        if (record.first_of_product && traits.time_class() == TimeClass::kMatmul)
          traits.set_form(work_.roles().form_of(record.name, record.extent));
      }
      traits.set(work_.note_product(record, instance, traits.is_attention()));
    }
    return traits;
  }
  [[gnu::noinline]] ActivityTraits graph_traits(bool first_of_launch) const;
  [[gnu::noinline]] void add_unowned(const ActivityRecord& record, bool first_of_launch);
  [[gnu::noinline]] void add_behind(const ActivityRecord& record, InstanceId owner, Instance* instance,
                                    ActivityTraits traits);
  static void leave_units_of_other_threads(Instance& instance);
  void join_parent(Instance& part);
  void begin_share(std::uint32_t device, Instance& instance, TimeNs at);
  void begin_inside(std::uint32_t device, Instance& instance, TimeNs at);
  void begin_one_by_one(std::uint32_t device, Instance* next, TimeNs at);
  [[nodiscard]] TimeNs end_of(std::uint32_t device, const Instance& instance) const;
  bool end_if_due(std::uint32_t device, Instance& instance);
  void end_share(std::uint32_t device, Instance& instance, TimeNs at);
  void next_on_thread(std::uint32_t device, std::uint32_t thread, TimeNs at);
  void cut_slice(std::uint32_t device, InstanceOnDevice& share);
  void finish_if_complete(Instance* instance);
  void account(Instance& instance);
  void note_added() noexcept;
  void forget_idle(TimeNs watermark);
  void sweep(std::uint32_t device, TimeNs until);
  void sweep_to(TimeNs watermark);
  [[nodiscard]] bool waits_for_live(TimeNs end) const;
  void emit_ready(bool all);
  void close_all(TimeNs end, TimeNs exit);
  [[nodiscard]] std::size_t used_devices() const noexcept;

  const RegionRules& rules_;
  KernelNames& names_;
  Counters& counters_;
  AccountObserver* observer_ = nullptr;
  WorkResolver work_;
  WindowRows rows_;
  LiveInstances live_;
  LateWork late_{live_, rows_};
  std::optional<LayerSplitter> layers_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::function<bool()> out_of_time_;
  DurationNs left_out_ns_ = 0;
  TimeNs swept_;
  std::vector<InstanceId> awaited_;
  std::unordered_map<std::uint32_t, std::uint32_t> home_of_thread_;
};

}  // namespace mfu

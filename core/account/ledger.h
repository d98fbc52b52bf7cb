// The account of the run: instances and activities in, closed windows out.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/account/account_observer.h"
#include "core/account/attention_lengths.h"
#include "core/account/device_timeline.h"
#include "core/account/instance.h"
#include "core/account/live_instances.h"
#include "core/account/product_roles.h"
#include "core/account/region_row.h"
#include "core/account/shape_resolver.h"
#include "core/base/activity_record.h"
#include "core/base/counters.h"
#include "core/kernels/kernel_names.h"
#include "core/model/flops_model.h"
#include "core/model/workload.h"
#include "core/peak/peak.h"
#include "core/ranges/region_rules.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// What the kernels say of an instance that no range named.
struct DetectedWork {
  Shape shape;              ///< of one pass
  std::int64_t passes = 0;  ///< forward and backward passes that a training step consists of; 0: not known
  std::int64_t parts = 1;   ///< of a pass of a step: how many of its kind the step has
};

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
/// window is emitted once everything that touches it is finished, or one window later at most; what is still open
/// then has its time in it, but no FLOP.
class Ledger final : private TimelineListener {
 public:
  using WindowCallback = std::function<void(WindowSummary&&)>;

  Ledger(const RegionRules& rules, const FlopsModel* model, const Workload& workload, KernelNames& names,
         Counters& counters, LedgerOptions options, WindowCallback on_window);
  ~Ledger() override;

  /// The peaks that ratios on `device` are divided by. Before its first window is out.
  void set_peak(std::uint32_t device, const Peak& peak);

  /// Records carry numbers of these products, which must outlive the ledger. Before the first add().
  void watch_products(const ProductTable& products) noexcept { roles_.watch(products); }

  /// Registers an observer, which must outlive the ledger. Call before the first open() or add().
  void observe(AccountObserver* observer) noexcept { observer_ = observer; }

  /// A range opened, or, with `detected`, work without one began. `slot` is copied from; call in order of time,
  /// together with `close`.
  void open(const InstanceSlot& slot, TimeNs at, const DetectedWork* detected = nullptr);
  /// Its range closed. `home_device`: where its thread launched last, if it ever did.
  void close(const InstanceSlot& slot, TimeNs at, std::optional<std::uint32_t> home_device);

  /// Work runs on `device`, whose activities come later.
  void expect_device(std::uint32_t device) { (void)device_at(device); }
  /// An activity that `owner` launched. `first_of_launch`: the launch had none before.
  [[gnu::always_inline]] void add(const ActivityRecord& record, InstanceId owner, bool first_of_launch) {
    if (owner == InstanceId::kNone) [[unlikely]]
      return add_unowned(record, first_of_launch);
    Device& device = device_at(raw(record.device));
    Instance* const instance = live_.find(owner);
    if (observer_ != nullptr) [[unlikely]]
      tell_observer(record, instance, owner, first_of_launch);
    const ActivityTraits traits = traits_of(record, instance, first_of_launch);
    if (instance == nullptr || !device.timeline.try_add(record.begin_ns, record.end_ns, traits, *instance)) [[unlikely]]
      add_behind(record, owner, instance, traits);
  }

  /// Notes what a kernel that no instance owns yet says of the pass that it is part of. No effect without a model.
  void note_matmul(const ActivityRecord& record, InstanceProducts& into);
  /// What they say. Nothing without a model.
  [[nodiscard]] SeenShape seen_shape(const InstanceProducts& products, Phase phase) const;

  /// Instances, and those around them, that do not end on any device yet, however far advance() goes: a launch of
  /// theirs has no record so far. All others may.
  void await_launches_of(const std::vector<InstanceId>& owners);
  /// Everything that begins before `watermark` was added: sweep up to it and emit the windows that are complete.
  void advance(TimeNs watermark);
  /// The run ends at `end`: gives out all windows and then the whole run (`final_run`).
  void finish(TimeNs end);
  /// Time stands still once this says so: a host that ends does not wait for the account of what piled up. finish()
  /// then ends the run where time stands.
  void stop_when(std::function<bool()> out_of_time) { out_of_time_ = std::move(out_of_time); }
  [[nodiscard]] bool out_of_time() const { return out_of_time_ && out_of_time_(); }
  /// False: more instances wait for their records than can be followed on every device in the time there is. One more
  /// is better not opened, and counted.
  [[nodiscard]] bool has_room() const noexcept {
    return live_.size() < (devices_.empty() ? kMostShares / 4 : kMostShares / devices_.size());
  }
  /// What finish() left out at the end of the run [ns].
  [[nodiscard]] DurationNs left_out_ns() const noexcept { return left_out_ns_; }

  /// Activities held back by the watermark.
  [[nodiscard]] std::size_t pending() const noexcept;
  [[nodiscard]] TimeNs now() const noexcept { return swept_; }
  [[nodiscard]] TimeNs origin() const noexcept { return options_.origin_ns; }
  [[nodiscard]] DurationNs window_ns() const noexcept { return options_.window_ns; }
  /// Devices are numbered 0 .. devices()-1; not every number need be one that was used.
  [[nodiscard]] std::uint32_t devices() const noexcept { return static_cast<std::uint32_t>(devices_.size()); }
  [[nodiscard]] bool has_device(std::uint32_t device) const noexcept {
    return device < devices_.size() && devices_[device] != nullptr;
  }
  /// Nothing is known from `at` on, until measured_again: windows that it touches say so, and the run leaves them out.
  void not_measured_from(TimeNs at) { unmeasured_.push_back({at, std::numeric_limits<TimeNs>::max()}); }
  void measured_again(TimeNs at) {
    if (!unmeasured_.empty()) unmeasured_.back().end_ns = at;
  }
  /// Work that began at `from` or later may come late, at any time: what the devices did since is kept as far as there
  /// is room. TimeHistory::kNever: none is expected.
  void keep_from(TimeNs from) noexcept;
  /// Memory held for activities and instances that are not accounted yet; an estimate [B].
  [[nodiscard]] std::size_t held_bytes() const noexcept { return pending() * 48 + live_.size() * sizeof(Instance); }
  /// A line for the user, once each: regions whose FLOP are unknown and what is missing.
  [[nodiscard]] std::vector<std::string> take_notices();

 private:
  using RowKey = std::pair<std::uint32_t, std::uint32_t>;  ///< region (kTotal: the process), device
  using Rows = std::map<RowKey, RegionRow>;

  struct Finished {  ///< a top-level instance that is over, to find overlaps with
    TimeNs begin_ns, end_ns;
    std::uint32_t thread;
    std::uint32_t region;
    std::int64_t window;
  };
  /// An instance that is accounted for, on one device.
  struct Over {
    InstanceId id, outer;
    std::uint32_t region, region_path;
    TimeNs begin_ns, end_ns;
  };
  using Owners = std::vector<std::variant<Instance*, const Over*>>;  ///< the innermost first
  struct Device {
    Device(std::uint32_t device, TimeNs origin, DurationNs window_ns, TimelineListener& listener)
        : timeline(device, origin, window_ns, listener) {}
    DeviceTimeline timeline;
    Peak peak;
    /// By thread serial: top-level instances that opened and have not ended; the front one has begun.
    std::unordered_map<std::uint32_t, std::deque<Instance*>> top_level;
    std::deque<Finished> finished;
    std::vector<std::uint64_t> ended;  ///< by region: instances so far
    WaitingPrefills prefills;
    std::deque<Over> over;                ///< lately
    std::vector<InstanceId> late_owners;  ///< of the work that came late since the last sweep
    void sweep(TimeNs until) {
      timeline.sweep(until);
      late_owners.clear();
    }

    std::uint64_t next_nth(RegionId region) {
      if (ended.size() <= raw(region)) ended.resize(raw(region) + 1u);
      return ended[raw(region)]++;
    }
    ClassTimes edge_times{};  ///< class times at the last edge
    DurationNs edge_busy_ns = 0, edge_sum_ns = 0;
  };
  static constexpr std::uint32_t kTotal = 0x10000;
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
  /// Of live instances on devices: a fifth of a second to add up. The instance table is smaller than that for one
  /// device.
  static constexpr std::size_t kMostShares = 1u << 16;

  // TimelineListener
  void on_open(std::uint32_t device, Instance& instance, TimeNs at) override;
  void on_end(std::uint32_t device, Instance& instance, TimeNs at) override;
  void on_edge(std::uint32_t device, std::int64_t window, TimeNs at) override;
  void on_corrected(std::uint32_t device, const Corrections& corrections, TimeNs at) override;
  void take_counts(std::uint32_t device, std::int64_t window);
  [[nodiscard]] std::uint32_t region_path_of(std::uint32_t outer, RegionId region);

  Device& device_at(std::uint32_t device) {
    return device < devices_.size() && devices_[device] != nullptr ? *devices_[device] : new_device(device);
  }
  [[gnu::noinline]] Device& new_device(std::uint32_t device);
  RegionRow& row(std::int64_t window, std::uint32_t region, std::uint32_t device);
  [[gnu::noinline]] void tell_observer(const ActivityRecord& record, const Instance* instance, InstanceId owner,
                                       bool first_of_launch);
  [[gnu::always_inline]] ActivityTraits traits_of(const ActivityRecord& record, Instance* instance,
                                                  bool first_of_launch) {
    ActivityTraits traits(TimeClass::kMemcpy);
    if (record.kind == ActivityKind::kKernel) [[likely]]
      traits = kTraitsOf[static_cast<std::size_t>(names_.class_of(record.name))];
    else if (record.kind == ActivityKind::kGraph)
      // As one record it has no kernel name: its time is work, but nobody can say of which class.
      traits = ActivityTraits(TimeClass::kOther, ActivityTraits::kKernel);
    traits.set_name(record.name);
    traits.set(first_of_launch ? ActivityTraits::kFirstOfLaunch : 0);
    if (traits.is_attention() || record.product != ProductId::kNone) {
      if (roles_.watched()) traits.set_product(record.product);
      traits.set(note_product(record, instance, traits.is_attention()));
    }
    return traits;
  }
  [[gnu::noinline]] void add_unowned(const ActivityRecord& record, bool first_of_launch);
  [[gnu::noinline]] void add_behind(const ActivityRecord& record, InstanceId owner, Instance* instance,
                                    ActivityTraits traits);
  [[nodiscard]] bool add_late(const ActivityRecord& record, InstanceId owner, ActivityTraits traits);
  [[nodiscard]] Owners owners_from(std::uint32_t device, InstanceId id);
  void keep_over(const Instance& instance, std::uint32_t device);
  template <typename Each>
  void by_window(Interval interval, Each&& each) const;
  template <typename Change>
  void change_row(std::int64_t window, std::uint32_t region, std::uint32_t device, Change&& change);
  template <typename Change>
  void change_slice(Instance& instance, std::uint32_t device, std::int64_t window, Change&& change);
  void begin_share(std::uint32_t device, Instance& instance);
  bool end_if_due(std::uint32_t device, Instance& instance);
  void end_share(std::uint32_t device, Instance& instance);
  void follow_in_order(std::uint32_t device, Instance& instance);
  void next_on_thread(std::uint32_t device, std::uint32_t thread);
  void cut_slice(std::uint32_t device, InstanceOnDevice& share);
  [[nodiscard]] unsigned note_product(const ActivityRecord& record, Instance* instance, bool fused);
  [[nodiscard]] SeenShape seen_shape(const Instance& instance) const;
  [[nodiscard]] Phase phase_that_ran(const Instance& instance);
  void resolve_work(Instance& instance, bool complete);
  static void note_seen(Instance& instance, const SeenShape& seen) noexcept;
  void scale_to_passes(Instance& instance, const SeenShape& seen) const;
  void count_attention(Instance& instance);
  void add_attention(const Instance& instance, std::uint32_t device, std::int64_t window, double part);
  void note_rows(const Instance& instance, double part, RegionRow& into) const;
  void finish_if_complete(Instance* instance);
  void note_added() noexcept;
  void forget_idle(TimeNs watermark);
  void account(Instance& instance);
  void add_times(RegionRow& into, const WindowSlice& portion) const noexcept;
  void add_work(const Instance& instance, std::uint32_t device, std::int64_t window, const Work& work, double share,
                bool cut);
  void add_latency(const Instance& instance, std::uint32_t device, double part, std::int64_t tokens, RegionRow& into);
  void mark_overlaps(const Instance& instance, std::uint32_t device, std::int64_t window);
  [[nodiscard]] std::vector<std::pair<std::uint32_t, double>> devices_of(const Instance& instance) const;
  [[nodiscard]] TimeNs edge(std::int64_t window) const noexcept {
    return options_.origin_ns + window * options_.window_ns;
  }
  /// Where an instance that is over counts: the window that it ended in, or the first that is not out.
  [[nodiscard]] std::int64_t window_of_end(const InstanceOnDevice& share) const noexcept {
    return std::max(next_window_,
                    share.ended ? (share.end_ns - options_.origin_ns) / options_.window_ns : next_window_);
  }
  void sweep_to(TimeNs watermark);
  void emit_ready(bool all);
  void give_out_early(Instance& instance, std::int64_t window);
  void emit(std::int64_t window, TimeNs end);
  void summarize(const Rows& rows, WindowSummary& out) const;
  [[nodiscard]] RegionSummary summary_of(const RegionRow& row, std::uint32_t region,
                                         std::optional<std::uint32_t> device, const WindowSummary& out,
                                         const Peak& peak) const;
  void notice_missing(const Instance& instance);
  [[nodiscard]] bool measured(Interval window) const noexcept;

  const RegionRules& rules_;
  const FlopsModel* model_;  ///< nullptr: no model, so times without FLOP
  const Workload workload_;
  KernelNames& names_;
  Counters& counters_;
  LedgerOptions options_;
  WindowCallback on_window_;
  AccountObserver* observer_ = nullptr;
  ShapeResolver shapes_;
  mutable ProductRoles roles_;
  AttentionLengths attention_lengths_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::function<bool()> out_of_time_;
  DurationNs left_out_ns_ = 0;
  TimeNs swept_;
  std::int64_t next_window_ = 0;  ///< the first one that is not out
  std::map<std::int64_t, Rows> windows_;
  Rows run_;
  LiveInstances live_;
  std::vector<InstanceId> awaited_;
  struct RegionPath {  ///< a region inside those around it, as instances nest
    std::uint32_t outer;
    RegionId region;
  };
  std::vector<RegionPath> region_paths_{{0, RegionId::kNone}};  ///< [0]: no region
  std::map<std::pair<std::uint32_t, RegionId>, std::uint32_t> region_path_index_;
  std::unordered_map<std::uint32_t, std::uint32_t> home_of_thread_;
  std::deque<Interval> unmeasured_;
  std::vector<std::string> notices_;
  std::vector<bool> noticed_;  ///< by region
  bool forward_only_noticed_ = false;
  std::vector<NamedBy> named_by_;  ///< by region
};

}  // namespace mfu

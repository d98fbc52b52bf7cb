// One device's timeline: overlapping activities in, the class of every nanosecond out, swept once and in order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/account/idle_work.h"
#include "core/account/instance.h"
#include "core/account/mark_queue.h"
#include "core/account/product_stats.h"
#include "core/account/time_history.h"
#include "core/base/activity_record.h"
#include "core/base/ids.h"
#include "core/base/units.h"
#include "core/kernels/kernel_names.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// Marks that a sweep meets besides activities. Called on the drain when the timeline is exactly there.
class TimelineListener {
 public:
  virtual ~TimelineListener() = default;
  /// An instance's range opens here (`at` = its open_ns, or where the timeline already stood).
  virtual void on_open(std::uint32_t device, Instance& instance, TimeNs at) = 0;
  /// A closed instance's last moment on this device.
  virtual void on_end(std::uint32_t device, Instance& instance, TimeNs at) = 0;
  /// A window ends here; the next begins.
  virtual void on_edge(std::uint32_t device, std::int64_t window, TimeNs at) = 0;
  /// Work came late: `corrections` are of the time before now(), and already in class_times(). The index of each late
  /// work is what add_late returned.
  virtual void on_corrected(std::uint32_t device, const Corrections& corrections) = 0;
};

struct KernelStat {
  std::uint64_t count = 0;
  DurationNs sum_ns = 0;
};

/// Activities of one region_path of nested regions that began. As large as a power of two, since they are found by
/// their index where instances take turns.
struct alignas(128) ActivityCounts {
  std::uint64_t launches = 0;
  std::vector<KernelStat> kernels;  ///< by KernelNameId
  ProductStats products;
};

/// An activity besides its times. One word, so that it goes from record to timeline in a register.
class ActivityTraits {
 public:
  enum Flag : std::uint8_t { kKernel = 1, kFirstOfLaunch = 2, kFirstOfProduct = 4, kAttention = 8 };

  constexpr ActivityTraits() noexcept : ActivityTraits(TimeClass::kOther) {}
  constexpr explicit ActivityTraits(TimeClass time_class, unsigned flags = 0) noexcept
      : word_(flags | static_cast<std::uint64_t>(time_class) << kClassShift) {}
  /// Each once.
  constexpr void set_name(KernelNameId name) noexcept { word_ |= std::uint64_t{raw(name)} << kNameShift; }
  constexpr void set_product(ProductId product) noexcept { word_ |= std::uint64_t{raw(product)} << kProductShift; }
  constexpr void set_form(KernelForm form) noexcept { word_ |= static_cast<std::uint64_t>(form) << kFormShift; }
  constexpr void set(unsigned flags) noexcept { word_ |= flags; }

  [[nodiscard]] constexpr TimeClass time_class() const noexcept {
    return static_cast<TimeClass>(static_cast<std::uint8_t>(word_ >> kClassShift));
  }
  [[nodiscard]] constexpr std::uint16_t name() const noexcept {
    return static_cast<std::uint16_t>(word_ >> kNameShift);
  }
  [[nodiscard]] constexpr ProductId product() const noexcept {
    return ProductId{static_cast<std::uint32_t>(word_ >> kProductShift) & kProductMask};
  }
  [[nodiscard]] constexpr KernelForm form() const noexcept { return static_cast<KernelForm>(word_ >> kFormShift); }
  [[nodiscard]] constexpr bool is_kernel() const noexcept { return (word_ & kKernel) != 0; }
  [[nodiscard]] constexpr bool is_attention() const noexcept { return (word_ & kAttention) != 0; }
  [[nodiscard]] constexpr bool first_of_launch() const noexcept { return (word_ & kFirstOfLaunch) != 0; }
  [[nodiscard]] constexpr bool first_of_product() const noexcept { return (word_ & kFirstOfProduct) != 0; }

 private:
  static constexpr int kClassShift = 8, kNameShift = 16, kProductShift = 32, kFormShift = 49;
  static constexpr std::uint32_t kProductMask = (1u << (kFormShift - kProductShift)) - 1;
  std::uint64_t word_;
};
static_assert(sizeof(ActivityTraits) == 8);
static_assert(KernelNames::kCapacity <= 0x10000);

/// [mfu-drain] Collects activities and marks in any order, then sweeps them in time order up to a watermark. At every
/// moment the class is the first of matmul, other, comm, memcpy that runs, else idle; the times per class since the
/// origin are kept as running sums, so the classes of any interval are the difference of two looks at them.
///
/// The sweep stops where activities begin, not where they end: in order of begin, the union of intervals needs no more
/// than its end so far, and the time of a class is what it adds to the union of those before it. An activity is cut
/// where a sweep or a window ends, and its rest begins there.
///
/// Activities come in the order in which they completed: several streams, each in order. They are dealt to lanes so
/// that every lane is in order of begin, and the sweep takes the earliest of the lanes' heads; no sorting, no copying.
/// Memory: 32 B per activity that is not swept yet, 24 B per one that runs.
class DeviceTimeline {
 public:
  /// \param origin start of the run: everything before it is not on the timeline.
  DeviceTimeline(std::uint32_t device, TimeNs origin, DurationNs window_ns, TimelineListener& listener);

  /// An activity [begin, end). False, and nothing is done: it begins before now(), or `instance` is over here.
  [[gnu::always_inline]] bool try_add(TimeNs begin_ns, TimeNs end_ns, ActivityTraits traits, Instance& instance) {
    InstanceOnDevice& share = instance.shares[device_];
    if (begin_ns < now_ || share.ended) [[unlikely]]
      return false;
    note_end(instance, share, end_ns);
    put({traits, begin_ns, end_ns, &instance});
    return true;
  }
  /// One that begins at now() or later, or counts as if it did. \param instance not over here; nullptr: there is none.
  void add(TimeNs begin_ns, TimeNs end_ns, ActivityTraits traits, Instance* instance) {
    if (instance != nullptr) note_end(*instance, instance->shares[device_], end_ns);
    put({traits, begin_ns, end_ns, instance});
  }
  /// One that begins before now(). The next sweep says what it changes in the past; from now() on it runs as any other.
  /// \param instance not over on this device; \param region_path where it counts.
  /// \return its index among those that came late since the last sweep.
  std::uint32_t add_late(TimeNs begin_ns, TimeNs end_ns, ActivityTraits traits, Instance* instance,
                         std::uint32_t region_path);
  /// Late work may begin at `from`: activities that ended after it are kept, if they are no more than `most`.
  void keep_from(TimeNs from, std::size_t most) noexcept { history_.keep_from(from, most); }
  /// The past before is not known any more, and late work changes nothing there.
  [[nodiscard]] TimeNs known_from() const noexcept { return history_.known_from(); }
  /// Says in the instances around those that were added to when their last activity ends. Before any timeline is swept:
  /// an instance ends when its activities are over.
  void note_added() noexcept;
  void add_open_mark(Instance& instance, TimeNs at);
  /// The instance is closed: its end is the later of `at` and its last activity here.
  void add_end_mark(Instance& instance, TimeNs at);

  /// Moves on to `watermark`: every activity that begins before it must have been added.
  void sweep(TimeNs watermark);

  [[nodiscard]] TimeNs now() const noexcept { return now_; }
  /// Class times since the origin, at now().
  [[nodiscard]] ClassTimes class_times() const noexcept;
  [[nodiscard]] std::int64_t window() const noexcept { return window_; }
  /// The classes from `from` to now(), see TimeHistory; costly.
  [[nodiscard]] Corrections past_classes(TimeNs from) {
    keep_swept();
    return history_.classes({from, now_});
  }
  /// Activities not swept yet.
  [[nodiscard]] std::size_t pending() const noexcept { return pending_; }
  /// Union and sum of every kernel of the process on the device, from the origin to now().
  [[nodiscard]] DurationNs busy_ns() const noexcept { return covered(TimeClass::kComm); }
  [[nodiscard]] DurationNs kernel_sum_ns() const noexcept { return kernel_sum_ns_; }
  /// Idle time since the origin by the length of its gaps; one that is not over ends here, at now().
  [[nodiscard]] const IdleGaps& cut_gaps() noexcept {
    const DurationNs gap = now_ - covered_until_[kUnions - 1];
    if (gap > 0) {
      add_gap(gap, now_);
      covered_until_[kUnions - 1] = now_;
    }
    return idle_.gaps;
  }
  /// Idle time by what the host did, up to where gaps were cut.
  [[nodiscard]] IdleWork& idle_work() noexcept { return idle_.work; }
  /// How long nothing has run, at now().
  [[nodiscard]] DurationNs quiet_ns() const noexcept { return std::max<DurationNs>(0, now_ - idle_.since); }
  /// Activities that began since these were last cleared, by region_path. The caller reads and clears them.
  [[nodiscard]] std::vector<ActivityCounts>& counts() noexcept { return counts_; }

 private:
  struct Activity : ActivityTraits {
    TimeNs begin_ns = 0;
    TimeNs end_ns = 0;
    Instance* instance = nullptr;
  };
  static_assert(sizeof(Activity) == 32);
  struct Running {
    TimeNs end_ns;
    Instance* instance;
    TimeClass time_class;
    bool is_kernel;
  };

  /// Activities of one instance, one behind another, that neither it nor those around it know yet. When the run
  /// began, no kernel of any of them was running beyond what ran of the instance itself, so each further kernel covers
  /// as much new time of all of them: it is added up once, and said to each when the run is over.
  struct Run {
    Instance* instance = nullptr;  ///< nullptr: there is no run
    TimeNs begin_ns = 0;
    TimeNs covered_until_ns = 0;
    DurationNs busy_ns = 0, kernel_sum_ns = 0, matmul_sum_ns = 0;
    std::uint64_t kernels = 0;
  };

  /// Activities that wait in order of begin, in chunks that go round: nothing is moved once it is in. The last lane is
  /// the exception: it takes what fits nowhere, and is sorted when swept.
  struct Chunk {
    static constexpr std::size_t kItems = 256;
    std::array<Activity, kItems> items;
    Chunk* next = nullptr;
  };
  struct Lane {
    Chunk* first = nullptr;
    Chunk* last = nullptr;
    const Activity* next = nullptr;  ///< in the first chunk: the first that is not swept
    const Activity* stop = nullptr;  ///< end of what the first chunk holds; during a sweep
    const Activity* kept = nullptr;  ///< in the first chunk: the first that is swept and not in the history
    Activity* fill = nullptr;        ///< in the last chunk: where the next one goes
    Activity* room = nullptr;        ///< end of the last chunk
    bool sorted = true;
    [[nodiscard]] bool empty() const noexcept { return next == fill; }
    [[nodiscard]] const Activity* first_stop() const noexcept {
      return first == last ? fill : first->items.data() + Chunk::kItems;
    }
  };
  static constexpr std::uint32_t kLongSince = 1000;
  static constexpr std::size_t kLanes = 16;
  static constexpr std::size_t kAtOnce = 4;  ///< lanes that are looked at without asking how many there are
  /// Classes that share a union with those before them: every class but idle.
  static constexpr std::size_t kUnions = kTimeClasses - 1;

  [[gnu::always_inline]] void note_end(Instance& instance, InstanceOnDevice& share, TimeNs end_ns) {
    share.last_activity_end_ns = std::max(share.last_activity_end_ns, end_ns);
    if (share.added_to) [[likely]]
      return;
    share.added_to = true;
    added_to_.push_back(&instance);
  }
  [[gnu::always_inline]] void put(const Activity& activity) {
    // The first lane that it can go on with. A later lane ends earlier, since an activity goes to it only when all
    // before end later: counting those is enough, and needs no branch per lane, which could not be predicted.
    const TimeNs begin_ns = activity.begin_ns;
    const auto later = [this, begin_ns](std::size_t lane) { return static_cast<std::size_t>(tails_[lane] > begin_ns); };
    std::size_t l = 0;
    for (std::size_t i = 0; i < lanes_used_; i += kAtOnce)
      l += (later(i) + later(i + 1)) + (later(i + 2) + later(i + 3));
    if (l >= lanes_used_) l = new_lane(begin_ns);
    tails_[l] = std::max(tails_[l], begin_ns);
    append(lanes_[l], activity);
    ++pending_;
  }
  void append(Lane& lane, const Activity& activity) {
    if (lane.fill == lane.room) add_chunk(lane);
    *lane.fill++ = activity;
  }
  [[gnu::noinline]] void add_chunk(Lane& lane);
  [[gnu::noinline]] std::size_t new_lane(TimeNs begin_ns) noexcept;
  void sort_lane(Lane& lane);
  void recycle(Chunk* chunk) noexcept;
  /// A lane's head and the lane in one number, so that the earliest head is found without a branch.
  [[nodiscard]] std::int64_t head_key(TimeNs begin_ns, std::size_t lane) const noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(begin_ns - origin_) * kLanes + lane);
  }
  void prepare_lanes();
  [[gnu::noinline]] void next_chunk(std::size_t lane) noexcept;
  void begin_until(TimeNs limit);
  /// A piece of an activity; `begun`: 1 for its first, else 0. Call begin_run() before where its instance is not that
  /// of the run, and end_run() after the last one.
  void cover(TimeNs begin, TimeNs end, Instance* instance, TimeClass time_class, bool is_kernel,
             std::uint64_t begun) noexcept;
  void begin_run(Instance* instance, TimeNs begin) noexcept;
  void note_first(Instance* instance, TimeNs begin) noexcept;
  void end_run() noexcept;
  [[nodiscard]] ActivityCounts& counts_of(std::uint32_t region_path) {
    if (counts_.size() <= region_path) counts_.resize(region_path + 1);
    return counts_[region_path];
  }
  void count(const Activity& a, ActivityCounts& counts) {
    counts.launches += static_cast<std::uint64_t>(a.first_of_launch());
    if (!a.is_kernel()) return;
    if (counts.kernels.size() <= a.name()) counts.kernels.resize(a.name() + 16u);
    KernelStat& stat = counts.kernels[a.name()];
    ++stat.count;
    stat.sum_ns += a.end_ns - a.begin_ns;
    // No branch for attention: kernels follow no pattern that one could learn.
    since_attention_ &= static_cast<std::uint32_t>(a.is_attention()) - 1u;
    if (a.product() != ProductId::kNone) count_product(a, counts.products);
  }
  [[gnu::noinline]] void count_product(const Activity& a, ProductStats& products);
  /// A gap, or a piece of one, ends.
  void add_gap(DurationNs gap, TimeNs end) {
    idle_.gaps.of_length(gap) += gap;
    if (gap > 0 && (gap >= IdleWork::kLong || idle_.work.knows_before(end))) [[unlikely]]
      idle_.work.add_gap({end - gap, end});
  }
  void resume_running();
  void keep_swept();
  [[gnu::noinline]] void correct_past();
  /// Time that is covered by `time_class` or one before it, at now().
  [[nodiscard]] DurationNs covered(TimeClass time_class) const noexcept {
    const auto c = static_cast<std::size_t>(time_class);
    return union_ns_[c] - std::max<DurationNs>(0, covered_until_[c] - now_);
  }

  std::uint32_t device_;
  TimeNs origin_;
  DurationNs window_ns_;
  TimelineListener& listener_;
  TimeNs now_;
  std::int64_t window_ = 0;
  TimeNs next_edge_;
  TimeNs cut_at_;  ///< activities are counted up to here: the edge or the watermark, whichever is first
  /// By class: the union of its activities and those of the classes before it, and where that ends so far.
  std::array<DurationNs, kUnions> union_ns_{};
  std::array<TimeNs, kUnions> covered_until_;
  struct {
    TimeNs since;   ///< end of the last activity so far
    IdleGaps gaps;  ///< those that are over
    IdleWork work;  ///< likewise
  } idle_;
  DurationNs kernel_sum_ns_ = 0;
  Run run_;
  std::vector<ActivityCounts> counts_;
  std::uint32_t since_attention_ = kLongSince;     ///< products since an attention kernel
  AfterAttention place_ = AfterAttention::kLater;  ///< of the latest product, if it is later than that kernel
  std::uint64_t mark_order_ = 0;

  std::array<Lane, kLanes> lanes_;
  std::array<TimeNs, kLanes> tails_;        ///< begin of each lane's last; unused: long ago
  std::array<std::int64_t, kLanes> heads_;  ///< key of each lane's first; empty or unused: never
  std::size_t lanes_used_ = 0;              ///< lanes at or above it are empty
  std::size_t pending_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;  ///< all there are
  Chunk* free_chunks_ = nullptr;
  std::vector<Running> running_, resumed_;  ///< cut at cut_at_; their rest is still to come
  TimeHistory history_;
  std::vector<LateActivity> late_;   ///< since the last sweep
  std::vector<Instance*> added_to_;  ///< those around them do not know yet
  MarkQueue marks_;
};

}  // namespace mfu

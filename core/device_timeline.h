// One device's timeline: overlapping activities in, the class of every nanosecond out, swept once and in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <queue>
#include <vector>

#include "core/ids.h"
#include "core/instance.h"
#include "core/kernel_record.h"
#include "core/units.h"
#include "core/window.h"

namespace mfu {

/// What a sweep meets besides activities. Called on the drain at the moment the timeline stands exactly there.
class TimelineListener {
 public:
  virtual ~TimelineListener() = default;
  /// An instance's range opens here (`at` = its open_ns, or where the timeline already stood).
  virtual void on_open(std::uint32_t device, Instance& instance, TimeNs at) = 0;
  /// A closed instance's last moment on this device.
  virtual void on_end(std::uint32_t device, Instance& instance, TimeNs at) = 0;
  /// A window ends here; the next begins.
  virtual void on_edge(std::uint32_t device, std::int64_t window, TimeNs at) = 0;
  /// An activity begins. `instance`: who launched it; nullptr: no region. At `at` >= its begin when it came late.
  virtual void on_activity(std::uint32_t device, Instance* instance, KernelNameId name, TimeClass time_class,
                           DurationNs length_ns, bool is_kernel, bool first_of_launch) = 0;
};

/// [mfu-drain] Collects activities and marks in any order, then sweeps them in time order up to a watermark. At every
/// moment the class is the first of matmul, other, comm, memcpy that runs, else idle; the times per class since the
/// origin are kept as one running sum, so the classes of any interval are the difference of two looks at it.
///
/// Activities come in the order in which they completed: several streams, each in order. They are dealt to lanes so
/// that every lane is in order of begin, and the sweep takes the earliest of the lanes' heads; no sorting, no copying.
/// Memory: 32 B per activity that is not swept yet, 24 B per one that runs.
class DeviceTimeline {
 public:
  /// \param origin start of the run: everything before it is not on the timeline.
  DeviceTimeline(std::uint32_t device, TimeNs origin, DurationNs window_ns, TimelineListener& listener);

  /// An activity [begin, end), possibly before `now()` when it came late: then only its rest is on the timeline.
  void add(TimeNs begin_ns, TimeNs end_ns, TimeClass time_class, bool is_kernel, bool first_of_launch,
           KernelNameId name, Instance* instance);
  void add_open_mark(Instance& instance, TimeNs at);
  /// The instance is closed: its end is the later of `at` and its last activity here.
  void add_end_mark(Instance& instance, TimeNs at);

  /// Moves on to `watermark`: every activity that begins before it must have been added.
  void sweep(TimeNs watermark);

  [[nodiscard]] TimeNs now() const noexcept { return now_; }
  /// Class times since the origin, at now().
  [[nodiscard]] const ClassTimes& class_times() const noexcept { return times_; }
  [[nodiscard]] std::int64_t window() const noexcept { return window_; }
  [[nodiscard]] TimeNs window_begin() const noexcept { return origin_ + window_ * window_ns_; }
  /// Activities not swept yet.
  [[nodiscard]] std::size_t pending() const noexcept { return pending_; }
  [[nodiscard]] std::uint64_t kernels_running() const noexcept { return running_kernels_; }
  /// Union and sum of every kernel of the process on the device since the origin, at now().
  [[nodiscard]] DurationNs busy_ns() const noexcept { return busy_ns_; }
  [[nodiscard]] DurationNs kernel_sum_ns() const noexcept { return kernel_sum_ns_; }

 private:
  struct Activity {
    TimeNs begin_ns;
    TimeNs end_ns;
    Instance* instance;
    KernelNameId name;
    TimeClass time_class;
    bool is_kernel;
    bool first_of_launch;
  };
  struct Running {
    TimeNs end_ns;
    Instance* instance;
    TimeClass time_class;
    bool is_kernel;
    bool operator>(const Running& o) const noexcept { return end_ns > o.end_ns; }
  };
  struct Mark {
    TimeNs at;
    std::uint64_t order;  ///< opens before ends at the same moment, then first come
    Instance* instance;
    bool is_end;
    bool operator>(const Mark& o) const noexcept { return at != o.at ? at > o.at : order > o.order; }
  };

  /// What waits in order of begin, in chunks that go round: nothing is moved once it is in. The last lane is the
  /// exception: it takes what fits nowhere, and is sorted when swept.
  struct Chunk {
    static constexpr std::size_t kItems = 256;
    std::array<Activity, kItems> items;
    Chunk* next = nullptr;
  };
  struct Lane {
    Chunk* first = nullptr;
    Chunk* last = nullptr;
    std::size_t head = 0;  ///< in the first chunk: what is not swept begins here
    std::size_t fill = 0;  ///< of the last chunk
    bool sorted = true;
    [[nodiscard]] bool empty() const noexcept { return first == nullptr || (first == last && head == fill); }
  };
  static constexpr std::size_t kLanes = 16;

  void append(Lane& lane, const Activity& activity);
  void take_head(std::size_t lane) noexcept;
  void sort_lane(Lane& lane);
  void recycle(Chunk* chunk) noexcept;
  void prepare_lanes();
  [[nodiscard]] TimeNs next_end() const noexcept;
  void end_next() noexcept;
  void find_earliest() noexcept;
  void advance_to(TimeNs t) noexcept;
  void begin(const Activity& a);
  void end(const Running& r) noexcept;

  std::uint32_t device_;
  TimeNs origin_;
  DurationNs window_ns_;
  TimelineListener& listener_;
  TimeNs now_;
  std::int64_t window_ = 0;
  ClassTimes times_{};
  std::uint32_t running_[4] = {0, 0, 0, 0};  ///< by time class, without idle
  std::uint64_t running_kernels_ = 0;
  DurationNs busy_ns_ = 0;
  DurationNs kernel_sum_ns_ = 0;
  std::uint64_t mark_order_ = 0;

  std::array<Lane, kLanes> lanes_;
  std::array<TimeNs, kLanes> tails_;  ///< begin of each lane's last
  std::array<TimeNs, kLanes> heads_;  ///< begin of each lane's first; during a sweep
  std::size_t lanes_used_ = 0;        ///< lanes at or above it are empty
  std::size_t earliest_ = 0;          ///< the lane whose head is the earliest; during a sweep
  std::size_t pending_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;  ///< all there are
  Chunk* free_chunks_ = nullptr;
  // What runs: a few at a time in order, the first to end last; any more in a heap.
  static constexpr std::size_t kFewRunning = 16;
  std::array<Running, kFewRunning> few_running_{};
  std::size_t few_ = 0;
  std::priority_queue<Running, std::vector<Running>, std::greater<>> ends_;
  std::priority_queue<Mark, std::vector<Mark>, std::greater<>> marks_;
};

}  // namespace mfu

// The last seconds of a run in fixed memory, with all that a replay needs to give the same windows.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/account/account_observer.h"
#include "core/attribution/instance_table.h"
#include "core/attribution/product_table.h"
#include "core/base/activity_record.h"
#include "core/base/ids.h"
#include "core/base/units.h"
#include "core/base/zeroed_array.h"
#include "core/kernels/kernel_names.h"

namespace mfu {

/// One activity in 40 bytes: all that a replay needs to attribute it, and to find steps as the live run did.
struct TracedActivity {
  TimeNs begin_ns;
  std::uint64_t length_ns : 42;  ///< up to 73 minutes; the drain refuses more than an hour
  std::uint64_t device : 8;
  std::uint64_t stream : 11;  ///< index into TraceSnapshot::streams
  std::uint64_t kind : 2;     ///< ActivityKind
  std::uint64_t first : 1;    ///< the first of its launch that came
  CorrelationId correlation;
  InstanceId owner;                    ///< kNone: no region was open at its launch, or its launch is not known
  std::uint32_t name : 12;             ///< KernelNameId
  std::uint32_t direction : 2;         ///< CopyDirection
  std::uint32_t product : 17;          ///< ProductId
  std::uint32_t first_of_product : 1;  ///< as in the record
  GraphId graph;
  std::uint64_t extent;  ///< as ActivityRecord::extent
};
static_assert(sizeof(TracedActivity) == 40);
static_assert(KernelNames::kCapacity <= 1u << 12 && ProductTable::kCapacity < 1u << 17);

/// One range that was a region instance, or a part of one.
struct TracedInstance {
  TimeNs open_ns;
  TimeNs close_ns;  ///< max: still open
  InstanceId id;
  std::uint32_t os_thread;
  RegionId region;
  RuleId rule;
  InstanceKind kind;
  ShapeWords shape;
};

/// The sums of an instance on one device.
struct TracedWork {
  TimeNs begin_ns, end_ns;
  double flop, bytes;  ///< < 0: not known
  RegionId region;
  std::uint8_t device;
};

/// The ring's content in order of arrival, as a writer on another thread needs it.
struct TraceSnapshot {
  std::vector<TracedActivity> activities;
  std::vector<TracedInstance> instances;  ///< closed, then open ones
  std::vector<TracedWork> works;
  std::vector<StreamId> streams;
  TimeNs origin_ns = 0;  ///< where the windows begin
  TimeNs end_ns = 0;     ///< when this was taken
  bool whole_run = true;
  std::uint64_t left_out = 0;  ///< activities that there was no room for since the run began
};

/// [mfu-drain] Listens to the Ledger. At most 14.5 MiB of memory, touched only as far as it is used, and some 150 B for
/// each region instance that is open; the oldest makes way, and is counted.
class RecordingRing final : public AccountObserver {
 public:
  /// \param keep_ns how far back a snapshot reaches
  explicit RecordingRing(DurationNs keep_ns) : keep_ns_(keep_ns) {}

  void on_record(const ActivityRecord& record, InstanceId owner, bool first_of_launch) override;
  void on_open(const InstanceSlot& slot, TimeNs at) override;
  void on_close(const InstanceSlot& slot, TimeNs at) override;
  void on_finished(const Instance& instance, std::uint32_t device, double share_of_work) override;

  /// The windows begin at `at`.
  void set_origin(TimeNs at) noexcept { origin_ns_ = at; }
  /// A copy of what is kept, as of `now`.
  [[nodiscard]] TraceSnapshot snapshot(TimeNs now) const;
  [[nodiscard]] std::size_t resident_bytes() const noexcept;

 private:
  /// The newest kSize values.
  template <typename T, std::size_t kSize>
  class Ring {
   public:
    void push(const T& value) noexcept {
      if (values_.size() != 0) values_[pushed_++ % kSize] = value;
    }
    /// Calls `take` with each, oldest first.
    template <typename Take>
    void for_each(Take take) const {
      for (std::uint64_t i = pushed_ > kSize ? pushed_ - kSize : 0; i < pushed_; ++i) take(values_[i % kSize]);
    }
    [[nodiscard]] std::uint64_t overwritten() const noexcept { return pushed_ > kSize ? pushed_ - kSize : 0; }
    [[nodiscard]] std::size_t size() const noexcept { return pushed_ > kSize ? kSize : pushed_; }
    [[nodiscard]] std::size_t resident_bytes() const noexcept { return values_.resident_bytes(); }

   private:
    ZeroedArray<T> values_{kSize};
    std::uint64_t pushed_ = 0;
  };
  static constexpr std::size_t kMaxStreams = 1u << 11;

  DurationNs keep_ns_;
  TimeNs origin_ns_ = 0;
  Ring<TracedActivity, 1u << 18> activities_;               // 10 MiB
  Ring<TracedInstance, 1u << 15> instances_;                // 3 MiB
  Ring<TracedWork, 1u << 15> works_;                        // 1.25 MiB
  std::unordered_map<std::uint32_t, TracedInstance> open_;  ///< by id; InstanceTable bounds it
  std::vector<StreamId> streams_;
  std::unordered_map<std::uint32_t, std::uint32_t> stream_index_;
};

}  // namespace mfu

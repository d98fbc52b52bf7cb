// Latency of single instances of one row: quantiles, by batch size, the slowest.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/account/instance.h"
#include "core/peak/peak.h"
#include "core/rows/duration_histogram.h"
#include "core/rows/region_summary.h"
#include "core/rows/slowest_instances.h"

namespace mfu {

/// The power-of-two range that a batch falls in: 1, 2, 3-4, 5-8, ...
struct BatchRange {
  /// Ranges up to 2^23: no pass has more sequences or tokens, a shape that says so is wrong.
  static constexpr std::uint32_t kCount = 24;

  std::int64_t min = 0, max = 0;  ///< both inclusive
  /// None: unknown (0), or beyond every range.
  [[nodiscard]] static std::optional<std::uint32_t> index_of(std::int64_t batch) noexcept;
  [[nodiscard]] static BatchRange of_index(std::uint32_t index) noexcept;
};

/// Prefills on one device that still wait for their first decode. [mfu-drain]
class WaitingPrefills {
 public:
  /// A process that only prefills never has one decoded: the oldest are forgotten beyond this.
  static constexpr std::size_t kMost = 1024;

  /// One is over; its last device activity ended at `end`.
  void add(TimeNs end) {
    if (ends_.size() == kMost) ends_.pop_front();
    ends_.push_back(end);
  }
  [[nodiscard]] bool empty() const noexcept { return ends_.empty(); }
  /// An instance that decodes began at `begin`: reports and forgets the end of every prefill before it.
  template <typename Each>
  void decoded(TimeNs begin, Each each) {
    std::erase_if(ends_, [&](TimeNs end) {
      if (end > begin) return false;  // it runs beside that instance: the next one decodes it
      each(end);
      return true;
    });
  }

 private:
  std::deque<TimeNs> ends_;
};

/// An instance that is over, on one device.
struct EndedInstance {
  SlowInstance time;  ///< without lost_to
  DecodePasses decode;
  BatchUnit unit = BatchUnit::kSequences;
  std::int64_t batch = 0;  ///< 0: not known
  std::int64_t tokens = 0;
  std::optional<double> flop, bytes;  ///< its share on the device
};

/// [mfu-drain] What one row of the account keeps of single instances: under 1 KiB, and 16 B per width of duration met.
class LatencyStats {
 public:
  void add(const EndedInstance& instance);
  /// The first activity of an instance of this row that decodes, and that began at `begin`.
  void add_decode(WaitingPrefills& prefills, TimeNs begin, TimeNs first_activity);
  void merge(const LatencyStats& other);
  /// Fills what `into` says of single instances; `into.classes_known` is settled.
  void describe(RegionSummary& into, const Peak& peak) const;

 private:
  struct Bucket {
    BatchUnit unit = BatchUnit::kSequences;
    std::uint32_t index = 0;
    std::uint64_t instances = 0;
    std::int64_t tokens = 0;
    DurationNs elapsed_ns = 0;
    DurationHistogram latency;
    double flop = 0, bytes = 0;
    bool flop_known = true, bytes_known = true;
  };
  Bucket& bucket(BatchUnit unit, std::uint32_t index);

  DurationHistogram elapsed_;
  DurationHistogram inter_token_;
  DurationHistogram prefill_to_decode_;
  std::uint64_t after_prefill_ = 0;
  ClassTimes time_ns_{};         ///< of the instances, whole
  std::vector<Bucket> buckets_;  ///< ascending, those that were met
  SlowestInstances slowest_;
};

}  // namespace mfu

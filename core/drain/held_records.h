// Records that wait: first for all records of their launch, then for their step to be known. One after the other in
// memory, since each is looked at several times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/base/activity_record.h"

namespace mfu {

struct HeldRecord {
  ActivityRecord record;
  std::uint64_t launch = 0;  ///< index in the detector's stream, once it is there; in ProgramRegions, its owner
  std::uint32_t thread = 0;
  bool first_of_launch = false;
};

/// In the order of launches; of one launch, of time.
[[nodiscard]] inline bool comes_before(const HeldRecord& a, const HeldRecord& b) noexcept {
  if (a.record.correlation != b.record.correlation) return newer(b.record.correlation, a.record.correlation);
  return a.record.begin_ns < b.record.begin_ns;
}

/// A queue of one device's records, which are appended as they arrive. take() moves those of complete launches into
/// [begin, end), ordered by launch; drop_before() removes them.
/// It touches memory for a third more than it held at most. The rest of what it reserves is address space alone.
class HeldRecords {
 public:
  static constexpr TimeNs kNone = std::numeric_limits<TimeNs>::max();

  [[nodiscard]] const HeldRecord* begin() const noexcept { return records_.data() + front_; }
  [[nodiscard]] const HeldRecord* end() const noexcept { return records_.data() + taken_; }
  [[nodiscard]] bool empty() const noexcept { return front_ == taken_; }
  /// The first one of `launch` or a later launch.
  [[nodiscard]] const HeldRecord* from(std::uint64_t launch) const noexcept {
    return std::partition_point(begin(), end(), [launch](const HeldRecord& held) { return held.launch < launch; });
  }
  /// Those that were not taken yet, in any order.
  [[nodiscard]] std::span<const HeldRecord> waiting() const noexcept {
    return {records_.data() + taken_, records_.size() - taken_};
  }

  void push_back(const HeldRecord& held) {
    if (front_ * 4 > records_.size()) close_up();
    in_order_ = in_order_ && (taken_ == records_.size() || !comes_before(held, records_.back()));
    if (records_.size() == records_.capacity())
      records_.reserve(records_.empty() ? kLittle : std::max(kUsual, records_.size() + records_.size() / 4));
    records_.push_back(held);
    later_ = std::min(later_, held.record.begin_ns);
    used_ = std::max(used_, records_.size());
  }
  /// Those that wait of launches up to and with `complete`, in the order of launches, until take() takes them.
  [[nodiscard]] std::span<HeldRecord> waiting_until(CorrelationId complete);
  /// The first `count` of them wait no more: they have their launch.
  void take(std::size_t count) noexcept { taken_ += count; }
  /// None waits any more: whether or not their launches are complete, no more of them will come.
  void take_all();
  /// Begin of the earliest one, taken or not; kNone: there is none.
  [[nodiscard]] TimeNs earliest_begin();
  /// Lets go of everything before `until`, which is one of begin() .. end().
  void drop_before(const HeldRecord* until) noexcept;

  [[nodiscard]] std::size_t held_bytes() const noexcept { return (used_ + late_.capacity()) * sizeof(HeldRecord); }

 private:
  void put_in_order();
  [[gnu::noinline]] void close_up();
  void look_at_all();

  static constexpr std::size_t kLittle = 4096;     ///< records: no burst
  static constexpr std::size_t kBlock = 1024;      ///< records
  static constexpr std::size_t kUsual = 1u << 18;  ///< the most of a live run: one copy, of kLittle, leads there

  std::vector<HeldRecord> records_;  ///< records let go of, records taken, records that wait
  std::vector<HeldRecord> late_;     ///< room for those that wait and are out of order
  std::size_t front_ = 0, taken_ = 0;
  std::vector<TimeNs> earliest_;  ///< by block of [known_from_, known_until_): begin of the earliest from there on
  std::size_t known_from_ = 0, known_until_ = 0;
  TimeNs later_ = kNone;  ///< begin of the earliest behind them
  bool in_order_ = true;  ///< the records that wait are in order of launches
  std::size_t most_ = 0;  ///< that were there at once since there was nothing
  std::size_t used_ = 0;  ///< of the memory
};

}  // namespace mfu

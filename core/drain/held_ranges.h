// The program's own ranges and what its interpreter reports, until it is known which ranges are around which steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/drain/instance_feed.h"
#include "core/program/program_fact.h"

namespace mfu {

/// [one thread] A range that is in no other one of its thread waits until it is over, and with it all that came after
/// it opened: a step that begins inside of it begins with it.
class HeldRanges {
 public:
  static constexpr std::size_t kMost = 1u << 14;  ///< openings and closings: half of what InstanceTable has slots for

  struct Event : InstanceFeed::Event {
    std::optional<std::uint32_t> home_device;  ///< see Ledger::close
    bool is_over = false;                      ///< the range's end came, too
  };

  void add(const InstanceFeed::Event& event, std::optional<std::uint32_t> home_device);
  void add_fact(const ProgramFact& fact) { facts_.push_back(fact); }

  /// It came here, and its end was not given out.
  [[nodiscard]] bool has(InstanceId id) const { return ranges_.contains(id); }
  /// Its opening was not given out.
  [[nodiscard]] bool holds(InstanceId id) const;
  /// The outermost ranges around both are one range, which was not given out and is over.
  [[nodiscard]] bool hold_around(InstanceId a, InstanceId b) const;

  /// The next event, if it is before `until`; nullptr: there is none, or it waits. `all`: for no range's end.
  [[nodiscard]] const Event* next(TimeNs until, bool all = false) const;
  /// That event is given out.
  Event take();
  /// The slots of the closings that take() gave out since the last call: the caller is done with them.
  [[nodiscard]] std::vector<InstanceSlot*> take_closed() noexcept { return std::exchange(closed_, {}); }
  /// The next fact whose ranges are known. Of one in a range the parts of a step are not known: the range names them.
  [[nodiscard]] std::optional<ProgramFact> take_fact(bool all = false);

  /// The thread whose ranges are around facts; kNone: none was so far.
  [[nodiscard]] ThreadSerial opener() const noexcept { return opener_; }
  /// Nothing that comes yet is before; max: nothing waits.
  [[nodiscard]] TimeNs waits_from() const noexcept;
  /// The first fact that waits, nullptr: none.
  [[nodiscard]] const ProgramFact* first_fact() const noexcept { return facts_.empty() ? nullptr : &facts_.front(); }
  [[nodiscard]] std::size_t size() const noexcept { return events_.size(); }

 private:
  static constexpr TimeNs kOpen = std::numeric_limits<TimeNs>::max();
  struct Range {
    InstanceId parent;
    ThreadSerial opener;
    TimeNs open, close;
    bool given = false;
  };
  /// nullptr: it did not come here.
  [[nodiscard]] const Range* outermost(InstanceId id) const;

  std::unordered_map<InstanceId, Range> ranges_;
  std::deque<Event> events_;
  std::vector<InstanceSlot*> closed_;
  std::deque<ProgramFact> facts_;
  TimeNs newest_fact_ = 0;
  ThreadSerial opener_ = ThreadSerial::kNone;
};

}  // namespace mfu

// Range instances that host threads opened and closed, in the order of time, for the account.
#pragma once

#include <cstdint>
#include <vector>

#include "core/attribution/instance_table.h"
#include "core/base/ticks.h"
#include "core/base/units.h"

namespace mfu {

/// [mfu-drain] Takes from the table what was published since it looked last.
class InstanceFeed {
 public:
  struct Event {
    TimeNs at;
    std::uint8_t order;  ///< at one moment: close, then open, then close of what opened at this very time
    InstanceSlot* slot;
    static constexpr std::uint8_t kCloseEarlier = 0, kOpen = 1, kClose = 2;
    [[nodiscard]] bool opens() const noexcept { return order == kOpen; }
  };

  InstanceFeed(InstanceTable& table, const TickClock& clock) : table_(table), clock_(clock) {}

  /// Valid until the next call. The caller that has used an event that closes releases its slot.
  [[nodiscard]] const std::vector<Event>& take();

 private:
  InstanceTable& table_;
  const TickClock& clock_;
  std::uint64_t chunks_ = 0;
  /// Of chunks in the order in which they were taken, what was not published yet: little for each thread.
  std::vector<InstanceTable::Share> unpublished_;
  std::vector<InstanceSlot*> open_;
  std::vector<Event> events_;
};

}  // namespace mfu

// Observer of a Ledger's inputs and finished instances. The recorder and the queries of replay use it.
#pragma once

#include <cstdint>

#include "core/account/instance.h"
#include "core/attribution/instance_table.h"
#include "core/base/activity_record.h"

namespace mfu {

/// [mfu-drain] Each call does nothing by itself. Called in the order of the Ledger's calls. Detected instances cause
/// on_finished only. Arguments are valid during the call.
class AccountObserver {
 public:
  virtual ~AccountObserver() = default;
  /// An activity with the instance that launched it; none where no range owns it. `first_of_launch`: nothing of its
  /// launch came before.
  virtual void on_record(const ActivityRecord& /*record*/, InstanceId /*owner*/, bool /*first_of_launch*/) {}
  /// A range opened an instance, or a part of one, at `at`.
  virtual void on_open(const InstanceSlot& /*slot*/, TimeNs /*at*/) {}
  /// Its range closed.
  virtual void on_close(const InstanceSlot& /*slot*/, TimeNs /*at*/) {}
  /// An instance is over, the last of its work done. Once per device that it is accounted on.
  /// \param share_of_work its part of instance.work, 0..1; they sum to 1
  virtual void on_finished(const Instance& /*instance*/, std::uint32_t /*device*/, double /*share_of_work*/) {}
};

}  // namespace mfu

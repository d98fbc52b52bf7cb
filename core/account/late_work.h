// Work whose record came after its time had been swept: a long kernel that time went past, a buffer that CUPTI kept
// back.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <variant>
#include <vector>

#include "core/account/device_timeline.h"
#include "core/account/instance.h"
#include "core/account/live_instances.h"
#include "core/account/window_rows.h"
#include "core/base/activity_record.h"

namespace mfu {

/// [mfu-drain] Puts the time of late work where it was: into windows that are not emitted yet and the totals of the
/// run, of the process and of the instances that it fell into.
class LateWork {
 public:
  LateWork(LiveInstances& live, WindowRows& rows) : live_(live), rows_(rows) {}

  void add_device(std::uint32_t device);
  /// The instance is accounted for; late records may still belong to it, or to its time. \param known_from of the
  ///   device's timeline.
  void keep(const Instance& instance, std::uint32_t device, TimeNs known_from);
  /// A record that begins before timeline.now().
  /// \return false: there is too much of it; it counts from timeline.now() on.
  [[nodiscard]] bool add(DeviceTimeline& timeline, const ActivityRecord& record, InstanceId owner,
                         ActivityTraits traits);
  /// Of an instance, as far as something is kept of it; else 0.
  [[nodiscard]] std::uint32_t region_path_of(std::uint32_t device, InstanceId id) const {
    return path_of(owners_from(*devices_[device], id));
  }
  /// From the sweep of `timeline`, see TimelineListener.
  void correct(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections, TimeNs at);
  /// The device's timeline was swept: corrections of what was added are made.
  void swept(std::uint32_t device) noexcept { devices_[device]->owners.clear(); }

 private:
  /// An instance that is accounted for, on one device.
  struct Over {
    InstanceId id, outer;
    std::uint32_t region, region_path;
    TimeNs begin_ns, end_ns;
  };
  using Owners = std::vector<std::variant<Instance*, const Over*>>;  ///< the innermost first
  struct Device {
    std::deque<Over> over;           ///< lately
    std::vector<InstanceId> owners;  ///< of the late work since the last sweep
  };

  [[nodiscard]] static std::uint32_t path_of(const Owners& owners) noexcept {
    return owners.empty() ? 0 : std::visit([](const auto* found) { return found->region_path; }, owners.front());
  }
  [[nodiscard]] Owners owners_from(const Device& on, InstanceId id) const;
  template <typename Change>
  void change_slice(const DeviceTimeline& timeline, Instance& instance, std::uint32_t device, std::int64_t window,
                    Change&& change);
  void correct_process(std::uint32_t device, const Corrections& corrections, Interval past);
  void correct_instances(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections);
  void correct_owners(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections, TimeNs at);

  LiveInstances& live_;
  WindowRows& rows_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace mfu

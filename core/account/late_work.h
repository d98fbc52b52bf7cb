// Work whose record came after its time had been swept: of a long kernel, or in a buffer that CUPTI kept back.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
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
  /// The instance began at `at`, which the sweep has gone past.
  void add_since(DeviceTimeline& timeline, Instance& instance, std::uint32_t device, TimeNs at) {
    if (at < timeline.now()) change_since(timeline, instance, device, at, 1);
  }
  /// Likewise it ended there; before it is marked as ended.
  void take_since(DeviceTimeline& timeline, Instance& instance, std::uint32_t device, TimeNs at) {
    if (at < timeline.now()) change_since(timeline, instance, device, at, -1);
  }
  /// From the sweep of `timeline`, see TimelineListener.
  void correct(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections);
  /// The device's timeline was swept: corrections of what was added are made.
  void swept(std::uint32_t device) noexcept {
    devices_[device]->owners.clear();
    devices_[device]->past.reset();
  }

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
    TimeNs past_from = 0, past_until = 0;
    std::optional<Corrections> past;  ///< the classes from past_from to past_until
  };

  [[nodiscard]] static std::uint32_t path_of(const Owners& owners) noexcept {
    return owners.empty() ? 0 : std::visit([](const auto* found) { return found->region_path; }, owners.front());
  }
  [[nodiscard]] Owners owners_from(const Device& on, InstanceId id) const;
  template <typename Change>
  void change_slice(const DeviceTimeline& timeline, Instance& instance, std::uint32_t device, std::int64_t window,
                    Change&& change);
  [[nodiscard]] ClassTimes past_times(DeviceTimeline& timeline, std::uint32_t device, Interval interval);
  void change_since(DeviceTimeline& timeline, Instance& instance, std::uint32_t device, TimeNs at, int sign);
  void correct_process(std::uint32_t device, const Corrections& corrections, Interval past);
  void correct_instances(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections);
  void correct_owners(const DeviceTimeline& timeline, std::uint32_t device, const Corrections& corrections);

  LiveInstances& live_;
  WindowRows& rows_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace mfu

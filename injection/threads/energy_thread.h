// The thread that reads energy counters at the ends of windows.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/energy/energy_account.h"
#include "core/rows/device_info.h"
#include "cuda/nvml.h"
#include "injection/threads/wakeup.h"

namespace mfu {

/// [mfu-energy] runs loop(). NVML may take milliseconds or hang, and then holds up nothing else: no lock is held around
/// its calls, and the thread is never joined. A counter is read at ends of windows that are a second apart or more;
/// five seconds where a call takes longer than 1 ms.
class EnergyThread {
 public:
  /// \param origin where the windows' grid begins, CLOCK_MONOTONIC.
  EnergyThread(TimeNs origin, DurationNs window) : origin_(origin), window_(window) {}
  [[nodiscard]] bool start();
  void stop() noexcept { stopping_.store(true, std::memory_order_relaxed); }

  /// [mfu-drain] Devices to read; those that are known already are passed over.
  void watch(const std::vector<DeviceInfo>& devices);
  /// [mfu-drain] The counter at a window's end, CLOCK_MONOTONIC.
  [[nodiscard]] std::optional<EnergyReading> at(std::uint32_t device, TimeNs edge);
  /// [mfu-drain] Shares of the time up to a window's end, since the reading before, in which the clock was held down.
  [[nodiscard]] std::array<std::optional<double>, 3> throttled(std::uint32_t device, TimeNs edge);
  /// [mfu-drain] For the log, once per device: the counter's period and what a call takes, or why there is none.
  [[nodiscard]] std::vector<std::string> take_notices();
  /// [any thread] CPU time of the thread [s].
  [[nodiscard]] double cpu_s() const noexcept { return cpu_s_.load(std::memory_order_relaxed); }

 private:
  struct Reading {
    TimeNs at = 0;
    double joules = 0;
    std::array<std::optional<double>, 3> throttled_s;
  };
  struct Device {
    std::uint32_t number = 0;
    std::string uuid;
    std::optional<NvmlDevice> nvml;                 ///< [mfu-energy]
    DurationNs call = 0, last_call = kNsPerSecond;  ///< [mfu-energy] a call takes, the last one took
    DurationNs period = 0;                          ///< of the counter; 0: not found yet
    std::deque<Reading> readings;                   ///< the newest last
  };
  void loop();
  void open(Device& device);
  [[nodiscard]] bool read(Device& device, Reading& reading);
  [[nodiscard]] const Device* find(std::uint32_t device) const;
  [[nodiscard]] static std::size_t closest(const Device& device, TimeNs edge);

  const TimeNs origin_;
  const DurationNs window_;
  Wakeup wake_;
  // Changed and read by other threads within wake_.notify() alone.
  std::deque<Device> devices_;
  std::vector<std::string> notices_;
  std::atomic<bool> stopping_{false};
  std::atomic<double> cpu_s_{0};
};

}  // namespace mfu

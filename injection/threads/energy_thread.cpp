#include "injection/threads/energy_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cuda/host_thread.h"
#include "injection/guards/allocation.h"
#include "injection/guards/own_thread.h"

namespace mfu {

constexpr DurationNs kMs = 1'000'000;

bool EnergyThread::start() {
  return start_own_thread(
      "mfu-energy", [](void* self) { static_cast<EnergyThread*>(self)->loop(); }, this);
}

void EnergyThread::watch(const std::vector<DeviceInfo>& devices) {
  wake_.notify([&] {
    for (const DeviceInfo& info : devices)
      if (find(info.device) == nullptr) {
        devices_.emplace_back();
        devices_.back().number = info.device;
        devices_.back().uuid = info.uuid;
      }
  });
}

const EnergyThread::Device* EnergyThread::find(std::uint32_t device) const {
  const auto found =
      std::find_if(devices_.begin(), devices_.end(), [device](const Device& d) { return d.number == device; });
  return found == devices_.end() ? nullptr : &*found;
}

/// Index of the reading that was made within 50 ms of a window's end; readings.size(): none was.
std::size_t EnergyThread::closest(const Device& device, TimeNs edge) {
  const auto near = [edge](const Reading& r) { return std::abs(r.at - edge) < 50 * kMs; };
  return static_cast<std::size_t>(std::find_if(device.readings.begin(), device.readings.end(), near) -
                                  device.readings.begin());
}

std::optional<EnergyReading> EnergyThread::at(std::uint32_t device, TimeNs edge) {
  std::optional<EnergyReading> found;
  wake_.notify([&] {
    const Device* of = find(device);
    if (of == nullptr || of->period == 0) return;
    const std::size_t i = closest(*of, edge);
    if (i == of->readings.size() || i == 0) return;
    const Reading &now = of->readings[i], &before = of->readings[i - 1];
    const double watts = (now.joules - before.joules) / seconds(now.at - before.at);
    // Not quite at the edge: at the power of the time before.
    const double off = watts * seconds(now.at - edge);
    found = EnergyReading{now.joules - off, watts * seconds(of->period) + std::abs(off) / 2};
  });
  return found;
}

std::array<std::optional<double>, 3> EnergyThread::throttled(std::uint32_t device, TimeNs edge) {
  std::array<std::optional<double>, 3> shares;
  wake_.notify([&] {
    const Device* of = find(device);
    const std::size_t i = of != nullptr ? closest(*of, edge) : 0;
    if (i == 0 || i == of->readings.size()) return;
    const Reading &now = of->readings[i], &before = of->readings[i - 1];
    for (std::size_t k = 0; k < shares.size(); ++k)
      if (now.throttled_s[k] && before.throttled_s[k] && *now.throttled_s[k] >= *before.throttled_s[k])
        shares[k] = std::min(1.0, (*now.throttled_s[k] - *before.throttled_s[k]) / seconds(now.at - before.at));
  });
  return shares;
}

std::vector<std::string> EnergyThread::take_notices() {
  std::vector<std::string> notices;
  wake_.notify([&] { notices = std::exchange(notices_, {}); });
  return notices;
}

bool EnergyThread::read(Device& device, Reading& reading) {
  int refused = 0;
  const TimeNs begun = monotonic_ns();
  const std::optional<double> joules = device.nvml->joules(refused);
  reading.at = monotonic_ns();
  // The shorter of two, since a thread that was held up between the two clocks took no longer in the call.
  device.call = std::min(device.last_call, reading.at - begun);
  device.last_call = reading.at - begun;
  reading.joules = joules.value_or(0);
  if (joules) return true;
  if (refused != NvmlDevice::kNoFunction)
    wake_.notify([&] {
      notices_.push_back(
          fmt::format("gpu{}: the energy counter cannot be read: nvmlDeviceGetTotalEnergyConsumption returns {}",
                      device.number, refused));
    });
  device.nvml.reset();
  return false;
}

/// Finds the counter's period, by looks at a tenth of the thread's time, for at most half a second.
void EnergyThread::open(Device& device) {
  constexpr DurationNs kLongest = 500 * kMs;
  device.nvml = NvmlDevice::find(device.uuid);
  if (!device.nvml) return;
  if (device.nvml->is_part()) {
    device.nvml.reset();
    return wake_.notify([&] {
      notices_.push_back(
          fmt::format("gpu{}: no energy: a part of a GPU (MIG) has no counter of its own", device.number));
    });
  }
  Reading last;
  if (!read(device, last)) return;
  const TimeNs begun = last.at;
  const DurationNs between = std::max(5 * kMs, 9 * device.call);
  DurationNs period = kLongest;
  for (TimeNs changed = 0; monotonic_ns() - begun < kLongest && !stopping_.load(std::memory_order_relaxed);) {
    wake_.wait(between, [] { return false; });
    Reading next;
    if (!read(device, next)) return;
    if (next.joules == last.joules) continue;
    if (changed != 0) period = std::min(period, next.at - changed + between);
    changed = next.at;
    last = next;
  }
  wake_.notify([&] {
    device.period = period;
    device.readings.push_back(last);
    notices_.push_back(fmt::format("gpu{}: the energy counter changes within {} ms; a call takes {:.1f} ms",
                                   device.number, period / kMs, seconds(device.call) * 1e3));
  });
}

void EnergyThread::loop() {
  constexpr std::size_t kMostReadings = 256;
  TimeNs read_at = 0;
  std::vector<Device*> known;
  while (!stopping_.load(std::memory_order_relaxed) && !memory_was_refused()) {
    const bool slow = std::any_of(known.begin(), known.end(), [](const Device* d) { return d->call > kMs; });
    const DurationNs apart = (slow ? 5 : 1) * kNsPerSecond;
    // The first end of a window that is far enough from the last one that was read.
    const TimeNs earliest = std::max(monotonic_ns(), read_at + apart - apart / 50);
    const TimeNs edge = origin_ + ((earliest - origin_) / window_ + 1) * window_;
    std::vector<Device*> more;
    const auto changed = [&] {
      while (known.size() + more.size() < devices_.size()) more.push_back(&devices_[known.size() + more.size()]);
      return !more.empty();
    };
    if (wake_.wait(edge - monotonic_ns(), changed)) {
      for (Device* device : more) open(*device);
      known.insert(known.end(), more.begin(), more.end());
      cpu_s_.store(thread_cpu_s(), std::memory_order_relaxed);
      continue;
    }
    read_at = edge;
    for (Device* device : known) {
      Reading reading;
      if (!device->nvml || !read(*device, reading)) continue;
      reading.throttled_s = device->nvml->throttled_s();
      wake_.notify([&] {
        device->readings.push_back(reading);
        if (device->readings.size() > kMostReadings) device->readings.pop_front();
      });
    }
    cpu_s_.store(thread_cpu_s(), std::memory_order_relaxed);
  }
}

}  // namespace mfu

// The clock of the simulated CUPTI: the driver's, or what a client has put in its place.
#include <unistd.h>

#include <atomic>

#include "tools/simgpu/cupti/cupti_buffers.h"

namespace mfu::sim {

namespace {

struct Clock {
  std::atomic<CUpti_TimestampCallbackFunc> callback{nullptr};
  std::atomic<bool> ever{false};
  std::atomic<std::int64_t> base_ns{0};
  std::atomic<std::uint64_t> base_ticks{0};
};
constinit Clock g_clock;

}  // namespace

void set_timestamp_callback(CUpti_TimestampCallbackFunc callback) {
  g_clock.callback.store(nullptr);
  if (callback != nullptr) {
    g_clock.ever.store(true);
    g_clock.base_ns.store(connected_driver()->now_ns());
    g_clock.base_ticks.store(callback());
    usleep(2000);  // the rate of its clock is worked out from here on: give it something to divide by
  }
  g_clock.callback.store(callback);
}

bool timestamp_callback_ever() { return g_clock.ever.load(); }

std::uint64_t cupti_timestamp() {
  if (const CUpti_TimestampCallbackFunc callback = g_clock.callback.load(); callback != nullptr) return callback();
  if (const Driver* driver = connected_driver(); driver != nullptr) return static_cast<std::uint64_t>(driver->now_ns());
  return static_cast<std::uint64_t>(realtime_ns());
}

std::int64_t in_client_units(std::int64_t t_ns) {
  const CUpti_TimestampCallbackFunc callback = g_clock.callback.load();
  if (callback == nullptr || t_ns == 0) return t_ns;
  const std::int64_t now = connected_driver()->now_ns();
  const std::uint64_t ticks = callback();
  const std::int64_t base_ns = g_clock.base_ns.load();
  const double rate =
      now > base_ns ? static_cast<double>(ticks - g_clock.base_ticks.load()) / static_cast<double>(now - base_ns) : 1;
  return static_cast<std::int64_t>(ticks) - static_cast<std::int64_t>(static_cast<double>(now - t_ns) * rate);
}

}  // namespace mfu::sim

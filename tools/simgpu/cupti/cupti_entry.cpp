#include "tools/simgpu/cupti/cupti_entry.h"

#include <cstdio>
#include <cstdlib>

#include "tools/simgpu/cupti/cupti_buffers.h"

namespace mfu::sim {

namespace {

/// Whether the number of the driver's version would do.
bool driver_is_new_enough() {
  const Driver* driver = connected_driver();
  const std::uint32_t version = cupti_layout().version;
  return driver != nullptr && (version < 100000 || driver->settings->driver_version >= version / 10000 * 1000);
}

volatile bool g_goes_on = true;

/// Calls itself until the stack is full. The sum keeps the compiler from making a loop of it.
[[gnu::noinline]] std::uint32_t without_end(std::uint32_t depth) {  // NOLINT(misc-no-recursion)
  volatile std::uint32_t own = depth;
  return g_goes_on ? without_end(own + 1) + own : own;
}

}  // namespace

bool driver_is_fit() { return driver_is_new_enough() && !settings().unfit; }

void overflow_stack_if_unfit(const char* function) {
  if (cupti_layout().version / 100 != 1302 || driver_is_fit()) return;
  // A mistake that a client can avoid by the documents ends the program with a message.
  if (driver_is_new_enough()) (void)without_end(0);
  std::fprintf(stderr, "[simgpu] %s of CUPTI 13.2 without a driver that it can use: stack overflow\n", function);
  std::abort();
}

bool needs_driver_for_anything() { return cupti_layout().version >= 130300; }

CUptiResult enter(const char* function) {
  overflow_stack_if_unfit(function);
  if (const Driver* driver = connected_driver(); driver != nullptr && driver->forked())
    rule_broken("CUPTI was called in a process forked after cuInit");
  return scripted(function);
}

CUptiResult enter_with_driver(const char* function) {
  if (const CUptiResult result = enter(function); result != CUPTI_SUCCESS) return result;
  if (!driver_is_fit() || settings().devices.empty())
    return cupti_layout().version >= 130000 ? CUPTI_ERROR_UNKNOWN : CUPTI_ERROR_NOT_INITIALIZED;
  return CUPTI_SUCCESS;
}

}  // namespace mfu::sim

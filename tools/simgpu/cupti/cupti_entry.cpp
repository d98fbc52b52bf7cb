#include "tools/simgpu/cupti/cupti_entry.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_foreign.h"

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

CUptiResult scripted(const char* function) {
  const Settings& s = settings();
  if (s.functions.empty()) return CUPTI_SUCCESS;
  auto it = s.functions.find(function);
  if (it == s.functions.end()) it = s.functions.find("*");
  if (it == s.functions.end()) return CUPTI_SUCCESS;
  std::uint64_t call = 0;
  {
    static auto* const mutex = new std::mutex;
    static auto* const calls = new std::map<std::string, std::uint64_t>;
    const std::lock_guard lock(*mutex);
    call = ++(*calls)[function];
  }
  const FunctionFault& fault = it->second;
  if (call < fault.from_call || acting_as_foreign()) return CUPTI_SUCCESS;
  if (fault.delay_ms > 0) {
    const timespec ts{fault.delay_ms / 1000, fault.delay_ms % 1000 * 1'000'000};
    nanosleep(&ts, nullptr);
  }
  while (fault.hang) pause();
  return static_cast<CUptiResult>(fault.result);
}

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

// The common beginning of every exported function of the simulated libcupti.
#pragma once

#include <cupti.h>

#include "tools/simgpu/cupti/test_hooks.h"
#include "tools/simgpu/interface.h"
#include "tools/simgpu/settings.h"

// Exports NAME under another name in C++: headers from 13.2 on declare it themselves, with types that older ones lack.
#define SIM_EXPORT_AS(name, parameters)                    \
  SIM_EXPORT CUptiResult sim_##name parameters asm(#name); \
  CUptiResult sim_##name parameters

#define ENTER(function)                                                     \
  if (const CUptiResult early = enter(#function); early != CUPTI_SUCCESS) { \
    return early;                                                           \
  }
/// For a function that needs a driver from 13.3 on.
#define ENTER_ANYWHERE(function)                                                                               \
  if (const CUptiResult early = needs_driver_for_anything() ? enter_with_driver(#function) : enter(#function); \
      early != CUPTI_SUCCESS) {                                                                                \
    return early;                                                                                              \
  }
#define ENTER_WITH_DRIVER(function)                                                     \
  if (const CUptiResult early = enter_with_driver(#function); early != CUPTI_SUCCESS) { \
    return early;                                                                       \
  }
// A function that needs a driver: SIM_CUPTI(name, (parameters), { body }).
#define SIM_CUPTI(name, parameters, ...)   \
  SIM_EXPORT CUptiResult name parameters { \
    ENTER_WITH_DRIVER(name)                \
    __VA_ARGS__                            \
  }
// The same with SIM_EXPORT_AS.
#define SIM_CUPTI_AS(name, parameters, ...) \
  SIM_EXPORT_AS(name, parameters) {         \
    ENTER_WITH_DRIVER(name)                 \
    __VA_ARGS__                             \
  }

namespace mfu::sim {

/// The fault that a test wants of `function`; a value other than 0 is the answer.
[[nodiscard]] inline CUptiResult scripted(const char* function) {
  return run_fault == nullptr || acting_as_foreign() ? CUPTI_SUCCESS : static_cast<CUptiResult>(run_fault(function));
}
/// Whether CUPTI can work with the driver: there is one, and it is not older than this CUPTI's major version.
[[nodiscard]] bool driver_is_fit();
/// 13.2 cannot initialise without a fit driver, and every function of it asks another one for the text of that error,
/// without end: the stack overflows.
void overflow_stack_if_unfit(const char* function);
/// From 13.3 on the few functions that used to work without a driver answer 999 there as well.
[[nodiscard]] bool needs_driver_for_anything();
/// Start of a function that works without a driver.
[[nodiscard]] CUptiResult enter(const char* function);
/// Start of a function that answers 15 (up to 12.9) or 999 where there is no driver.
[[nodiscard]] CUptiResult enter_with_driver(const char* function);

}  // namespace mfu::sim

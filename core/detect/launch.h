// One launch as the step detector sees it.
#pragma once

#include <cstdint>

#include "core/base/activity_record.h"
#include "core/base/units.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {

/// One host call that put work on the device, in correlation order; all records of one graph launch are one Launch.
struct Launch {
  static constexpr std::uint32_t kFirstKernel = 64;          ///< smaller names are KernelRole values of copies and sets
  static constexpr std::uint32_t kGraphName = 0x8000'0000u;  ///< set in the name of a graph

  std::uint32_t name = 0;    ///< equal for equal kernels, graphs or directions of a copy
  std::uint32_t thread = 0;  ///< host thread; 0: not known
  KernelTraits traits;
  TimeNs begin_ns = 0;  ///< of its first activity
  TimeNs end_ns = 0;    ///< of its last activity
  Grid grid;            ///< of its kernel, the first one of several; zero for copies, sets and graphs
};

}  // namespace mfu

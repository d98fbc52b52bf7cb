// Everything that runs inside a host: built in one order, started once, stopped once, never destroyed.
#pragma once

#include "core/base/result.h"

namespace mfu {

/// Config > rules and model > attribution and ledger > CUPTI > threads and sinks. [inside cuInit, or later]
class Runtime {
 public:
  /// Once per process; further calls return at once. Reads the configuration, opens CUPTI, subscribes. No thread is
  /// started before there is a context, unless there is no CUPTI to wait for.
  static void start();
  /// NVTX is in use and nobody started us: if CUDA was initialised before we were loaded, the driver never will.
  static void start_late() noexcept;
  [[nodiscard]] static bool started() noexcept;
};

}  // namespace mfu

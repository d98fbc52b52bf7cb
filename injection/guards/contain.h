// The boundary to every foreign caller: nothing of ours gets past it but a return value.
#pragma once

#include <utility>

#include "cuda/host_thread.h"
#include "cuda/nvtx_handler.h"

namespace mfu {

/// Runs `body`; on an exception counts it, makes the library inert and returns `on_fault`. The host goes on.
template <typename Value, typename Body>
Value contain(Value on_fault, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    host_counters().add(Counter::kFaultsContained);
    host_switches().inert.store(true, std::memory_order_relaxed);
    return on_fault;
  }
}

}  // namespace mfu

// The boundary to every foreign caller: nothing gets past it but a return value, and nothing unwinds what is inside.
#pragma once

#include <pthread.h>

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

/// Puts off a pthread_cancel of the calling thread until the host has it back. Opening, reading and waiting are
/// cancellation points: the thread would be unwound through the library's frames, which hold locks, contain exceptions,
/// and carry an unwinder whose version need not be the system's.
class CancellationOff {
 public:
  CancellationOff() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { ::pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace mfu

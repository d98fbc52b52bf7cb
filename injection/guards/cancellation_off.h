// What a host's thread must not be cancelled in.
#pragma once

#include <pthread.h>

namespace mfu {

/// Puts off a pthread_cancel of the calling thread until the host has it back. Opening, reading and waiting are
/// cancellation points: the thread would be unwound through frames of ours, which hold locks, contain exceptions, and
/// carry an unwinder of their own that need not be of the version of the system's.
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

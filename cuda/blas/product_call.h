// hot. A library call for a matrix product, from its arguments to the launches that it makes.
#pragma once

#include "core/attribution/attribution.h"
#include "core/base/product.h"
#include "cuda/host_thread.h"

namespace mfu {

/// [calling thread] While it lives, kernels that the thread launches are of its product. Calls inside it count as part
/// of it. An exception or a cancelled thread ends it as a return does.
class ProductCall {
 public:
  /// Nothing is looked at where the library is not active, or the thread is inside of another call: then false.
  [[gnu::always_inline]] ProductCall() noexcept {
    const HostSwitches& switches = host_switches();
    if (switches.inert.load(std::memory_order_relaxed)) return;
    const HostLinks* live = switches.live.load(std::memory_order_acquire);
    if (live == nullptr) return;
    const HostThread* thread = live_thread(*live);
    if (thread == nullptr || thread->state == nullptr || thread->state->product) return;
    attribution_ = live->attribution;
    state_ = thread->state;
  }
  [[gnu::always_inline]] ~ProductCall() {
    if (begun_) attribution_->end_product(*state_, failed_);
  }
  ProductCall(const ProductCall&) = delete;
  ProductCall& operator=(const ProductCall&) = delete;

  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
  [[gnu::always_inline]] void begin(const Product& product) noexcept {
    begun_ = attribution_->begin_product(*state_, ProductWords(product));
  }
  /// The library returned an error: its launches are no whole product.
  void fail() noexcept { failed_ = true; }

 private:
  Attribution* attribution_ = nullptr;
  ThreadState* state_ = nullptr;
  bool begun_ = false, failed_ = false;
};

}  // namespace mfu

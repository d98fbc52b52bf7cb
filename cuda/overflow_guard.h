// A call into a library that may never come back, because it calls itself until the stack is full.
#pragma once

namespace mfu {

/// How a call on a separate stack ended.
enum class GuardedCall {
  kReturned,
  kOverflowed,  ///< it filled its stack
  kNotCalled,   ///< there was no stack for it: no memory, or the thread is on its signal stack already
};

namespace detail {
[[nodiscard]] GuardedCall call_guarded(void (*function)(void*), void* argument) noexcept;
}

/// Calls `function()` on a separate stack and says whether it came back. The thread stays the same, since the caller
/// may be inside cuInit, whose locks are this thread's. Locks that the function held when it filled its stack it holds
/// for ever: nothing of that library may be called again.
///
/// SIGSEGV is taken for the time of the call. One on another thread goes to the handler before.
template <typename Function>
[[nodiscard]] GuardedCall call_guarded(Function function) noexcept {
  return detail::call_guarded([](void* f) { (*static_cast<Function*>(f))(); }, &function);
}

}  // namespace mfu

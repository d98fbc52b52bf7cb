// A call into a library that may never come back, because it calls itself until the stack is full.
#pragma once

namespace mfu {

namespace detail {
[[nodiscard]] bool survives_overflow(void (*function)(void*), void* argument) noexcept;
}

/// Calls `function()` on a stack of its own and says whether it came back; false: it filled that stack, or there was no
/// memory for one, and it was not called. The thread stays the same, since the caller may be inside cuInit, whose locks
/// are this thread's. What the function held when it filled its stack it holds for ever: nothing of that library may be
/// called again.
///
/// SIGSEGV is taken for the time of the call. One on another thread goes to whoever had it before.
template <typename Function>
[[nodiscard]] bool survives_overflow(Function function) noexcept {
  return detail::survives_overflow([](void* f) { (*static_cast<Function*>(f))(); }, &function);
}

}  // namespace mfu

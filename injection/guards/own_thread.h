// Threads we start inside somebody else's process.
#pragma once

#include <pthread.h>

namespace mfu {

/// Starts `body(argument)` on a detached thread: named, every signal blocked so that the host's handlers never run on
/// it, 512 KiB of stack. False when there is no thread to be had.
[[nodiscard]] bool start_own_thread(const char* name, void (*body)(void*), void* argument) noexcept;

/// [any thread] How many of them run.
[[nodiscard]] unsigned own_threads() noexcept;

}  // namespace mfu

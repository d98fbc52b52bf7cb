// Threads we start inside somebody else's process.
#pragma once

#include <pthread.h>

namespace mfu {

/// [at load] The processors that the process has at this moment: those of its threads of ours, though the host may pin
/// the thread that starts them.
void remember_processors() noexcept;

/// Starts `body(argument)` on a detached thread: named, every signal blocked so that the host's handlers never run on
/// it, 512 KiB of stack, SCHED_OTHER at nice 5 or more on the remembered processors and those of the main thread,
/// whatever the calling thread has. False when there is no thread to be had.
[[nodiscard]] bool start_own_thread(const char* name, void (*body)(void*), void* argument) noexcept;

/// [any thread] How many of them run.
[[nodiscard]] unsigned own_threads() noexcept;

}  // namespace mfu

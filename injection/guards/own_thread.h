// The library's threads inside the host's process.
#pragma once

#include <pthread.h>

namespace mfu {

/// [at load] The processors that the process has at this moment. The library's threads get them, though the host may
/// pin the thread that starts them.
void remember_processors() noexcept;

/// Starts `body(argument)` on a detached thread: named, every signal blocked so that the host's handlers never run on
/// it, 512 KiB of stack, SCHED_OTHER at nice 5 or more on the remembered processors and those of the main thread,
/// though the calling thread may have others. False when there is no thread to be had.
[[nodiscard]] bool start_own_thread(const char* name, void (*body)(void*), void* argument) noexcept;

/// [own thread] The main thread has ended by itself (pthread_exit) and what is left are the library's threads: without
/// them the process would be over. Opens nothing. False where /proc is not to be had.
[[nodiscard]] bool only_own_threads_left() noexcept;

/// Ends the process as its last thread would have done: exit(0), on a thread that is not waited for. Once.
void exit_as_last_thread() noexcept;

}  // namespace mfu

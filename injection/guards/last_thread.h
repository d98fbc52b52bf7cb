// Whether the host's own threads are all gone.
#pragma once

namespace mfu {

/// [a thread of ours] The main thread has ended by itself (pthread_exit) and what is left are threads of ours: without
/// them the process would be over. Opens nothing. False where /proc is not to be had.
[[nodiscard]] bool only_own_threads_left() noexcept;

/// Ends the process as its last thread would have done: exit(0), on a thread that nobody waits for. Once.
void exit_as_last_thread() noexcept;

}  // namespace mfu

// Descriptors apart from the host's, and whether paths still mean what they meant.
#pragma once

namespace mfu {

/// [own thread, once] From now on the calling thread has another table, with nothing of the host's in it: a
/// number that the host closes is never ours for a moment, and what it keeps open, closes or counts is its own affair.
/// Numbers 0 to 2 are /dev/null. False where the system refuses (Linux before 5.9 without /proc, seccomp): the table is
/// the host's then, as it was.
[[nodiscard]] bool take_own_descriptors() noexcept;

/// [any thread] False once the process has gone into another root directory (chroot, pivot_root): a path in a variable
/// is not to be found there, and no files were asked for in that place.
[[nodiscard]] bool same_root() noexcept;

}  // namespace mfu

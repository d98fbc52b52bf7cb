// Whether paths still mean what they meant when the library was loaded.
#pragma once

namespace mfu {

/// [any thread] False once the process has gone into another root directory (chroot, pivot_root): what a variable names
/// is not to be found there, and nobody asked for files in that place.
[[nodiscard]] bool same_root() noexcept;

}  // namespace mfu

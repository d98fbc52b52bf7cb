// The command line of the process that is measured, as the run directory records it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/units.h"

namespace mfu {

inline constexpr std::size_t kMaxCommandBytes = 1000;

/// `cmdline` as in /proc/self/cmdline (each argument ends in a NUL byte), as one line: arguments apart by spaces, in
/// single quotes where a shell would need them, at most kMaxCommandBytes with `...` where it was cut. The text after
/// an option whose name is one of a secret is `***`, and so is what is a secret by its form (core/base/secrets.h): run
/// directories are shared.
[[nodiscard]] std::string command_text(std::string_view cmdline);

/// That of this process; empty where /proc says nothing.
[[nodiscard]] std::string host_command();

/// When the process that `stat` (as /proc/PID/stat) is of was started, in ticks of the kernel since the boot.
[[nodiscard]] std::optional<std::int64_t> start_ticks(std::string_view stat);

/// When this process was started, UTC [ns], to a tick (10 ms); 0: /proc does not say.
[[nodiscard]] TimeNs host_began_ns();

}  // namespace mfu

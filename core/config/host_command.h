// The command line of the process that is measured, as the run directory records it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mfu {

inline constexpr std::size_t kMaxCommandBytes = 1000;

/// `cmdline` as in /proc/self/cmdline (each argument ends in a NUL byte), as one line: arguments apart by spaces, in
/// single quotes where a shell would need them, at most kMaxCommandBytes with `...` where it was cut. The text after
/// an option whose name is one of a secret is `***`, and so is what is a secret by its form (core/base/secrets.h): run
/// directories are shared.
[[nodiscard]] std::string command_text(std::string_view cmdline);

/// That of this process; empty where /proc says nothing.
[[nodiscard]] std::string host_command();

}  // namespace mfu

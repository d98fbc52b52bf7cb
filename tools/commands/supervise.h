// Runs a program as a child process and is, for everybody else, that program: signals, exit status, terminal.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mfu {

/// How a program ended.
struct ProgramEnd {
  int start_error = 0;  ///< errno of execvp; 0: it was started
  int status = 0;       ///< as waitpid(2) gives it
};

/// Starts `command` (looked up in PATH) and waits until it ended. The child stays in this process's group and session,
/// with its standard streams and its terminal. Meanwhile:
/// - a signal that only this process got is passed on; one that the whole group got (Ctrl-C, `kill -- -PGID`) is not,
///   since the child has it already;
/// - when the child is stopped on a terminal this process stops too, so that the shell takes over, and goes on with it;
/// - when this process is killed by SIGKILL the child is killed as well;
/// - children of others that this process inherits, as the first one of a container does, are reaped.
/// \param before_end is called once, before a SIGTERM or SIGINT is passed on.
[[nodiscard]] ProgramEnd run_and_wait(const std::vector<std::string>& command, const std::function<void()>& before_end);

/// Ends this process as the child ended: by the same exit code, or by the same signal (without a second core file).
[[noreturn]] void end_like(int status);

}  // namespace mfu

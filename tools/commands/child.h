// Processes that the commands start.
#pragma once

#include <string>
#include <vector>

namespace mfu {

/// Pointers to `words` with a null pointer behind the last, for exec. Valid while `words` lives unchanged.
[[nodiscard]] std::vector<char*> spawn_arguments(std::vector<std::string>& words);

/// Runs this command again with `words` behind its name, and waits. \param silent without its stdout. \return its exit
/// code, or 128 + signal; -1: it cannot be started.
[[nodiscard]] int run_again(std::vector<std::string> words, bool silent = false);

}  // namespace mfu

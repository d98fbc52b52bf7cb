// The program's work while the GPU has nothing to do: the name and the line that a Python stack folds to.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace mfu {

struct PythonFrame {
  std::string file;      ///< as its code says: a path, `<string>`, `<frozen importlib._bootstrap>`
  std::string function;  ///< its qualified name, where the interpreter has one
  std::uint32_t line = 0;
};

struct HostWork {
  std::string cause;   ///< `torch.save`, `DataLoader.__next__`, `gc`, a function of the program; empty: unknown
  std::string where;   ///< `train.py:57`
  std::string thread;  ///< `main`, `other`

  [[nodiscard]] bool operator==(const HostWork&) const = default;
};

/// While the library rested from looking. Never freed, since it is one of those that last as long as the process.
[[nodiscard]] inline const HostWork* not_looked_at() {
  static const HostWork* const work = new HostWork{"not looked at", "", ""};
  return work;
}

/// The innermost line of a file that is no library's, and what that line calls: a name of the table of those that
/// matter, else `package.function`; the function that the line is in where it calls no Python.
/// \param stack the innermost frame first. \param collecting the interpreter's garbage collector runs.
[[nodiscard]] HostWork work_of(std::span<const PythonFrame> stack, bool collecting);

}  // namespace mfu

// Tools that own a process: profilers and debuggers beside which nothing else may use CUPTI.
#pragma once

#include <string>

namespace mfu {

/// Name of the tool that is at work in this process; empty: none. Known by the libraries that they inject, and for
/// cuda-gdb by who traces the process. Looks at names only and loads nothing.
[[nodiscard]] std::string foreign_tool();

}  // namespace mfu

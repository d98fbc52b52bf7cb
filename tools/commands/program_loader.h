// Whether a program can have libmfuinject.so loaded into it.
#pragma once

#include <string>

namespace mfu {

/// The file that a shell starts for `program`; where there is none, the word as it is.
[[nodiscard]] std::string in_path(const std::string& program);

/// Why the library cannot be loaded into `program` (a path, or a name to be looked for in PATH), as the end of a
/// sentence that begins with its name: another processor, linked statically, or against musl. Empty: nothing speaks
/// against it, or the file is no ELF file, such as a script.
[[nodiscard]] std::string cannot_load_because(const std::string& program);

}  // namespace mfu

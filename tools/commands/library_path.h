// Where this installation keeps libmfuinject.so.
#pragma once

#include <string>

#include "core/base/result.h"

namespace mfu {

/// Absolute path of libmfuinject.so: beside this binary (a build), or in ../lib (an installation). The Error names the
/// places looked at.
[[nodiscard]] Result<std::string> library_path();

/// Absolute path of another file that is installed beside libmfuinject.so.
[[nodiscard]] Result<std::string> installed_file(const std::string& name);

}  // namespace mfu

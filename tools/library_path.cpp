#include "tools/library_path.h"

#include <unistd.h>

#include <filesystem>

namespace mfu {

Result<std::string> library_path() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{"/proc/self/exe: " + error.message()};
  const std::filesystem::path here = self.parent_path();
  std::string looked;
  for (const auto& folder : {here, here.parent_path() / "lib", here.parent_path() / "lib64",
                             here.parent_path() / "lib" / "x86_64-linux-gnu"}) {
    const std::filesystem::path file = folder / "libmfuinject.so";
    if (::access(file.c_str(), R_OK) == 0) return file.string();
    looked += (looked.empty() ? "" : ", ") + file.string();
  }
  return Error{"libmfuinject.so was not found: looked at " + looked};
}

}  // namespace mfu

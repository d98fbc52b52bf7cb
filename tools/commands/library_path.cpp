#include "tools/commands/library_path.h"

#include <unistd.h>

#include <filesystem>

namespace mfu {
namespace {

#if defined(__aarch64__)
constexpr const char* kDebianArchitecture = "aarch64-linux-gnu";
#else
constexpr const char* kDebianArchitecture = "x86_64-linux-gnu";
#endif

}  // namespace

Result<std::string> library_path() { return installed_file("libmfuinject.so"); }

Result<std::string> installed_file(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{"/proc/self/exe: " + error.message()};
  const std::filesystem::path here = self.parent_path();
  std::string looked;
  for (const auto& folder : {here, here.parent_path() / "lib", here.parent_path() / "lib64",
                             here.parent_path() / "lib" / kDebianArchitecture}) {
    const std::filesystem::path file = folder / name;
    if (::access(file.c_str(), R_OK) == 0) return file.string();
    looked += (looked.empty() ? "" : ", ") + file.string();
  }
  return Error{name + " was not found: looked at " + looked};
}

}  // namespace mfu

// A folder for files that are needed as long as a command runs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace mfu {

/// A new folder of the temporary directory whose name begins with `name`; removed with everything in it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name) {
    std::error_code error;
    const std::filesystem::path base = std::filesystem::temp_directory_path(error);
    path_ = ((error ? std::filesystem::path("/tmp") : base) / (name + "-" + std::string(6, 'X'))).string();
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  /// Empty: it cannot be made; errno says why.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace mfu

// Reading environment variables through a function, so that tests can answer for the process; and the process's own.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace mfu {

/// Looks a variable up; nullptr when unset. An EnvironmentCopy in the product, a map in tests.
using Getenv = std::function<const char*(const char* name)>;

/// A variable's value; nullptr when it is unset or empty.
inline const char* value_of(const Getenv& getenv, const char* name) {
  const char* value = getenv ? getenv(name) : nullptr;
  return value != nullptr && *value != '\0' ? value : nullptr;
}

/// [any thread] The process's environment as it was at one moment. Other threads of the host may be inside setenv(),
/// which moves the array and frees the old one, so getenv() could follow a pointer that is none any more. Here the
/// array is copied, and the copy is taken only if it is still what the process has a moment later. The texts stay: the
/// C library frees none of them.
class EnvironmentCopy {
 public:
  EnvironmentCopy();
  /// nullptr: unset.
  [[nodiscard]] const char* find(const char* name) const noexcept;
  /// `NAME=value`, ends with nullptr.
  [[nodiscard]] const char* const* block() const noexcept { return entries_.data(); }
  /// Puts `entry` (`NAME=value`, kept for good) behind the others, unless the environment has changed since the copy:
  /// then false. The old array is never freed.
  [[nodiscard]] bool append_to_process(const char* entry) const noexcept;

 private:
  [[nodiscard]] bool copy();
  [[nodiscard]] bool is_current() const noexcept;

  char** source_ = nullptr;
  std::vector<const char*> entries_;
};

}  // namespace mfu

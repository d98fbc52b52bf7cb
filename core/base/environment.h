// Reading environment variables through a function, so that tests can answer for the process; and the process's own.
#pragma once

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
/// which moves the array and frees the old one, so getenv() could read a pointer that is no longer valid. Here the
/// kernel copies the array (process_vm_readv: memory that is gone is an error, not a fault), and the copy is taken only
/// if it equals the process's array a moment later and the texts can be read. The texts remain valid: the C library
/// frees none of them.
class EnvironmentCopy {
 public:
  EnvironmentCopy();
  /// nullptr: unset.
  [[nodiscard]] const char* find(const char* name) const noexcept;
  /// `NAME=value`, ends with nullptr.
  [[nodiscard]] const char* const* block() const noexcept { return entries_.data(); }
  /// Puts `entry` (`NAME=value`, kept for good) behind the others, unless the environment has changed since the copy:
  /// then false. The old array is never freed.
  [[nodiscard]] bool append_to_process(const char* entry) const;

 private:
  [[nodiscard]] bool copy();
  [[nodiscard]] bool read();
  [[nodiscard]] bool is_current() const;
  [[nodiscard]] bool texts_are_there() const;

  char** source_ = nullptr;
  std::vector<const char*> entries_;
};

}  // namespace mfu

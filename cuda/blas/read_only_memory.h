// Which memory of the process may be read and not written, as /proc/self/maps said.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/zeroed_array.h"

namespace mfu {

/// A look at the process's mappings, taken when it is first asked for and kept until forget(). No allocation; one
/// system call for every 4 KiB of text.
class ReadOnlyMemory {
 public:
  /// [one thread at a time] What was known may not hold any more.
  void forget() noexcept { known_ = false; }
  /// The page at `address` could be read and neither written nor executed. False where nothing says so.
  [[nodiscard]] bool contains(std::uintptr_t address) noexcept;

 private:
  struct Range {
    std::uintptr_t begin, end;
  };
  static constexpr std::size_t kMost = 1u << 15;  ///< three or so of each module; further ones are not known

  void look() noexcept;

  ZeroedArray<Range> ranges_{kMost};  ///< in ascending order, as the kernel gives them
  std::size_t count_ = 0;
  bool known_ = false;
};

}  // namespace mfu

// Names of kernels as a client gets them: longer than the program's, or unreadable once its callback has returned.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace mfu::sim {

/// Memory for the names of one delivery that is made unreadable once the client has had its callback.
class NameArena {
 public:
  const char* copy(const char* name);
  /// From here on no byte of the names that were copied may be read.
  void forbid();

 private:
  void close();

  char* memory_ = nullptr;
  std::size_t size_ = 0, used_ = 0;
  std::vector<std::pair<void*, std::size_t>> blocks_;
};

/// `name`, or a copy of it with as many bytes as the settings ask for. Lives to the end of the process.
const char* lengthened(const char* name);

}  // namespace mfu::sim

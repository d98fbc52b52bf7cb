#include "core/base/file_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace mfu {

std::string_view file_start(const char* path, std::span<char> into) noexcept {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::size_t size = 0;
  while (size < into.size()) {
    const ::ssize_t got = ::read(file, into.data() + size, into.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  ::close(file);
  return {into.data(), size};
}

}  // namespace mfu

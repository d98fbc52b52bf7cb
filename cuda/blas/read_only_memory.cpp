#include "cuda/blas/read_only_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace mfu {
namespace {

/// Hexadecimal digits at the beginning of `text`, which loses them.
std::uintptr_t take_number(std::string_view& text) noexcept {
  std::uintptr_t number = 0;
  while (!text.empty()) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    number = number << 4 | static_cast<std::uintptr_t>(digit);
    text.remove_prefix(1);
  }
  return number;
}

}  // namespace

bool ReadOnlyMemory::contains(std::uintptr_t address) noexcept {
  if (!known_) look();
  const Range* const first = ranges_.data();
  const Range* const end = first + count_;
  const Range* const after =
      std::upper_bound(first, end, address, [](std::uintptr_t at, const Range& range) { return at < range.end; });
  return after != end && address >= after->begin;
}

void ReadOnlyMemory::look() noexcept {
  known_ = true;
  count_ = 0;
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char text[8192];
  std::size_t held = 0;
  for (bool end = false; !end;) {
    const ssize_t got = ::read(fd, text + held, sizeof text - held);
    end = got <= 0;
    if (got > 0) held += static_cast<std::size_t>(got);
    std::string_view rest(text, held);
    for (std::size_t length = rest.find('\n'); length != std::string_view::npos; length = rest.find('\n')) {
      // 7f0000000000-7f0000001000 r--p ...
      std::string_view line = rest.substr(0, length);
      rest.remove_prefix(length + 1);
      const std::uintptr_t begin = take_number(line);
      if (line.substr(0, 1) != "-") continue;
      line.remove_prefix(1);
      const std::uintptr_t stop = take_number(line);
      if (line.substr(0, 4) == " r--" && count_ < ranges_.size()) ranges_[count_++] = {begin, stop};
    }
    std::copy(rest.begin(), rest.end(), text);
    held = rest.size();
    if (held == sizeof text) held = 0;  // a path longer than the buffer: nothing in it is looked for
  }
  ::close(fd);
}

}  // namespace mfu

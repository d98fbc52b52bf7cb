#include "core/base/zeroed_array.h"

namespace mfu::detail {

void* map_zeroed(std::size_t bytes) noexcept {
  void* pages = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  // After mlockall(MCL_FUTURE) of the host every mapping that may be read is filled at once. This one may not yet.
  ::munlock(pages, bytes);
  if (::mprotect(pages, bytes, PROT_READ | PROT_WRITE) == 0) return pages;
  ::munmap(pages, bytes);
  return nullptr;
}

}  // namespace mfu::detail

#include "cuda/blas/import_slot.h"

#include <sys/mman.h>
#include <unistd.h>

namespace mfu {

void* bound_function(const LoadedModule& module, std::uintptr_t slot) noexcept {
  if (slot % sizeof(void*) != 0) return nullptr;
  void* const value = __atomic_load_n(reinterpret_cast<void**>(slot), __ATOMIC_ACQUIRE);
  // A slot that waits for its first call leads into the module itself.
  return module.contains(reinterpret_cast<std::uintptr_t>(value)) ? nullptr : value;
}

bool put_function(const LoadedModule& module, std::uintptr_t slot, void* function) noexcept {
  if (slot % sizeof(void*) != 0) return false;
  const bool read_only = module.read_only_later(slot);
  if (!read_only && !module.writable(slot)) return false;
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(slot & ~(page_bytes - 1));
  if (read_only && ::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(reinterpret_cast<void**>(slot), function, __ATOMIC_RELEASE);
  if (read_only) (void)::mprotect(page, page_bytes, PROT_READ);
  return true;
}

}  // namespace mfu

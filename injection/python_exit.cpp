#include "injection/python_exit.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "blas/loaded_module.h"

namespace mfu {

namespace {

using Exit = void (*)(int);

constinit std::atomic<void (*)() noexcept> g_before{nullptr};
constinit std::atomic<Exit> g_exit{nullptr};  ///< of another tool, in front of the C library's

[[noreturn]] void exit_hook(int status) {
  if (void (*const before)() noexcept = g_before.exchange(nullptr, std::memory_order_acq_rel); before != nullptr)
    before();
  if (const Exit exit = g_exit.load(std::memory_order_acquire); exit != nullptr) exit(status);
  ::_exit(status);
}

bool is_interpreter(const LoadedModule& module) noexcept {
  if (module.name().substr(0, 9) == "libpython") return true;
  if (!module.name().empty()) return false;
  char path[4096];  // the executable has no name in the linker's list
  const ::ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return false;
  std::string_view file(path, static_cast<std::size_t>(length));
  file.remove_prefix(file.rfind('/') + 1);
  return file.substr(0, 6) == "python";
}

void put(const LoadedModule& module, std::uintptr_t slot) noexcept {
  if (slot % sizeof(void*) != 0) return;
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(slot & ~(page_bytes - 1));
  const bool read_only = module.read_only_later(slot);
  if (!read_only && !module.writable(slot)) return;
  void* const value = __atomic_load_n(reinterpret_cast<void**>(slot), __ATOMIC_ACQUIRE);
  if (value == reinterpret_cast<void*>(&exit_hook)) return;
  // Filled in by the linker: the C library's, or another tool's. A slot that waits for its first call leads into the
  // module itself.
  if (value != nullptr && !module.contains(reinterpret_cast<std::uintptr_t>(value)))
    g_exit.store(reinterpret_cast<Exit>(value), std::memory_order_release);
  if (read_only && ::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return;
  __atomic_store_n(reinterpret_cast<void**>(slot), reinterpret_cast<void*>(&exit_hook), __ATOMIC_RELEASE);
  if (read_only) (void)::mprotect(page, page_bytes, PROT_READ);
}

}  // namespace

void call_before_python_exits(void (*before)() noexcept) noexcept {
  g_before.store(before, std::memory_order_release);
  ::dl_iterate_phdr(
      [](::dl_phdr_info* info, std::size_t, void*) {
        const LoadedModule module(*info);
        if (module.usable() && is_interpreter(module))
          module.each_import([](const char* name) { return std::strcmp(name, "_exit") == 0; },
                             [&module](const char*, std::uintptr_t slot) { put(module, slot); });
        return 0;
      },
      nullptr);
}

}  // namespace mfu

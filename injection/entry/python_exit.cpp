#include "injection/entry/python_exit.h"

#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "cuda/blas/import_slot.h"

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
  void* const held = bound_function(module, slot);
  void* const hook = reinterpret_cast<void*>(&exit_hook);
  if (held == hook) return;
  // Filled in by the linker: the C library's, or another tool's.
  if (held != nullptr) g_exit.store(reinterpret_cast<Exit>(held), std::memory_order_release);
  (void)put_function(module, slot, hook);
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

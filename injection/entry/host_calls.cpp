#include "injection/entry/host_calls.h"

#include <dlfcn.h>
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

constinit std::atomic<void (*)() noexcept> g_before_register{nullptr}, g_before_exit{nullptr};
constinit std::atomic<RegisterBuffers> g_register{nullptr};
constinit std::atomic<Exit> g_exit{nullptr};  ///< of another tool, in front of the C library's

/// Calls `each(module)` for every module that can be read, with the linker's lock held.
template <typename Each>
void each_module(Each each) noexcept {
  ::dl_iterate_phdr(
      [](::dl_phdr_info* info, std::size_t, void* f) {
        if (const LoadedModule module(*info); module.usable()) (*static_cast<Each*>(f))(module);
        return 0;
      },
      &each);
}

int register_hook(void (*requested)(), void (*completed)()) {
  if (void (*const before)() noexcept = g_before_register.load(std::memory_order_acquire); before != nullptr) before();
  return g_register.load(std::memory_order_acquire)(requested, completed);
}

/// The last part of the name of the file that holds `function`.
std::string_view file_of(RegisterBuffers function) noexcept {
  ::Dl_info where{};
  if (::dladdr(reinterpret_cast<void*>(function), &where) == 0 || where.dli_fname == nullptr) return {};
  std::string_view file(where.dli_fname);
  return file.substr(file.rfind('/') + 1);
}

/// All slots lead to one function: a process with two copies of CUPTI keeps those of the second as they are.
void put_register(const LoadedModule& module, std::uintptr_t slot, RegisterBuffers cupti) noexcept {
  void* const hook = reinterpret_cast<void*>(&register_hook);
  void* held = bound_function(module, slot);
  if (held == hook) return;
  if (held == nullptr && module.needs(file_of(cupti))) held = reinterpret_cast<void*>(cupti);
  if (held == nullptr) return;
  RegisterBuffers known = nullptr;
  const auto function = reinterpret_cast<RegisterBuffers>(held);
  if (!g_register.compare_exchange_strong(known, function, std::memory_order_acq_rel) && known != function) return;
  (void)put_function(module, slot, hook);
}

[[noreturn]] void exit_hook(int status) {
  if (void (*const before)() noexcept = g_before_exit.exchange(nullptr, std::memory_order_acq_rel); before != nullptr)
    before();
  if (const Exit exit = g_exit.load(std::memory_order_acquire); exit != nullptr) exit(status);
  ::_exit(status);
}

bool is_interpreter(const LoadedModule& module) noexcept {
  if (module.name().starts_with("libpython")) return true;
  if (!module.name().empty()) return false;
  char path[4096];  // the executable has no name in the linker's list
  const ::ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return false;
  std::string_view file(path, static_cast<std::size_t>(length));
  file.remove_prefix(file.rfind('/') + 1);
  return file.starts_with("python");
}

void put_exit(const LoadedModule& module, std::uintptr_t slot) noexcept {
  void* const held = bound_function(module, slot);
  void* const hook = reinterpret_cast<void*>(&exit_hook);
  if (held == hook) return;
  // Filled in by the linker: the C library's, or another tool's.
  if (held != nullptr) g_exit.store(reinterpret_cast<Exit>(held), std::memory_order_release);
  (void)put_function(module, slot, hook);
}

}  // namespace

void call_before_others_register(void (*before)() noexcept, RegisterBuffers cupti) noexcept {
  g_before_register.store(before, std::memory_order_release);
  each_module([cupti](const LoadedModule& module) {
    static const char own = 0;
    if (module.contains(reinterpret_cast<std::uintptr_t>(&own)) || module.name().starts_with("libcupti")) return;
    module.each_import([](const char* name) { return std::strcmp(name, "cuptiActivityRegisterCallbacks") == 0; },
                       [&](const char*, std::uintptr_t slot) { put_register(module, slot, cupti); });
  });
}

void call_before_python_exits(void (*before)() noexcept) noexcept {
  g_before_exit.store(before, std::memory_order_release);
  each_module([](const LoadedModule& module) {
    if (is_interpreter(module))
      module.each_import([](const char* name) { return std::strcmp(name, "_exit") == 0; },
                         [&module](const char*, std::uintptr_t slot) { put_exit(module, slot); });
  });
}

}  // namespace mfu

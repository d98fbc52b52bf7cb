#include "injection/entry/profiler_start.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "cuda/blas/import_slot.h"

namespace mfu {

namespace {

constinit std::atomic<void (*)() noexcept> g_before{nullptr};
constinit std::atomic<RegisterBuffers> g_register{nullptr};

int register_hook(void (*requested)(), void (*completed)()) {
  if (void (*const before)() noexcept = g_before.load(std::memory_order_acquire); before != nullptr) before();
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
void put(const LoadedModule& module, std::uintptr_t slot, RegisterBuffers cupti) noexcept {
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

}  // namespace

void call_before_others_register(void (*before)() noexcept, RegisterBuffers cupti) noexcept {
  g_before.store(before, std::memory_order_release);
  ::dl_iterate_phdr(
      [](::dl_phdr_info* info, std::size_t, void* function) {
        const LoadedModule module(*info);
        static const char own = 0;
        if (!module.usable() || module.contains(reinterpret_cast<std::uintptr_t>(&own)) ||
            module.name().substr(0, 8) == "libcupti")
          return 0;
        module.each_import(
            [](const char* name) {
              return name[0] == 'c' && name[1] == 'u' && std::strcmp(name, "cuptiActivityRegisterCallbacks") == 0;
            },
            [&](const char*, std::uintptr_t slot) { put(module, slot, *static_cast<RegisterBuffers*>(function)); });
        return 0;
      },
      &cupti);
}

}  // namespace mfu

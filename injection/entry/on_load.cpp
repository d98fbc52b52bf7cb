#include "injection/entry/on_load.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "core/base/environment.h"

namespace mfu {
namespace {

/// Paths on the heap: the host's thread may have a stack of 16 KB.
struct Names {
  Names() = default;
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;
  ~Names() {
    for (char* path : paths) std::free(path);
  }
  std::array<char*, 4> paths{};
  std::size_t count = 0;
};

}  // namespace

void* find_in_leading_copy(const char* symbol) noexcept {
  // The linker lists libraries in the order in which they were loaded, so every copy finds the same one first. Names
  // only: dlopen inside this call takes the linker's two locks in the order opposite to another thread's dlopen.
  Names names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        auto& found = *static_cast<Names*>(out);
        const char* path = info->dlpi_name;
        if (path == nullptr || std::strstr(path, "mfuinject") == nullptr) return 0;
        char* copy = ::strdup(path);
        if (copy == nullptr) return 1;
        found.paths[found.count++] = copy;
        return found.count == found.paths.size() ? 1 : 0;
      },
      &names);
  Dl_info mine{};
  if (::dladdr(reinterpret_cast<void*>(&find_in_leading_copy), &mine) == 0) return nullptr;
  for (std::size_t i = 0; i < names.count; ++i) {
    void* handle = ::dlopen(names.paths[i], RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    Dl_info theirs{};
    void* version = ::dlsym(handle, "mfuinject_version");
    const bool is_copy = version != nullptr && ::dladdr(version, &theirs) != 0;
    void* found = is_copy && theirs.dli_fbase != mine.dli_fbase ? ::dlsym(handle, symbol) : nullptr;
    ::dlclose(handle);
    if (is_copy) return found;
  }
  return nullptr;
}

std::string own_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_path), &info) == 0 || info.dli_fname == nullptr) return "";
  // No buffer on the stack, which may be small.
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(info.dli_fname, nullptr), std::free);
  return resolved != nullptr ? std::string(resolved.get()) : std::string(info.dli_fname);
}

void publish_variable(const char* name, const std::string& value) {
  if (value.empty()) return;
  const std::string text = std::string(name) + "=" + value;
  char* entry = new (std::nothrow) char[text.size() + 1];
  if (entry == nullptr) return;
  std::strcpy(entry, text.c_str());
  constexpr int kTries = 100;  // each fails only where another thread has set a variable meanwhile
  for (int i = 0; i < kTries; ++i) {
    const EnvironmentCopy environment;
    if (environment.find(name) != nullptr) break;
    if (environment.append_to_process(entry)) return;
  }
  delete[] entry;
}

}  // namespace mfu

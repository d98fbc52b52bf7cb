#include "injection/entry/publish_variable.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace mfu {

std::string own_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_path), &info) == 0 || info.dli_fname == nullptr) return "";
  // No buffer of ours on the stack, which may be small.
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(info.dli_fname, nullptr), std::free);
  return resolved != nullptr ? std::string(resolved.get()) : std::string(info.dli_fname);
}

void publish_variable(const char* name, const std::string& value) noexcept {
  if (value.empty() || ::getenv(name) != nullptr || environ == nullptr) return;
  const std::size_t length = std::strlen(name) + 1 + value.size() + 1;
  char* entry = new (std::nothrow) char[length];
  if (entry == nullptr) return;
  std::strcpy(entry, name);
  std::strcat(entry, "=");
  std::strcat(entry, value.c_str());
  std::size_t count = 0;
  while (environ[count] != nullptr) ++count;
  char** copy = new (std::nothrow) char*[count + 2];
  if (copy == nullptr) return;
  std::memcpy(copy, environ, count * sizeof *copy);
  copy[count] = entry;
  copy[count + 1] = nullptr;
  __atomic_store_n(&environ, copy, __ATOMIC_RELEASE);
}

}  // namespace mfu

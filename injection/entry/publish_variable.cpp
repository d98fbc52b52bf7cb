#include "injection/entry/publish_variable.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "core/base/environment.h"

namespace mfu {

std::string own_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_path), &info) == 0 || info.dli_fname == nullptr) return "";
  // No buffer of ours on the stack, which may be small.
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

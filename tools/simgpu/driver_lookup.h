// How the simulated libraries above the driver find its functions.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "tools/simgpu/interface.h"

namespace mfu::sim {

/// The process's libcuda.so.1, found once. Null members where there is none, or where it is not the simulated one.
struct DriverApi {
  void* handle = nullptr;
  const Driver* driver = nullptr;
  template <typename F>
  F* find(const char* name) const {
    void* const entry = dlsym(handle, name);
    if (entry == nullptr) {
      std::fprintf(stderr, "[simgpu] the simulated driver has no %s\n", name);
      std::abort();
    }
    return reinterpret_cast<F*>(entry);
  }
};

inline const DriverApi& driver_api() {
  static const DriverApi api = [] {
    DriverApi a;
    a.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (a.handle == nullptr) return a;
    auto* entry = reinterpret_cast<const Driver* (*)()>(dlsym(a.handle, "simgpu_driver"));
    a.driver = entry != nullptr ? entry() : nullptr;
    return a;
  }();
  return api;
}

// Looks a driver function up once per use, by the versioned name that cuda.h makes of it.
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define DRIVER(name)                                                                                    \
  ([]() -> decltype(&::name) {                                                                          \
    static auto* const entry = driver_api().find<std::remove_pointer_t<decltype(&::name)>>(TEXT(name)); \
    return entry;                                                                                       \
  }())

}  // namespace mfu::sim

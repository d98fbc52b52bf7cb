// What the hosts of these tests do between their oddities: they start CUDA as a program does that is not linked with
// it, and make steps of 20 ms.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdlib>

namespace host {

inline void* g_driver = nullptr;
inline CUcontext g_context = nullptr;
inline CUdeviceptr g_memory = 0;

template <typename Function>
Function driver_function(const char* name) {
  const auto function = reinterpret_cast<Function>(::dlsym(g_driver, name));
  if (function == nullptr) std::exit(92);
  return function;
}

inline void start_cuda() {
  g_driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (g_driver == nullptr) std::exit(90);
  if (driver_function<decltype(&::cuInit)>("cuInit")(0) != CUDA_SUCCESS ||
      driver_function<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&g_context, 0) !=
          CUDA_SUCCESS ||
      driver_function<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(g_context) != CUDA_SUCCESS ||
      driver_function<decltype(&::cuMemAlloc)>("cuMemAlloc_v2")(&g_memory, 4096) != CUDA_SUCCESS)
    std::exit(91);
}

/// Each of 20 ms and a little work on the GPU.
inline void steps(int count) {
  static const auto set = driver_function<decltype(&::cuMemsetD8Async)>("cuMemsetD8Async");
  for (int i = 0; i < count; ++i) {
    nvtxRangePushA("step batch=1 seq_len=8");
    (void)set(g_memory, 0, 4096, nullptr);
    ::usleep(20'000);
    nvtxRangePop();
  }
}

}  // namespace host

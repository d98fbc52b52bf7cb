// The CUDA driver and CUPTI as the probes call them: opened at run time, checked once, no link dependency. The kernels
// are PTX text that the driver compiles, so a probe needs no nvcc.
#pragma once

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace probe {

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "probe: %s\n", what.c_str());
  std::exit(2);
}

template <typename F>
F symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) die(std::string("no ") + name);
  return reinterpret_cast<F>(found);
}

// The headers rename entry points to their current version (`cuMemGetInfo` is `cuMemGetInfo_v2`): the name is expanded
// before it is made a string, so that the symbol has the type that the header declares.
#define PROBE_TEXT(name) #name
#define PROBE_EXPANDED(name) PROBE_TEXT(name)
#define PROBE_MEMBER(library, name) \
  decltype(&::name) p_##name = symbol<decltype(&::name)>(library, PROBE_EXPANDED(name))

inline void* open_library(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) die(std::string(path) + ": " + dlerror());
  return library;
}

struct Driver {
  void* lib = open_library("libcuda.so.1");
  PROBE_MEMBER(lib, cuInit);
  PROBE_MEMBER(lib, cuDriverGetVersion);
  PROBE_MEMBER(lib, cuDeviceGet);
  PROBE_MEMBER(lib, cuDevicePrimaryCtxRetain);
  PROBE_MEMBER(lib, cuCtxSetCurrent);
  PROBE_MEMBER(lib, cuCtxSynchronize);
  PROBE_MEMBER(lib, cuModuleLoadData);
  PROBE_MEMBER(lib, cuModuleGetFunction);
  PROBE_MEMBER(lib, cuLaunchKernel);
  PROBE_MEMBER(lib, cuStreamCreate);
  PROBE_MEMBER(lib, cuStreamSynchronize);
  PROBE_MEMBER(lib, cuStreamBeginCapture);
  PROBE_MEMBER(lib, cuStreamEndCapture);
  PROBE_MEMBER(lib, cuGraphInstantiate);
  PROBE_MEMBER(lib, cuGraphLaunch);
  PROBE_MEMBER(lib, cuEventCreate);
  PROBE_MEMBER(lib, cuEventRecord);
  PROBE_MEMBER(lib, cuEventSynchronize);
  // By its plain name: drivers before 12.8 have no _v2, and both take the same arguments.
  decltype(&::cuEventElapsedTime) p_cuEventElapsedTime =
      symbol<decltype(&::cuEventElapsedTime)>(lib, "cuEventElapsedTime");
  PROBE_MEMBER(lib, cuMemGetInfo);
  PROBE_MEMBER(lib, cuMemAlloc);
  PROBE_MEMBER(lib, cuMemsetD8Async);
};

struct Cupti {
  explicit Cupti(const char* path) : lib(open_library(path)) {}
  void* lib;
  PROBE_MEMBER(lib, cuptiGetVersion);
  PROBE_MEMBER(lib, cuptiSubscribe);
  PROBE_MEMBER(lib, cuptiEnableCallback);
  PROBE_MEMBER(lib, cuptiActivityEnable);
  PROBE_MEMBER(lib, cuptiActivityDisable);
  PROBE_MEMBER(lib, cuptiActivityRegisterCallbacks);
  PROBE_MEMBER(lib, cuptiActivityGetNextRecord);
  PROBE_MEMBER(lib, cuptiActivityFlushAll);
  PROBE_MEMBER(lib, cuptiActivityGetNumDroppedRecords);
  PROBE_MEMBER(lib, cuptiActivitySetAttribute);
  PROBE_MEMBER(lib, cuptiActivityPushExternalCorrelationId);
  PROBE_MEMBER(lib, cuptiGetTimestamp);
};

inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) die(std::string(what) + ": CUDA error " + std::to_string(static_cast<int>(result)));
}
inline void check(CUptiResult result, const char* what) {
  if (result != CUPTI_SUCCESS) die(std::string(what) + ": CUPTI error " + std::to_string(static_cast<int>(result)));
}

// Launch ids of both API levels: notes that hold for CUPTI 11.8 to 13.x, since ids never change meaning.
inline constexpr CUpti_CallbackId kDriverLaunches[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};
inline constexpr CUpti_CallbackId kDriverCopies[] = {
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,      CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async,
};
inline constexpr CUpti_CallbackId kRuntimeCopies[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
};
inline constexpr CUpti_CallbackId kRuntimeLaunches[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunch_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
    CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000,
};

inline constexpr const char* kKernels = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
.visible .entry spin(.param .u64 cycles) {
  .reg .u64 %r<4>;
  .reg .pred %p;
  ld.param.u64 %r1, [cycles];
  mov.u64 %r2, %clock64;
again:
  mov.u64 %r3, %clock64;
  sub.u64 %r0, %r3, %r2;
  setp.lt.u64 %p, %r0, %r1;
  @%p bra again;
  ret;
}
)";

}  // namespace probe

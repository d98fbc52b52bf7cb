// The exported functions of the simulated libcuda.so.1 by which the runtime and frameworks find others.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "tools/simgpu/driver/driver_call.h"

using namespace mfu::sim;

/// The real driver's private tables: not there, so the real libcupti sees that this is no NVIDIA driver.
SIM_EXPORT CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid* /*id*/) {
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

SIM_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                                                CUdriverProcAddressQueryResult* status) {
  // Names whose newest form has another signature: the first CUDA version that means it.
  struct Renamed {
    const char* name;
    int since;
    const char* target;
  };
  static constexpr Renamed kRenamed[] = {
      {"cuCtxCreate", 13000, "cuCtxCreate_v4"},
      {"cuCtxCreate", 0, "cuCtxCreate_v2"},
      {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
      {"cuGraphInstantiate", 0, "cuGraphInstantiate_v2"},
      {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
      {"cuGraphAddKernelNode", 0, "cuGraphAddKernelNode"},
      {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
      {"cuGetProcAddress", 0, "cuGetProcAddress"},
      {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
      {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
      {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
      {"cuStreamGetCaptureInfo", 0, "cuStreamGetCaptureInfo"},
      {"cuCtxGetDevice", 0, "cuCtxGetDevice"},
      {"cuCtxSynchronize", 0, "cuCtxSynchronize"},
  };
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  static void* const self = [] {
    Dl_info info{};
    return dladdr(reinterpret_cast<void*>(&cuInit), &info) != 0 ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                                                                : nullptr;
  }();
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const auto find = [&](const std::string& name) -> void* {
    if (per_thread) {
      for (const char* suffix : {"_ptsz", "_ptds"})
        if (void* f = dlsym(self, (name + suffix).c_str()); f != nullptr) return f;
    }
    return dlsym(self, name.c_str());
  };
  bool renamed = false;
  for (const Renamed& r : kRenamed) {
    if (std::strcmp(symbol, r.name) != 0 || version < r.since) continue;
    *function = find(r.target);
    renamed = true;
    break;
  }
  for (const char* suffix : {"_v3", "_v2", ""}) {
    if (renamed || *function != nullptr) break;
    *function = find(std::string(symbol) + suffix);
  }
  if (status != nullptr)
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_EXPORT CUresult CUDAAPI(cuGetProcAddress)(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

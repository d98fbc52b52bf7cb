#include "tests/frameworks/simulated/kernel.h"

#include <map>
#include <mutex>

#include "tools/simgpu/driver_lookup.h"

namespace mfu::sim {
namespace {

CUresult find_kernel(const std::string& name, const std::string& cost, CUfunction* out) {
  static auto* const mutex = new std::mutex;
  static auto* const loaded = new std::map<std::string, CUfunction>;
  const std::lock_guard lock(*mutex);
  CUfunction& function = (*loaded)[name];
  if (function == nullptr) {
    const std::string ptx = ".version 8.0\n.target sm_90\n.address_size 64\n// simgpu: " + name + " " + cost +
                            "\n.visible .entry " + name + "(\n)\n";
    CUmodule module = nullptr;
    if (const CUresult r = DRIVER(cuModuleLoadData)(&module, ptx.c_str()); r != CUDA_SUCCESS) return r;
    if (const CUresult r = DRIVER(cuModuleGetFunction)(&function, module, name.c_str()); r != CUDA_SUCCESS) return r;
  }
  *out = function;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult launch_by_name(const std::string& name, const std::string& cost, std::uint32_t blocks, std::uint32_t threads,
                        void** params, CUstream stream) {
  if (driver_api().handle == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  CUfunction function = nullptr;
  if (const CUresult r = find_kernel(name, cost, &function); r != CUDA_SUCCESS) return r;
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = threads;
  config.hStream = stream;
  return DRIVER(cuLaunchKernelEx)(&config, function, params, nullptr);
}

bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  DRIVER(cuStreamIsCapturing)(stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace mfu::sim

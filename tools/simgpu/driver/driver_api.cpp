// The exported functions of the simulated libcuda.so.1. Each counts a correlation id, notifies an attached tool, and
// hands over to the engine. Names and signatures follow cuda.h; `_ptds`, `_ptsz`: on the per-thread default stream.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "tools/simgpu/driver/driver_call.h"

namespace {

using namespace mfu::sim;

/// The attributes that are the same for every simulated device: an H100's.
constexpr std::pair<CUdevice_attribute, int> kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7FFFFFFF},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7FFFFFFF},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
};
/// The attributes that the script gives.
constexpr std::pair<CUdevice_attribute, std::uint32_t DeviceSpec::*> kSpecAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &DeviceSpec::clock_khz},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &DeviceSpec::memory_clock_khz},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &DeviceSpec::bus_bits},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &DeviceSpec::sm_count},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &DeviceSpec::cc_major},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &DeviceSpec::cc_minor},
};

int attribute_of(const DeviceSpec& spec, CUdevice_attribute wanted, int ordinal) {
  if (wanted == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) return 0x18 + ordinal;
  if (wanted == CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH || wanted == CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED)
    return spec.cc_major >= 9 ? 1 : 0;
  for (const auto& [attribute, member] : kSpecAttributes)
    if (attribute == wanted) return static_cast<int>(spec.*member);
  for (const auto& [attribute, value] : kAttributes)
    if (attribute == wanted) return value;
  return 0;
}

void fill_uuid(CUuuid* uuid, int ordinal) {
  static constexpr unsigned char kBase[16] = {0x51, 0x3A, 0x6D, 0x0F, 0x73, 0x69, 0x6D, 0x75,
                                              0x8C, 0x61, 0x74, 0x65, 0x64, 0x00, 0x00, 0x00};
  std::memcpy(uuid->bytes, kBase, sizeof kBase);
  uuid->bytes[15] = static_cast<char>(ordinal);
}

CUresult retain(CUcontext* out, CUdevice device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return retain_primary(reinterpret_cast<Context**>(out), device);
}

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
};

CUresult error_text(CUresult error, const char* ErrorText::*member, const char** text) {
  const auto* const found =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](auto& e) { return e.code == error; });
  *text = found == std::end(kErrors) ? nullptr : found->*member;
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

// Without callbacks ----------------------------------------------------------------------------------------------

SIM_EXPORT CUresult CUDAAPI cuInit(unsigned flags) { return initialise(flags); }

SIM_EXPORT CUresult CUDAAPI cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = static_cast<int>(settings().driver_version);
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  return error_text(error, &ErrorText::name, text);
}

SIM_EXPORT CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  return error_text(error, &ErrorText::text, text);
}

// Devices --------------------------------------------------------------------------------------------------------

SIM_API(cuDeviceGetCount, (int* count), (count), {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = device_count();
  return CUDA_SUCCESS;
})
SIM_API(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal), {
  if (device_at(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
})
SIM_API(cuDeviceGetName, (char* name, int len, CUdevice dev), (name, len, dev), {
  const Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(len), "%s", device->spec->name.c_str());
  return CUDA_SUCCESS;
})
SIM_API(cuDeviceGetAttribute, (int* pi, CUdevice_attribute attrib, CUdevice dev), (pi, attrib, dev),
        { return with_device(dev, [&](const Device& d) { *pi = attribute_of(*d.spec, attrib, dev); }); })
SIM_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev), (uuid, dev),
        { return with_device(dev, [&](const Device&) { fill_uuid(uuid, dev); }); })
SIM_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice dev), (uuid, dev),
        { return with_device(dev, [&](const Device&) { fill_uuid(uuid, dev); }); })

// Contexts -------------------------------------------------------------------------------------------------------

SIM_API(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev), (pctx, dev), { return retain(pctx, dev); })
SIM_API(cuCtxSetCurrent, (CUcontext ctx), (ctx), { return set_current(reinterpret_cast<Context*>(ctx)); })
SIM_API(cuCtxGetCurrent, (CUcontext * pctx), (pctx), {
  *pctx = reinterpret_cast<CUcontext>(current_context());
  return CUDA_SUCCESS;
})
SIM_API0(cuCtxSynchronize, { return synchronize_context(current_context()); })

// Streams --------------------------------------------------------------------------------------------------------

SIM_API(cuStreamCreate, (CUstream * phStream, unsigned Flags), (phStream, Flags),
        { return create_stream(phStream, Flags, 0); })
SIM_STREAM_API(cuStreamSynchronize, (CUstream hStream), (hStream),
               { return on_stream(hStream, per_thread, [](Stream& s) { return synchronize_stream(s); }); })

// Modules --------------------------------------------------------------------------------------------------------

SIM_API(cuModuleLoadData, (CUmodule * module, const void* image), (module, image),
        { return load_module(reinterpret_cast<Module**>(module), image); })
SIM_API(cuModuleGetFunction, (CUfunction * hfunc, CUmodule hmod, const char* name), (hfunc, hmod, name),
        { return find_function(reinterpret_cast<Function**>(hfunc), reinterpret_cast<Module*>(hmod), name); })

// Launches -------------------------------------------------------------------------------------------------------

SIM_STREAM_API(cuLaunchKernel,
               (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, CUstream hStream, void** kernelParams, void** extra),
               (f, gx, gy, gz, bx, by, bz, shared, hStream, kernelParams, extra), {
                 return launch(f, hStream, per_thread, {{gx, gy, gz}, {bx, by, bz}, shared, kernelParams}, {});
               })

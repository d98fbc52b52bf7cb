// The simulated libcudart.so.12/.13: runtime functions that call the simulated driver nested, so that the runtime call
// and the driver calls inside it share one correlation id, as with the real libraries.
#include <cstring>
#include <vector>

#include "tests/simgpu/runtime/cudart_call.h"

namespace {
using namespace mfu::sim;
}

SIM_EXPORT void** __cudaRegisterFatBinary(void* fat) { return reinterpret_cast<void**>(new FatBinary{fat}); }
SIM_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
SIM_EXPORT void __cudaUnregisterFatBinary(void**) {}
SIM_EXPORT void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*, void*,
                                       void*, void*, int*) {
  const std::lock_guard lock(registry().mutex);
  registry().kernels[host] = {reinterpret_cast<FatBinary*>(handle), name};
}
SIM_EXPORT void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t bytes, int, int) {
  const std::lock_guard lock(registry().mutex);
  registry().variables[host].bytes = bytes;
}

SIM_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = SIMGPU_CUDART_MAJOR * 1000;
  return cudaSuccess;
}
SIM_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  if (driver_api().handle != nullptr) DRIVER(cuDriverGetVersion)(version);
  return cudaSuccess;
}
SIM_EXPORT cudaError_t cudaGetLastError() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
SIM_EXPORT cudaError_t cudaPeekAtLastError() { return last_error; }
#define SIM_ERROR_TEXT(name, driver_name)                                                         \
  SIM_EXPORT const char* name(cudaError_t error) {                                                \
    const char* text = nullptr;                                                                   \
    if (driver_api().handle != nullptr) DRIVER(driver_name)(static_cast<CUresult>(error), &text); \
    return text != nullptr ? text : "unrecognized error code";                                    \
  }
SIM_ERROR_TEXT(cudaGetErrorString, cuGetErrorString)
SIM_ERROR_TEXT(cudaGetErrorName, cuGetErrorName)

SIM_RUNTIME_QUERY(cudaGetDeviceCount, 3020, (int* count), { return DRIVER(cuDeviceGetCount)(count); })
SIM_EXPORT cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
SIM_RUNTIME(cudaSetDevice, 3020, (int device), {
  CUcontext context = nullptr;
  if (const CUresult r = DRIVER(cuDevicePrimaryCtxRetain)(&context, device); r != CUDA_SUCCESS) return r;
  const CUresult r = DRIVER(cuCtxSetCurrent)(context);
  if (r == CUDA_SUCCESS) current_device = device;
  return r;
})
SIM_RUNTIME(cudaDeviceSynchronize, 3020, (), { return DRIVER(cuCtxSynchronize)(); })
SIM_RUNTIME_QUERY(cudaDeviceGetAttribute, 5000, (int* value, cudaDeviceAttr attribute, int device),
                  { return DRIVER(cuDeviceGetAttribute)(value, static_cast<CUdevice_attribute>(attribute), device); })

SIM_RUNTIME(cudaMalloc, 3020, (void** p, size_t bytes),
            { return DRIVER(cuMemAlloc)(reinterpret_cast<CUdeviceptr*>(p), bytes); })
SIM_RUNTIME(cudaFree, 3020, (void* p), { return p == nullptr ? CUDA_SUCCESS : DRIVER(cuMemFree)(device_pointer(p)); })
SIM_RUNTIME(cudaMemcpy, 3020, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind), {
  if (kind == cudaMemcpyHostToDevice) return DRIVER(cuMemcpyHtoD)(device_pointer(to), from, bytes);
  if (kind == cudaMemcpyDeviceToHost) return DRIVER(cuMemcpyDtoH)(to, device_pointer(from), bytes);
  if (kind == cudaMemcpyDeviceToDevice) return DRIVER(cuMemcpyDtoD)(device_pointer(to), device_pointer(from), bytes);
  return DRIVER(cuMemcpy)(device_pointer(to), device_pointer(from), bytes);
})
SIM_RUNTIME(cudaMemcpyAsync, 3020, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
            {
              if (kind == cudaMemcpyHostToDevice)
                return DRIVER(cuMemcpyHtoDAsync)(device_pointer(to), from, bytes, stream);
              if (kind == cudaMemcpyDeviceToHost)
                return DRIVER(cuMemcpyDtoHAsync)(to, device_pointer(from), bytes, stream);
              if (kind == cudaMemcpyDeviceToDevice) {
                return DRIVER(cuMemcpyDtoDAsync)(device_pointer(to), device_pointer(from), bytes, stream);
              }
              return DRIVER(cuMemcpyAsync)(device_pointer(to), device_pointer(from), bytes, stream);
            })
SIM_RUNTIME(cudaMemset, 3020, (void* p, int value, size_t bytes),
            { return DRIVER(cuMemsetD8)(device_pointer(p), static_cast<unsigned char>(value), bytes); })
SIM_RUNTIME(cudaMemsetAsync, 3020, (void* p, int value, size_t bytes, cudaStream_t stream),
            { return DRIVER(cuMemsetD8Async)(device_pointer(p), static_cast<unsigned char>(value), bytes, stream); })

SIM_RUNTIME(cudaStreamCreate, 3020, (cudaStream_t * stream), { return DRIVER(cuStreamCreate)(stream, 0); })
SIM_RUNTIME(cudaStreamCreateWithFlags, 5000, (cudaStream_t * stream, unsigned flags),
            { return DRIVER(cuStreamCreate)(stream, flags); })
SIM_RUNTIME(cudaStreamDestroy, 5050, (cudaStream_t stream), { return DRIVER(cuStreamDestroy)(stream); })
SIM_RUNTIME(cudaStreamSynchronize, 3020, (cudaStream_t stream), { return DRIVER(cuStreamSynchronize)(stream); })
SIM_RUNTIME(cudaStreamWaitEvent, 3020, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
            { return DRIVER(cuStreamWaitEvent)(stream, event, flags); })
SIM_RUNTIME(cudaEventCreate, 3020, (cudaEvent_t * event), { return DRIVER(cuEventCreate)(event, 0); })
SIM_RUNTIME(cudaEventCreateWithFlags, 3020, (cudaEvent_t * event, unsigned flags),
            { return DRIVER(cuEventCreate)(event, flags); })
SIM_RUNTIME(cudaEventDestroy, 3020, (cudaEvent_t event), { return DRIVER(cuEventDestroy)(event); })
SIM_RUNTIME(cudaEventRecord, 3020, (cudaEvent_t event, cudaStream_t stream),
            { return DRIVER(cuEventRecord)(event, stream); })
SIM_RUNTIME(cudaEventSynchronize, 3020, (cudaEvent_t event), { return DRIVER(cuEventSynchronize)(event); })
SIM_RUNTIME(cudaEventQuery, 3020, (cudaEvent_t event), { return DRIVER(cuEventQuery)(event); })

SIM_EXPORT cudaError_t cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared,
                                        cudaStream_t stream) {
  return call_with_kernel(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel", func, [&](CUfunction f) {
    return DRIVER(cuLaunchKernel)(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, static_cast<unsigned>(shared),
                                  stream, args, nullptr);
  });
}
SIM_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared,
                                                   cudaStream_t stream) {
  constexpr auto kId = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000;
  return call_with_kernel(kId, "cudaLaunchCooperativeKernel", func, [&](CUfunction f) {
    return DRIVER(cuLaunchCooperativeKernel)(f, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                             static_cast<unsigned>(shared), stream, args);
  });
}
SIM_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  constexpr auto kId = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060;
  return call_with_kernel(kId, "cudaLaunchKernelExC", func, [&](CUfunction f) {
    std::vector<CUlaunchAttribute> attributes(config->numAttrs);
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      static_assert(sizeof(CUlaunchAttributeValue) == sizeof(cudaLaunchAttributeValue));
      attributes[i].id = static_cast<CUlaunchAttributeID>(config->attrs[i].id);
      std::memcpy(&attributes[i].value, &config->attrs[i].val, sizeof attributes[i].value);
    }
    CUlaunchConfig c{};
    c.gridDimX = config->gridDim.x;
    c.gridDimY = config->gridDim.y;
    c.gridDimZ = config->gridDim.z;
    c.blockDimX = config->blockDim.x;
    c.blockDimY = config->blockDim.y;
    c.blockDimZ = config->blockDim.z;
    c.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
    c.hStream = config->stream;
    c.attrs = attributes.data();
    c.numAttrs = config->numAttrs;
    return DRIVER(cuLaunchKernelEx)(&c, f, args, nullptr);
  });
}

SIM_RUNTIME(cudaStreamBeginCapture, 10000, (cudaStream_t stream, cudaStreamCaptureMode mode),
            { return DRIVER(cuStreamBeginCapture)(stream, static_cast<CUstreamCaptureMode>(mode)); })
SIM_RUNTIME(cudaStreamEndCapture, 10000, (cudaStream_t stream, cudaGraph_t* graph),
            { return DRIVER(cuStreamEndCapture)(stream, graph); })
SIM_RUNTIME(cudaGraphInstantiateWithFlags, 11040, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
            { return DRIVER(cuGraphInstantiateWithFlags)(exec, graph, flags); })
SIM_RUNTIME(cudaGraphInstantiate, 10000, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
            { return DRIVER(cuGraphInstantiateWithFlags)(exec, graph, flags); })
SIM_RUNTIME(cudaGraphLaunch, 10000, (cudaGraphExec_t exec, cudaStream_t stream),
            { return DRIVER(cuGraphLaunch)(exec, stream); })
SIM_RUNTIME(cudaGraphExecDestroy, 10000, (cudaGraphExec_t exec), { return DRIVER(cuGraphExecDestroy)(exec); })
SIM_RUNTIME(cudaGraphDestroy, 10000, (cudaGraph_t graph), { return DRIVER(cuGraphDestroy)(graph); })

// The simulated libcudart.so.12/.13: runtime functions that call the simulated driver nested, so that the runtime call
// and the driver calls inside it share one correlation id, as with the real libraries.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti_runtime_cbid.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/simgpu/interface.h"

#define SIM_EXPORT extern "C" [[gnu::visibility("default")]]

namespace {

using namespace mfu::sim;

/// The driver functions that are used here, found once.
struct DriverApi {
  void* library = nullptr;
  const Driver* driver = nullptr;
  template <typename F>
  F* find(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library, name));
  }
};

const DriverApi& driver_api() {
  static const DriverApi api = [] {
    DriverApi a;
    a.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (a.library == nullptr) return a;
    auto* entry = reinterpret_cast<const Driver* (*)()>(dlsym(a.library, "simgpu_driver"));
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
    static auto* const found = driver_api().find<std::remove_pointer_t<decltype(&::name)>>(TEXT(name)); \
    return found;                                                                                       \
  }())

cudaError_t error_of(CUresult result) { return static_cast<cudaError_t>(result); }  // the codes used here are the same

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

/// The runtime initialises on first use: primary context of the current device.
cudaError_t ensure_context() {
  const DriverApi& api = driver_api();
  if (api.library == nullptr || api.driver == nullptr) return cudaErrorInsufficientDriver;
  if (const CUresult r = DRIVER(cuInit)(0); r != CUDA_SUCCESS) return error_of(r);
  if (api.driver->current_context(nullptr, nullptr) != nullptr) return cudaSuccess;
  CUcontext context = nullptr;
  if (const CUresult r = DRIVER(cuDevicePrimaryCtxRetain)(&context, current_device); r != CUDA_SUCCESS)
    return error_of(r);
  return error_of(DRIVER(cuCtxSetCurrent)(context));
}

/// Everything around one runtime call: correlation id, callbacks on both sites, API record.
template <typename Body>
cudaError_t call(std::uint32_t cbid, const char* name, const void* params, const char* symbol, Body&& body) {
  cudaError_t result = ensure_context();  // outside: initialisation is not part of the call
  if (result != cudaSuccess) return last_error = result;
  const Driver& driver = *driver_api().driver;
  if (driver.forked()) return last_error = cudaErrorInitializationError;
  ThreadState& state = *driver.thread();
  if (state.in_callback()) {
    std::string what = "a runtime function was called inside a callback: ";
    rule_broken(what.append(name).c_str());
  }
  const std::uint32_t outer = state.runtime_correlation;
  state.runtime_correlation = driver.next_correlation();
  const Tool* tool = driver.tool->load(std::memory_order_acquire);
  const std::uint8_t want = tool == nullptr ? 0 : driver.wanted->runtime[cbid].load(std::memory_order_relaxed);
  std::uint64_t correlation_data = 0;
  ApiEvent event{};
  if ((want & kWantCallback) != 0) {
    event.domain = ApiDomain::kRuntime;
    event.cbid = cbid;
    event.name = name;
    event.params = params;
    event.result = &result;
    event.symbol = symbol;
    event.context = driver.current_context(&event.context_uid, nullptr);
    event.correlation = state.runtime_correlation;
    event.correlation_data = &correlation_data;
    tool->api(event);
  }
  const std::int64_t begin = (want & kWantRecord) != 0 ? driver.now_ns() : 0;
  result = error_of(body());
  if ((want & kWantRecord) != 0) {
    tool->api_record({ApiDomain::kRuntime, cbid, begin, driver.now_ns(), state.runtime_correlation,
                      static_cast<std::uint32_t>(result)});
  }
  if ((want & kWantCallback) != 0) {
    event.exit = true;
    tool->api(event);
  }
  state.runtime_correlation = outer;
  if (result != cudaSuccess && result != cudaErrorNotReady) last_error = result;
  return result;
}

#define RUNTIME(name, version, ...) \
  call(CUPTI_RUNTIME_TRACE_CBID_##name##_v##version, #name, nullptr, nullptr, [&]() -> CUresult __VA_ARGS__)

// Kernels that nvcc registered: host stub > name, resolved on first launch --------------------------------------

struct FatBinary {
  const void* image;
  CUmodule module = nullptr;
};
struct Registered {
  FatBinary* binary;
  std::string name;
  CUfunction function = nullptr;
};
struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Registered> kernels;
};
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

/// A kernel by what the program passes: the host stub of a registered kernel, or a driver function handle.
CUresult function_for(const void* func, CUfunction* out) {
  const std::lock_guard lock(registry().mutex);
  const auto it = registry().kernels.find(func);
  if (it == registry().kernels.end()) {
    *out = reinterpret_cast<CUfunction>(const_cast<void*>(func));
    return driver_api().driver->function_name(func) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  Registered& kernel = it->second;
  if (kernel.function == nullptr) {
    if (kernel.binary->module == nullptr) {
      if (const CUresult r = DRIVER(cuModuleLoadData)(&kernel.binary->module, kernel.binary->image); r != CUDA_SUCCESS)
        return r;
    }
    if (const CUresult r = DRIVER(cuModuleGetFunction)(&kernel.function, kernel.binary->module, kernel.name.c_str());
        r != CUDA_SUCCESS) {
      return r;
    }
  }
  *out = kernel.function;
  return CUDA_SUCCESS;
}

const char* symbol_for(const void* func) {
  {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().kernels.find(func);
    if (it != registry().kernels.end()) return it->second.name.c_str();
  }
  const Driver* driver = driver_api().driver;
  return driver != nullptr ? driver->function_name(func) : nullptr;
}

CUdeviceptr device_pointer(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

}  // namespace

SIM_EXPORT void** __cudaRegisterFatBinary(void* fat) { return reinterpret_cast<void**>(new FatBinary{fat}); }
SIM_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
SIM_EXPORT void __cudaUnregisterFatBinary(void**) {}
SIM_EXPORT void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*, void*,
                                       void*, void*, int*) {
  const std::lock_guard lock(registry().mutex);
  registry().kernels[host] = {reinterpret_cast<FatBinary*>(handle), name};
}
SIM_EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

SIM_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = SIMGPU_CUDART_MAJOR * 1000;
  return cudaSuccess;
}
SIM_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  if (driver_api().library != nullptr) DRIVER(cuDriverGetVersion)(version);
  return cudaSuccess;
}
SIM_EXPORT cudaError_t cudaGetLastError() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
SIM_EXPORT cudaError_t cudaPeekAtLastError() { return last_error; }
SIM_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  if (driver_api().library != nullptr) DRIVER(cuGetErrorString)(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unrecognized error code";
}
SIM_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  if (driver_api().library != nullptr) DRIVER(cuGetErrorName)(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unrecognized error code";
}

SIM_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  return RUNTIME(cudaGetDeviceCount, 3020, { return DRIVER(cuDeviceGetCount)(count); });
}
SIM_EXPORT cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
SIM_EXPORT cudaError_t cudaSetDevice(int device) {
  const cudaError_t result = RUNTIME(cudaSetDevice, 3020, {
    CUcontext context = nullptr;
    if (const CUresult r = DRIVER(cuDevicePrimaryCtxRetain)(&context, device); r != CUDA_SUCCESS) return r;
    return DRIVER(cuCtxSetCurrent)(context);
  });
  if (result == cudaSuccess) current_device = device;
  return result;
}
SIM_EXPORT cudaError_t cudaDeviceSynchronize() {
  return RUNTIME(cudaDeviceSynchronize, 3020, { return DRIVER(cuCtxSynchronize)(); });
}
SIM_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return RUNTIME(cudaDeviceGetAttribute, 5000,
                 { return DRIVER(cuDeviceGetAttribute)(value, static_cast<CUdevice_attribute>(attribute), device); });
}

SIM_EXPORT cudaError_t cudaMalloc(void** p, size_t bytes) {
  return RUNTIME(cudaMalloc, 3020, { return DRIVER(cuMemAlloc)(reinterpret_cast<CUdeviceptr*>(p), bytes); });
}
SIM_EXPORT cudaError_t cudaFree(void* p) {
  return RUNTIME(cudaFree, 3020, { return p == nullptr ? CUDA_SUCCESS : DRIVER(cuMemFree)(device_pointer(p)); });
}
SIM_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return RUNTIME(cudaMemcpy, 3020, {
    if (kind == cudaMemcpyHostToDevice) return DRIVER(cuMemcpyHtoD)(device_pointer(to), from, bytes);
    if (kind == cudaMemcpyDeviceToHost) return DRIVER(cuMemcpyDtoH)(to, device_pointer(from), bytes);
    return DRIVER(cuMemcpyDtoD)(device_pointer(to), device_pointer(from), bytes);
  });
}
SIM_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  return RUNTIME(cudaMemcpyAsync, 3020, {
    if (kind == cudaMemcpyHostToDevice) return DRIVER(cuMemcpyHtoDAsync)(device_pointer(to), from, bytes, stream);
    if (kind == cudaMemcpyDeviceToHost) return DRIVER(cuMemcpyDtoHAsync)(to, device_pointer(from), bytes, stream);
    return DRIVER(cuMemcpyDtoDAsync)(device_pointer(to), device_pointer(from), bytes, stream);
  });
}
SIM_EXPORT cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return RUNTIME(cudaMemset, 3020,
                 { return DRIVER(cuMemsetD8)(device_pointer(p), static_cast<unsigned char>(value), bytes); });
}
SIM_EXPORT cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return RUNTIME(cudaMemsetAsync, 3020, {
    return DRIVER(cuMemsetD8Async)(device_pointer(p), static_cast<unsigned char>(value), bytes, stream);
  });
}

SIM_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return RUNTIME(cudaStreamCreate, 3020, { return DRIVER(cuStreamCreate)(stream, 0); });
}
SIM_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return RUNTIME(cudaStreamCreateWithFlags, 5000, { return DRIVER(cuStreamCreate)(stream, flags); });
}
SIM_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return RUNTIME(cudaStreamDestroy, 5050, { return DRIVER(cuStreamDestroy)(stream); });
}
SIM_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return RUNTIME(cudaStreamSynchronize, 3020, { return DRIVER(cuStreamSynchronize)(stream); });
}
SIM_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return RUNTIME(cudaStreamWaitEvent, 3020, { return DRIVER(cuStreamWaitEvent)(stream, event, flags); });
}
SIM_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return RUNTIME(cudaEventCreate, 3020, { return DRIVER(cuEventCreate)(event, 0); });
}
SIM_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return RUNTIME(cudaEventCreateWithFlags, 3020, { return DRIVER(cuEventCreate)(event, flags); });
}
SIM_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return RUNTIME(cudaEventDestroy, 3020, { return DRIVER(cuEventDestroy)(event); });
}
SIM_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return RUNTIME(cudaEventRecord, 3020, { return DRIVER(cuEventRecord)(event, stream); });
}
SIM_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return RUNTIME(cudaEventSynchronize, 3020, { return DRIVER(cuEventSynchronize)(event); });
}
SIM_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  return RUNTIME(cudaEventQuery, 3020, { return DRIVER(cuEventQuery)(event); });
}

SIM_EXPORT cudaError_t cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared,
                                        cudaStream_t stream) {
  return call(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel", nullptr, symbol_for(func), [&] {
    CUfunction f = nullptr;
    if (const CUresult r = function_for(func, &f); r != CUDA_SUCCESS) return r;
    return DRIVER(cuLaunchKernel)(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, static_cast<unsigned>(shared),
                                  stream, args, nullptr);
  });
}
SIM_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared,
                                                   cudaStream_t stream) {
  return call(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000, "cudaLaunchCooperativeKernel", nullptr,
              symbol_for(func), [&] {
                CUfunction f = nullptr;
                if (const CUresult r = function_for(func, &f); r != CUDA_SUCCESS) return r;
                return DRIVER(cuLaunchCooperativeKernel)(f, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                         static_cast<unsigned>(shared), stream, args);
              });
}
SIM_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  return call(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, "cudaLaunchKernelExC", nullptr, symbol_for(func),
              [&] {
                CUfunction f = nullptr;
                if (const CUresult r = function_for(func, &f); r != CUDA_SUCCESS) return r;
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

SIM_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return RUNTIME(cudaStreamBeginCapture, 10000,
                 { return DRIVER(cuStreamBeginCapture)(stream, static_cast<CUstreamCaptureMode>(mode)); });
}
SIM_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return RUNTIME(cudaStreamEndCapture, 10000, { return DRIVER(cuStreamEndCapture)(stream, graph); });
}
SIM_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                     unsigned long long flags) {
  return RUNTIME(cudaGraphInstantiateWithFlags, 11040,
                 { return DRIVER(cuGraphInstantiateWithFlags)(exec, graph, flags); });
}
SIM_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return RUNTIME(cudaGraphInstantiate, 10000, { return DRIVER(cuGraphInstantiateWithFlags)(exec, graph, flags); });
}
SIM_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return RUNTIME(cudaGraphLaunch, 10000, { return DRIVER(cuGraphLaunch)(exec, stream); });
}
SIM_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return RUNTIME(cudaGraphExecDestroy, 10000, { return DRIVER(cuGraphExecDestroy)(exec); });
}
SIM_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return RUNTIME(cudaGraphDestroy, 10000, { return DRIVER(cuGraphDestroy)(graph); });
}

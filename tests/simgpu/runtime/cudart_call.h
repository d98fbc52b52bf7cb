// Around every exported function of the simulated libcudart: context on first use, one correlation id for the
// runtime call and the driver calls inside it, callbacks, API record; and the kernels that nvcc registered.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti_runtime_cbid.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tools/simgpu/driver_lookup.h"
#include "tools/simgpu/interface.h"

namespace mfu::sim {

/// The codes that are used here are the same.
inline cudaError_t error_of(CUresult result) { return static_cast<cudaError_t>(result); }

inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int current_device = 0;

inline cudaError_t ensure_driver() {
  const DriverApi& api = driver_api();
  if (api.handle == nullptr || api.driver == nullptr) return cudaErrorInsufficientDriver;
  return error_of(DRIVER(cuInit)(0));
}

/// The runtime initialises on first use: primary context of the current device.
inline cudaError_t ensure_context() {
  if (const cudaError_t r = ensure_driver(); r != cudaSuccess) return r;
  if (driver_api().driver->current_context(nullptr, nullptr) != nullptr) return cudaSuccess;
  CUcontext context = nullptr;
  if (const CUresult r = DRIVER(cuDevicePrimaryCtxRetain)(&context, current_device); r != CUDA_SUCCESS)
    return error_of(r);
  return error_of(DRIVER(cuCtxSetCurrent)(context));
}

/// Everything around one runtime call: correlation id, callbacks on both sites, API record.
template <typename Body>
cudaError_t call(std::uint32_t cbid, const char* name, const void* params, const char* symbol, Body&& body,
                 bool with_context = true) {
  cudaError_t result = with_context ? ensure_context() : ensure_driver();  // outside: no part of the call
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

// A runtime function: SIM_RUNTIME(name, version of its callback id, (parameters), { body that returns CUresult })
#define SIM_RUNTIME_AS(name, version, with_context, parameters, ...)                                                  \
  SIM_EXPORT cudaError_t name parameters {                                                                            \
    return call(CUPTI_RUNTIME_TRACE_CBID_##name##_v##version, #name, nullptr, nullptr, [&]() -> CUresult __VA_ARGS__, \
                with_context);                                                                                        \
  }
#define SIM_RUNTIME(name, version, parameters, ...) SIM_RUNTIME_AS(name, version, true, parameters, __VA_ARGS__)
// The same for a function that works before there is a context, and makes none.
#define SIM_RUNTIME_QUERY(name, version, parameters, ...) SIM_RUNTIME_AS(name, version, false, parameters, __VA_ARGS__)

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
struct Variable {
  std::size_t bytes = 0;
  CUdeviceptr address = 0;  ///< allocated at first use
};
struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Registered> kernels;
  std::unordered_map<const void*, Variable> variables;
};
inline Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

/// A kernel by what the program passes: the host stub of a registered kernel, or a driver function handle.
inline CUresult function_for(const void* func, CUfunction* out) {
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

inline const char* symbol_for(const void* func) {
  {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().kernels.find(func);
    if (it != registry().kernels.end()) return it->second.name.c_str();
  }
  const Driver* driver = driver_api().driver;
  return driver != nullptr ? driver->function_name(func) : nullptr;
}

inline CUdeviceptr device_pointer(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

/// A call that does something with a kernel: `work(function)`, with the kernel's name in the callbacks.
template <typename Work>
cudaError_t call_with_kernel(std::uint32_t cbid, const char* name, const void* func, Work&& work) {
  return call(cbid, name, nullptr, symbol_for(func), [&] {
    CUfunction f = nullptr;
    const CUresult r = function_for(func, &f);
    return r == CUDA_SUCCESS ? work(f) : r;
  });
}

}  // namespace mfu::sim

// Around every exported function of the simulated libcuda: rules, correlation id, callbacks, API record, truth.
// Included once by each file that defines exported functions.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // NOLINT(bugprone-reserved-identifier): cuda.h's own switch for every version's
                                     // types
#include <cuda.h>
#include <cupti_driver_cbid.h>
#include <generated_cuda_meta.h>

#include <string>

#include "tools/simgpu/driver/engine.h"

#define SIM_UNPACK(...) __VA_ARGS__

// An API function: SIM_API(name, (declaration), (arguments), { body that returns CUresult })
#define SIM_API_AS(name, thread_stream, decl, args, ...)                                        \
  SIM_EXPORT CUresult CUDAAPI name decl {                                                       \
    [[maybe_unused]] constexpr bool per_thread = thread_stream;                                 \
    [[maybe_unused]] const name##_params params = {SIM_UNPACK args};                            \
    return call(CUPTI_DRIVER_TRACE_CBID_##name, #name, &params, [&]() -> CUresult __VA_ARGS__); \
  }
#define SIM_API(name, decl, args, ...) SIM_API_AS(name, false, decl, args, __VA_ARGS__)
// The same with a second form whose NULL stream is the calling thread's own.
#define SIM_STREAM_API(name, decl, args, ...)      \
  SIM_API_AS(name, false, decl, args, __VA_ARGS__) \
  SIM_API_AS(name##_ptsz, true, decl, args, __VA_ARGS__)
#define SIM_SYNC_API(name, decl, args, ...)        \
  SIM_API_AS(name, false, decl, args, __VA_ARGS__) \
  SIM_API_AS(name##_ptds, true, decl, args, __VA_ARGS__)
// A function without arguments, and so without a parameter structure.
#define SIM_API0(name, ...)                                                                     \
  SIM_EXPORT CUresult CUDAAPI name() {                                                          \
    return call(CUPTI_DRIVER_TRACE_CBID_##name, #name, nullptr, [&]() -> CUresult __VA_ARGS__); \
  }

namespace mfu::sim {

inline bool is_synchronize(std::uint32_t cbid) noexcept {
  switch (cbid) {
    case CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz:
    case CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize:
      return true;
    default:
      return false;
  }
}

inline const char* symbol_of(std::uint32_t cbid, const void* params) noexcept {
  const void* function = nullptr;
  switch (cbid) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
      function = static_cast<const cuLaunchKernel_params*>(params)->f;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
      function = static_cast<const cuLaunchKernelEx_params*>(params)->f;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
      function = static_cast<const cuLaunchCooperativeKernel_params*>(params)->f;
      break;
    default:
      return nullptr;
  }
  const Function* found = function_of(function);
  return found == nullptr ? nullptr : found->name;
}

/// Everything around the work of one API call: rules, correlation id, callbacks on both sites, API record, truth.
template <typename Body>
CUresult call(std::uint32_t cbid, const char* name, const void* params, Body&& body) {
  ThreadState& state = thread_state();
  if (state.injection != 0) rule_broken("a driver function was called inside InitializeInjection");
  if (!driver_usable()) return CUDA_ERROR_NOT_INITIALIZED;
  if (state.in_callback() && !is_synchronize(cbid)) {
    std::string what = "a driver function was called inside a callback: ";
    rule_broken(what.append(name).c_str());
  }
  CallInfo& info = current_call();
  const CallInfo outer = info;
  info.correlation = state.runtime_correlation != 0 ? state.runtime_correlation : next_correlation();
  info.api = name;
  info.launch = info.captured = false;

  const Tool* attached = tool();
  const std::uint8_t want = attached == nullptr ? 0 : wanted().driver[cbid].load(std::memory_order_relaxed);
  std::uint64_t correlation_data = 0;
  CUresult result = CUDA_SUCCESS;
  ApiEvent event{};
  std::int64_t begin = 0;
  if ((want & kWantCallback) != 0) {
    event.domain = ApiDomain::kDriver;
    event.cbid = cbid;
    event.name = name;
    event.params = params;
    event.symbol = symbol_of(cbid, params);
    event.context = reinterpret_cast<CUcontext>(current_context());
    event.context_uid = event.context == nullptr ? 0 : current_context()->uid;
    event.correlation = info.correlation;
    event.correlation_data = &correlation_data;
    event.result = &result;
    attached->api(event);
  }
  if ((want & kWantRecord) != 0) begin = now_ns();
  if (run_fault != nullptr) (void)run_fault(name);
  result = body();
  if ((want & kWantRecord) != 0) {
    attached->api_record(
        {ApiDomain::kDriver, cbid, begin, now_ns(), info.correlation, static_cast<std::uint32_t>(result)});
  }
  if (info.launch && truth_launch != nullptr) truth_launch(name, info.correlation, result, info.captured);
  if ((want & kWantCallback) != 0) {
    event.exit = true;
    attached->api(event);
  }
  info = outer;
  return result;
}

template <typename T, typename H>
T* as(H handle, Magic magic) noexcept {
  auto* object = reinterpret_cast<T*>(handle);
  return object != nullptr && object->magic == magic ? object : nullptr;
}

template <typename Work>
CUresult on_stream(CUstream handle, bool per_thread, Work&& work) {
  Stream* stream = nullptr;
  if (const CUresult result = resolve_stream(handle, per_thread, &stream); result != CUDA_SUCCESS) return result;
  return work(*stream);
}

inline CUresult launch(CUfunction f, CUstream handle, bool per_thread, const LaunchShape& shape,
                       const LaunchOptions& options) {
  Function* function = function_of(f);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return on_stream(handle, per_thread, [&](Stream& s) { return launch_kernel(s, *function, shape, options); });
}

/// Hands the device of an ordinal to `body`.
template <typename Body>
CUresult with_device(CUdevice ordinal, Body&& body) {
  const Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  body(*device);
  return CUDA_SUCCESS;
}

}  // namespace mfu::sim

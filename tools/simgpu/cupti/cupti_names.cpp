// Imports of PyTorch's Kineto from libcupti that it does not depend on: names of API functions, device times of events.
#include <cupti.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#define SIM_EXPORT extern "C" [[gnu::visibility("default")]]

namespace {

/// The names that traces of the simulated GPU hold most; others go by their number.
const char* known_name(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
    switch (cbid) {
      case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000:
        return "cudaLaunchKernel";
      case 505:  // __cudaLaunchKernel of CUDA 13
        return "__cudaLaunchKernel";
      case CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020:
        return "cudaMemcpyAsync";
      case CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020:
        return "cudaMemsetAsync";
      case CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000:
        return "cudaGraphLaunch";
      case CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020:
        return "cudaStreamSynchronize";
      case CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020:
        return "cudaDeviceSynchronize";
      case CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020:
        return "cudaEventRecord";
      default:
        return nullptr;
    }
  }
  switch (cbid) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
      return "cuLaunchKernel";
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
      return "cuLaunchKernelEx";
    default:
      return nullptr;
  }
}

}  // namespace

SIM_EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char** name) {
  if (name == nullptr || (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (const char* known = known_name(domain, cbid); known != nullptr) {
    *name = known;
    return CUPTI_SUCCESS;
  }
  static std::mutex* const mutex = new std::mutex;
  static auto* const names = new std::map<std::pair<int, std::uint32_t>, std::string>;
  const std::lock_guard lock(*mutex);
  std::string& text = (*names)[{static_cast<int>(domain), cbid}];
  if (text.empty())
    text = (domain == CUPTI_CB_DOMAIN_RUNTIME_API ? "cuda function " : "cu function ") + std::to_string(cbid);
  *name = text.c_str();
  return CUPTI_SUCCESS;
}

SIM_EXPORT CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t /*enable*/) { return CUPTI_SUCCESS; }

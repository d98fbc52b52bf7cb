// Imports of PyTorch's Kineto from libcupti that it does not depend on: names of API functions, device times of events.
#include <cupti.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tools/simgpu/interface.h"

namespace {

struct KnownName {
  CUpti_CallbackDomain domain;
  std::uint32_t cbid;
  const char* name;
};
/// The names that traces of the simulated GPU hold most; others go by their number.
constexpr KnownName kKnownNames[] = {
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel"},
    {CUPTI_CB_DOMAIN_RUNTIME_API, 505, "__cudaLaunchKernel"},  // of CUDA 13
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, "cudaMemcpyAsync"},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync"},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, "cudaGraphLaunch"},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, "cudaStreamSynchronize"},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, "cudaDeviceSynchronize"},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020, "cudaEventRecord"},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel"},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, "cuLaunchKernelEx"},
};

}  // namespace

SIM_EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char** name) {
  if (name == nullptr || (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  for (const KnownName& known : kKnownNames) {
    if (known.domain == domain && known.cbid == cbid) return *name = known.name, CUPTI_SUCCESS;
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

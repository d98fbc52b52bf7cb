// The exported functions of the simulated libcuda.so.1 that neither the library nor the demo calls: contexts of a
// program's own, questions about devices and captures, and graphs with more parameters.
#include <cstdio>

#include "tools/simgpu/driver/driver_call.h"
#include "tools/simgpu/driver/engine_state.h"

namespace {

using namespace mfu::sim;

CUresult push_context(Context* context) {
  if (!alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  return thread_contexts().stack.push_back(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult destroy_context(Context* context) {
  if (!alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  synchronize_context(context);
  resource_callback(ResourceEvent{.cbid = kContextDestroyStarting, .context = reinterpret_cast<CUcontext>(context)});
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  std::erase(p.contexts, context);
  context->magic = Magic::kDead;
  p.dead_contexts.push_back(context);
  auto& stack = thread_contexts().stack;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult destroy_stream(CUstream handle) {
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD || !alive(stream, Magic::kStream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Context* context = stream->context;
  resource_callback(
      ResourceEvent{.cbid = kStreamDestroyStarting, .context = reinterpret_cast<CUcontext>(context), .stream = handle});
  const std::lock_guard lock(context->mutex);
  // Its work goes on: an invisible stream of the same context keeps the tail for cuCtxSynchronize.
  context->legacy.tail_ns = std::max(context->legacy.tail_ns, stream->blocking ? stream->tail_ns : 0);
  std::erase(context->streams, stream);
  stream->magic = Magic::kDead;
  return CUDA_SUCCESS;
}

CUresult unload_module(Module* module) {
  if (!alive(module, Magic::kModule)) return CUDA_ERROR_INVALID_HANDLE;
  ResourceEvent event{.cbid = kModuleUnloadStarting, .context = reinterpret_cast<CUcontext>(current_context())};
  event.is_module = true;
  event.module_id = module->id;
  resource_callback(event);
  module->magic = Magic::kDead;  // kept: records in flight still point to its kernels
  return CUDA_SUCCESS;
}

CUresult capture_info(CUstream handle, bool per_thread, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, std::size_t* count) {
  return on_stream(handle, per_thread, [&](Stream& s) {
    const bool active = s.capture != nullptr;
    if (status != nullptr) *status = active ? s.capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
    if (id != nullptr) *id = active ? s.capture->id : 0;
    if (graph != nullptr) *graph = active ? reinterpret_cast<CUgraph>(s.capture->graph) : nullptr;
    if (dependencies != nullptr) *dependencies = reinterpret_cast<const CUgraphNode*>(s.frontier.data());
    if (count != nullptr) *count = s.frontier.size();
    return CUDA_SUCCESS;
  });
}

CUresult make_context(CUcontext* out, unsigned flags, CUdevice device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult r = create_context(&context, flags, device); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUcontext>(context);
  return push_context(context);
}

CUresult pop_context(Context** context) {
  auto& stack = thread_contexts().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult release_primary(int ordinal, bool reset) {
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary == nullptr) return reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  if (!reset && --device->primary_uses > 0) return CUDA_SUCCESS;
  Context* context = device->primary;
  device->primary = nullptr;
  device->primary_uses = 0;
  return destroy_context(context);
}

}  // namespace

// Devices --------------------------------------------------------------------------------------------------------

SIM_API(cuDeviceComputeCapability, (int* major, int* minor, CUdevice dev), (major, minor, dev), {
  return with_device(dev, [&](const Device& d) {
    *major = static_cast<int>(d.spec->cc_major);
    *minor = static_cast<int>(d.spec->cc_minor);
  });
})
SIM_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), (bytes, dev),
        { return with_device(dev, [&](const Device& d) { *bytes = d.spec->memory_bytes; }); })
SIM_API(cuDeviceGetPCIBusId, (char* pciBusId, int len, CUdevice dev), (pciBusId, len, dev), {
  return with_device(dev, [&](const Device&) {
    std::snprintf(pciBusId, static_cast<std::size_t>(len), "0000:%02X:00.0", 0x18 + dev);
  });
})
SIM_API(cuMemGetInfo_v2, (size_t * free, size_t* total), (free, total), {
  const Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *total = context->device->spec->memory_bytes;
  *free = *total - context->device->allocated.load();
  return CUDA_SUCCESS;
})

// Contexts -------------------------------------------------------------------------------------------------------

SIM_API(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev), { return release_primary(dev, false); })
SIM_API(cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev), { return release_primary(dev, true); })
SIM_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned flags), (dev, flags),
        { return device_at(dev) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; })
SIM_API(cuCtxCreate_v2, (CUcontext * pctx, unsigned flags, CUdevice dev), (pctx, flags, dev),
        { return make_context(pctx, flags, dev); })
SIM_API(cuCtxCreate_v4, (CUcontext * pctx, CUctxCreateParams* ctxCreateParams, unsigned flags, CUdevice dev),
        (pctx, ctxCreateParams, flags, dev), { return make_context(pctx, flags, dev); })
SIM_API(cuCtxDestroy_v2, (CUcontext ctx), (ctx), { return destroy_context(reinterpret_cast<Context*>(ctx)); })
SIM_API(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx), { return push_context(reinterpret_cast<Context*>(ctx)); })
SIM_API(cuCtxPopCurrent_v2, (CUcontext * pctx), (pctx), { return pop_context(reinterpret_cast<Context**>(pctx)); })
SIM_API(cuCtxGetDevice, (CUdevice * device), (device), {
  const Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
})

// Streams and modules --------------------------------------------------------------------------------------------

SIM_API(cuStreamCreateWithPriority, (CUstream * phStream, unsigned flags, int priority), (phStream, flags, priority),
        { return create_stream(phStream, flags, priority); })
SIM_API(cuStreamDestroy_v2, (CUstream hStream), (hStream), { return destroy_stream(hStream); })
SIM_API(cuLibraryUnload, (CUlibrary library), (library), { return unload_module(reinterpret_cast<Module*>(library)); })
SIM_API(cuModuleUnload, (CUmodule hmod), (hmod), { return unload_module(reinterpret_cast<Module*>(hmod)); })
SIM_STREAM_API(cuStreamIsCapturing, (CUstream hStream, CUstreamCaptureStatus* captureStatus), (hStream, captureStatus),
               { return capture_info(hStream, per_thread, captureStatus, nullptr, nullptr, nullptr, nullptr); })
SIM_STREAM_API(cuStreamGetCaptureInfo, (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out),
               (hStream, captureStatus_out, id_out),
               { return capture_info(hStream, per_thread, captureStatus_out, id_out, nullptr, nullptr, nullptr); })
SIM_STREAM_API(cuStreamGetCaptureInfo_v2,
               (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out, CUgraph* graph_out,
                const CUgraphNode** dependencies_out, size_t* numDependencies_out),
               (hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out), {
                 return capture_info(hStream, per_thread, captureStatus_out, id_out, graph_out, dependencies_out,
                                     numDependencies_out);
               })
SIM_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode), { return CUDA_SUCCESS; })

// Graphs ---------------------------------------------------------------------------------------------------------

SIM_STREAM_API(cuGraphInstantiateWithParams,
               (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams),
               (phGraphExec, hGraph, instantiateParams), {
                 auto* graph = as<Graph>(hGraph, Magic::kGraph);
                 if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
                 return instantiate(reinterpret_cast<GraphExec**>(phGraphExec), *graph);
               })
SIM_STREAM_API(cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream),
               { return as<GraphExec>(hGraphExec, Magic::kExec) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; })
SIM_API(cuGraphInstantiate_v2,
        (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer, size_t bufferSize),
        (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), {
          auto* graph = as<Graph>(hGraph, Magic::kGraph);
          if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
          return instantiate(reinterpret_cast<GraphExec**>(phGraphExec), *graph);
        })

SIM_STREAM_API(cuStreamGetCaptureInfo_v3,
               (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out, CUgraph* graph_out,
                const CUgraphNode** dependencies_out, const CUgraphEdgeData** edgeData_out,
                size_t* numDependencies_out),
               (hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out), {
                 if (edgeData_out != nullptr) *edgeData_out = nullptr;  // plain dependencies only
                 return capture_info(hStream, per_thread, captureStatus_out, id_out, graph_out, dependencies_out,
                                     numDependencies_out);
               })

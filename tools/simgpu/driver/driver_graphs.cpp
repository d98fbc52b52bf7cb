// The exported functions of the simulated libcuda.so.1 that capture, make and launch graphs; see driver_api.cpp.
#include "tools/simgpu/driver/driver_call.h"

namespace {

using namespace mfu::sim;

CUresult instantiate_graph(CUgraphExec* out, CUgraph handle) {
  auto* graph = as<Graph>(handle, Magic::kGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(reinterpret_cast<GraphExec**>(out), *graph);
}

}  // namespace

SIM_STREAM_API(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode),
               { return on_stream(hStream, per_thread, [](Stream& s) { return begin_capture(s); }); })
SIM_STREAM_API(cuStreamEndCapture, (CUstream hStream, CUgraph* phGraph), (hStream, phGraph), {
  return on_stream(hStream, per_thread, [&](Stream& s) { return end_capture(s, reinterpret_cast<Graph**>(phGraph)); });
})
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
SIM_API(cuGraphDestroy, (CUgraph hGraph), (hGraph), { return destroy_graph(reinterpret_cast<Graph*>(hGraph)); })
SIM_API(cuGraphInstantiate_v2,
        (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer, size_t bufferSize),
        (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), { return instantiate_graph(phGraphExec, hGraph); })
SIM_API(cuGraphInstantiateWithFlags, (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
        (phGraphExec, hGraph, flags), { return instantiate_graph(phGraphExec, hGraph); })
SIM_STREAM_API(cuGraphInstantiateWithParams,
               (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams),
               (phGraphExec, hGraph, instantiateParams), { return instantiate_graph(phGraphExec, hGraph); })
SIM_STREAM_API(cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream),
               { return as<GraphExec>(hGraphExec, Magic::kExec) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; })
SIM_STREAM_API(cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream), {
  auto* exec = as<GraphExec>(hGraphExec, Magic::kExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(hStream, per_thread, [&](Stream& s) { return launch_graph(*exec, s); });
})
SIM_API(cuGraphExecDestroy, (CUgraphExec hGraphExec), (hGraphExec),
        { return destroy_exec(reinterpret_cast<GraphExec*>(hGraphExec)); })

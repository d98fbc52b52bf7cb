// The exported functions of the simulated libcuda.so.1 that capture, make and launch graphs; see driver_api.cpp.
#include "tools/simgpu/driver/driver_call.h"

using namespace mfu::sim;

SIM_STREAM_API(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode),
               { return on_stream(hStream, per_thread, [](Stream& s) { return begin_capture(s); }); })
SIM_STREAM_API(cuStreamEndCapture, (CUstream hStream, CUgraph* phGraph), (hStream, phGraph), {
  return on_stream(hStream, per_thread, [&](Stream& s) { return end_capture(s, reinterpret_cast<Graph**>(phGraph)); });
})
SIM_API(cuGraphDestroy, (CUgraph hGraph), (hGraph), { return destroy_graph(reinterpret_cast<Graph*>(hGraph)); })
SIM_API(cuGraphInstantiateWithFlags, (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
        (phGraphExec, hGraph, flags), {
          auto* graph = as<Graph>(hGraph, Magic::kGraph);
          if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
          return instantiate(reinterpret_cast<GraphExec**>(phGraphExec), *graph);
        })
SIM_STREAM_API(cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream), {
  auto* exec = as<GraphExec>(hGraphExec, Magic::kExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(hStream, per_thread, [&](Stream& s) { return launch_graph(*exec, s); });
})
SIM_API(cuGraphExecDestroy, (CUgraphExec hGraphExec), (hGraphExec),
        { return destroy_exec(reinterpret_cast<GraphExec*>(hGraphExec)); })

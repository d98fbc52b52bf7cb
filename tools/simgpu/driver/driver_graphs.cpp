// The exported functions of the simulated libcuda.so.1 that capture, make and launch graphs; see driver_api.cpp.
#include "tools/simgpu/driver/driver_call.h"

namespace {

using namespace mfu::sim;

CUresult instantiate_graph(CUgraphExec* out, CUgraph handle) {
  auto* graph = as<Graph>(handle, Magic::kGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(reinterpret_cast<GraphExec**>(out), *graph);
}

template <typename Params>
CUresult add_kernel_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, std::size_t count,
                         const Params* p, CUfunction f) {
  auto* graph = as<Graph>(handle, Magic::kGraph);
  Function* function = function_of(f);
  Context* context = current_context();
  if (graph == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Node prototype;
  const LaunchShape shape{{p->gridDimX, p->gridDimY, p->gridDimZ},
                          {p->blockDimX, p->blockDimY, p->blockDimZ},
                          p->sharedMemBytes,
                          p->kernelParams};
  if (const CUresult r = kernel_node(prototype, *function, shape, {}, *context->device); r != CUDA_SUCCESS) return r;
  return add_node(reinterpret_cast<Node**>(out), *graph, reinterpret_cast<Node* const*>(dependencies), count,
                  std::move(prototype));
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
SIM_API(cuGraphCreate, (CUgraph * phGraph, unsigned flags), (phGraph, flags),
        { return create_graph(reinterpret_cast<Graph**>(phGraph)); })
SIM_API(cuGraphDestroy, (CUgraph hGraph), (hGraph), { return destroy_graph(reinterpret_cast<Graph*>(hGraph)); })
SIM_API(cuGraphClone, (CUgraph * phGraphClone, CUgraph originalGraph), (phGraphClone, originalGraph), {
  auto* graph = as<Graph>(originalGraph, Magic::kGraph);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : clone_graph(reinterpret_cast<Graph**>(phGraphClone), *graph);
})
SIM_API(cuGraphAddKernelNode,
        (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
         const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams),
        (phGraphNode, hGraph, dependencies, numDependencies, nodeParams),
        { return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams, nodeParams->func); })
SIM_API(cuGraphAddKernelNode_v2,
        (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
         const CUDA_KERNEL_NODE_PARAMS_v2* nodeParams),
        (phGraphNode, hGraph, dependencies, numDependencies, nodeParams), {
          CUfunction f =
              nodeParams->func != nullptr ? nodeParams->func : reinterpret_cast<CUfunction>(nodeParams->kern);
          return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams, f);
        })
SIM_API(cuGraphAddEmptyNode,
        (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies),
        (phGraphNode, hGraph, dependencies, numDependencies), {
          auto* graph = as<Graph>(hGraph, Magic::kGraph);
          if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
          return add_node(reinterpret_cast<Node**>(phGraphNode), *graph, reinterpret_cast<Node* const*>(dependencies),
                          numDependencies, Node{});
        })
SIM_API(cuGraphAddChildGraphNode,
        (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies,
         CUgraph childGraph),
        (phGraphNode, hGraph, dependencies, numDependencies, childGraph), {
          auto* graph = as<Graph>(hGraph, Magic::kGraph);
          auto* child = as<Graph>(childGraph, Magic::kGraph);
          if (graph == nullptr || child == nullptr) return CUDA_ERROR_INVALID_VALUE;
          Node prototype;
          prototype.type = CU_GRAPH_NODE_TYPE_GRAPH;
          if (const CUresult r = clone_graph(&prototype.child, *child); r != CUDA_SUCCESS) return r;
          return add_node(reinterpret_cast<Node**>(phGraphNode), *graph, reinterpret_cast<Node* const*>(dependencies),
                          numDependencies, std::move(prototype));
        })
SIM_API(cuGraphGetNodes, (CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes), (hGraph, nodes, numNodes), {
  auto* graph = as<Graph>(hGraph, Magic::kGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; nodes != nullptr && i < *numNodes && i < graph->nodes.size(); ++i) {
    nodes[i] = reinterpret_cast<CUgraphNode>(graph->nodes[i].get());
  }
  *numNodes = graph->nodes.size();
  return CUDA_SUCCESS;
})
SIM_API(cuGraphNodeGetType, (CUgraphNode hNode, CUgraphNodeType* type), (hNode, type), {
  const auto* node = as<Node>(hNode, Magic::kNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
})
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

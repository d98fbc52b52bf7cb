// The exported functions of the simulated libcuda.so.1 that make graphs node by node.
#include "tools/simgpu/driver/driver_call.h"

namespace {

using namespace mfu::sim;

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

SIM_API(cuGraphCreate, (CUgraph * phGraph, unsigned flags), (phGraph, flags),
        { return create_graph(reinterpret_cast<Graph**>(phGraph)); })
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

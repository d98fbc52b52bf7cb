// The exported functions of the simulated libcuda.so.1 that make graphs node by node.
#include <algorithm>

#include "tools/simgpu/driver/driver_call.h"
#include "tools/simgpu/driver/engine_state.h"

namespace {

using namespace mfu::sim;

CUresult add_node(Node** out, Graph& graph, Node* const* dependencies, std::size_t count, Node prototype) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!alive(dependencies[i], Magic::kNode) || dependencies[i]->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    prototype.dependencies.push_back(dependencies[i]);
  }
  Node& node = create_node(graph, std::move(prototype));
  if (out != nullptr) *out = &node;
  return CUDA_SUCCESS;
}

CUresult clone_graph(Graph** out, const Graph& original) {
  auto* graph = new Graph;
  graph->id = process().next_graph.fetch_add(1);
  graph->context = original.context;
  ResourceEvent event = graph_event(kGraphCloned, *graph);
  event.original_graph = reinterpret_cast<CUgraph>(const_cast<Graph*>(&original));
  resource_callback(event);
  copy_nodes(*graph, original, {}, false);
  *out = graph;
  return CUDA_SUCCESS;
}

template <typename Params>
CUresult make_kernel_node(Node& prototype, const Params* p, CUfunction f) {
  Function* function = function_of(f);
  Context* context = current_context();
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const LaunchShape shape{{p->gridDimX, p->gridDimY, p->gridDimZ},
                          {p->blockDimX, p->blockDimY, p->blockDimZ},
                          p->sharedMemBytes,
                          p->kernelParams};
  if (!valid(shape)) return CUDA_ERROR_INVALID_VALUE;
  prototype.type = CU_GRAPH_NODE_TYPE_KERNEL;
  prototype.work = kernel_work(*function, shape, {});
  prototype.duration_ns = kernel_duration(function->cost, *context->device->spec, shape);
  return CUDA_SUCCESS;
}

/// Of CUDA_KERNEL_NODE_PARAMS from version 2 on.
template <typename Params>
CUfunction function_in(const Params& p) {
  return p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
}

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, std::size_t count, Node prototype) {
  auto* graph = as<Graph>(handle, Magic::kGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node(reinterpret_cast<Node**>(out), *graph, reinterpret_cast<Node* const*>(dependencies), count,
                  std::move(prototype));
}

template <typename Params>
CUresult add_kernel_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, std::size_t count,
                         const Params* p, CUfunction f) {
  Node prototype;
  if (const CUresult r = make_kernel_node(prototype, p, f); r != CUDA_SUCCESS) return r;
  return add(out, handle, dependencies, count, std::move(prototype));
}

/// The node of the graph that runs which was made from one of the graph that it was instantiated from.
Node* running_node(CUgraphExec handle, CUgraphNode original) {
  auto* exec = as<GraphExec>(handle, Magic::kExec);
  if (exec == nullptr) return nullptr;
  for (const auto& node : exec->graph.nodes)
    if (node->made_from == reinterpret_cast<const Node*>(original)) return node.get();
  return nullptr;
}

/// Other parameters for a node that runs already: only what it does changes.
CUresult change(Node* node, const Node& prototype) {
  if (node == nullptr || node->type != prototype.type) return CUDA_ERROR_INVALID_VALUE;
  node->work = prototype.work;
  node->duration_ns = prototype.duration_ns;
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12030
/// Of the kinds of nodes that the simulated device runs.
CUresult make_node(Node& prototype, const CUgraphNodeParams& p) {
  const Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  prototype.type = p.type;
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return make_kernel_node(prototype, &p.kernel, function_in(p.kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D& c = p.memcpy.copyParams;
      const auto on_host = [](CUmemorytype type) { return type == CU_MEMORYTYPE_HOST; };
      const int kind = on_host(c.srcMemoryType) ? (on_host(c.dstMemoryType) ? 9 : 1) : on_host(c.dstMemoryType) ? 2 : 8;
      prototype.work =
          make_copy(c.WidthInBytes * std::max<std::size_t>(1, c.Height) * std::max<std::size_t>(1, c.Depth),
                    static_cast<std::uint8_t>(kind));
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      prototype.work =
          make_set(p.memset.elementSize * p.memset.width * std::max<std::size_t>(1, p.memset.height), p.memset.value);
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      auto* child = as<Graph>(p.graph.graph, Magic::kGraph);
      return child == nullptr ? CUDA_ERROR_INVALID_VALUE : clone_graph(&prototype.child, *child);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  prototype.duration_ns = transfer_duration(prototype.work, *context->device->spec);
  return CUDA_SUCCESS;
}
#endif

}  // namespace

#if CUDA_VERSION >= 12030
SIM_API(cuGraphAddNode_v2,
        (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
         const CUgraphEdgeData* dependencyData, size_t numDependencies, CUgraphNodeParams* nodeParams),
        (phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams), {
          Node prototype;
          if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
          if (const CUresult r = make_node(prototype, *nodeParams); r != CUDA_SUCCESS) return r;
          return add(phGraphNode, hGraph, dependencies, numDependencies, std::move(prototype));
        })
SIM_API(cuGraphExecNodeSetParams, (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams),
        (hGraphExec, hNode, nodeParams), {
          Node prototype;
          if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
          if (const CUresult r = make_node(prototype, *nodeParams); r != CUDA_SUCCESS) return r;
          return change(running_node(hGraphExec, hNode), prototype);
        })
#endif
SIM_API(cuGraphExecKernelNodeSetParams_v2,
        (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2* nodeParams),
        (hGraphExec, hNode, nodeParams), {
          Node prototype;
          if (const CUresult r = make_kernel_node(prototype, nodeParams, function_in(*nodeParams)); r != CUDA_SUCCESS)
            return r;
          return change(running_node(hGraphExec, hNode), prototype);
        })

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
          return add_kernel_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams,
                                 function_in(*nodeParams));
        })
SIM_API(cuGraphAddEmptyNode,
        (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies, size_t numDependencies),
        (phGraphNode, hGraph, dependencies, numDependencies),
        { return add(phGraphNode, hGraph, dependencies, numDependencies, Node{}); })
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

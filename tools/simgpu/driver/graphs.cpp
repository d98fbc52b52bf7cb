#include "tools/simgpu/driver/engine_state.h"

#include <algorithm>

namespace mfu::sim {

ResourceEvent graph_event(std::uint32_t cbid, const Graph& graph) {
  ResourceEvent event{.cbid = cbid};
  event.context = reinterpret_cast<CUcontext>(graph.context);
  event.is_graph = true;
  event.graph = reinterpret_cast<CUgraph>(const_cast<Graph*>(&graph));
  return event;
}

namespace {

Node& append(Graph& graph, Node prototype) {
  prototype.id = process().next_node.fetch_add(1);
  prototype.graph = &graph;
  graph.nodes.push_back(std::make_unique<Node>(std::move(prototype)));
  return *graph.nodes.back();
}

}  // namespace

Node& create_node(Graph& graph, Node prototype) {
  ResourceEvent event = graph_event(kGraphNodeCreateStarting, graph);
  event.node_type = prototype.type;
  resource_callback(event);
  Node& node = append(graph, std::move(prototype));
  event.cbid = kGraphNodeCreated;
  event.node = reinterpret_cast<CUgraphNode>(&node);
  resource_callback(event);
  for (Node* dependency : node.dependencies) {
    ResourceEvent edge = graph_event(kGraphNodeDependencyCreated, graph);
    edge.node = event.node;
    edge.dependency = reinterpret_cast<CUgraphNode>(dependency);
    edge.node_type = node.type;
    resource_callback(edge);
  }
  return node;
}

void capture_node(Stream& stream, Node prototype) {
  prototype.dependencies = stream.frontier;
  Node& node = create_node(*stream.capture->graph, std::move(prototype));
  stream.frontier = {&node};
}

bool capturing(const Stream& stream) noexcept {
  return stream.capture != nullptr && stream.capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult create_graph(Graph** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* graph = new Graph;
  graph->id = process().next_graph.fetch_add(1);
  graph->context = current_context();
  *out = graph;
  resource_callback(graph_event(kGraphCreated, *graph));
  return CUDA_SUCCESS;
}

CUresult destroy_graph(Graph* graph) {
  if (!alive(graph, Magic::kGraph)) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& node : graph->nodes) {
    ResourceEvent event = graph_event(kGraphNodeDestroyStarting, *graph);
    event.node = reinterpret_cast<CUgraphNode>(node.get());
    event.node_type = node->type;
    resource_callback(event);
  }
  resource_callback(graph_event(kGraphDestroyStarting, *graph));
  graph->magic = Magic::kDead;
  delete graph;
  return CUDA_SUCCESS;
}

CUresult begin_capture(Stream& stream) {
  if (&stream == &stream.context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto capture = std::make_shared<Capture>();
  if (const CUresult result = create_graph(&capture->graph); result != CUDA_SUCCESS) return result;
  capture->origin = &stream;
  capture->id = process().next_capture.fetch_add(1);
  const std::lock_guard lock(stream.context->mutex);
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream.capture = std::move(capture);
  stream.frontier.clear();
  return CUDA_SUCCESS;
}

CUresult end_capture(Stream& stream, Graph** out) {
  const std::lock_guard lock(stream.context->mutex);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  bool unjoined = false;
  for (Stream* other : stream.context->streams) {
    if (other->capture != capture || other == &stream) continue;
    // Work of a side stream must have come back to the origin stream: its last node is an ancestor of the frontier.
    std::vector<Node*> open = stream.frontier;
    std::set<Node*> reached(open.begin(), open.end());
    while (!open.empty()) {
      Node* node = open.back();
      open.pop_back();
      for (Node* dependency : node->dependencies)
        if (reached.insert(dependency).second) open.push_back(dependency);
    }
    for (Node* node : other->frontier) unjoined |= !reached.contains(node);
    other->capture.reset();
    other->frontier.clear();
  }
  stream.capture.reset();
  stream.frontier.clear();
  const bool invalid = capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  capture->status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (unjoined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *out = capture->graph;
  return CUDA_SUCCESS;
}

std::vector<Node*> copy_nodes(Graph& to, const Graph& from, const std::vector<Node*>& roots_after, bool flatten) {
  std::unordered_map<const Node*, std::vector<Node*>> ends;  // the nodes to depend on in place of a node
  std::set<const Node*> depended_on;
  for (const auto& node : from.nodes) {
    Node copy = *node;
    copy.made_from = node.get();
    copy.dependencies.clear();
    for (const Node* dependency : node->dependencies) {
      depended_on.insert(dependency);
      const std::vector<Node*>& mapped = ends[dependency];
      copy.dependencies.insert(copy.dependencies.end(), mapped.begin(), mapped.end());
    }
    if (node->dependencies.empty()) copy.dependencies = roots_after;
    if (flatten && node->type == CU_GRAPH_NODE_TYPE_GRAPH && node->child != nullptr) {
      ends[node.get()] = copy_nodes(to, *node->child, copy.dependencies, true);
      continue;
    }
    Node& clone = append(to, std::move(copy));
    ends[node.get()] = {&clone};
    ResourceEvent event = graph_event(kGraphNodeCloned, to);
    event.original_graph = reinterpret_cast<CUgraph>(const_cast<Graph*>(&from));
    event.node = reinterpret_cast<CUgraphNode>(&clone);
    event.original_node = reinterpret_cast<CUgraphNode>(node.get());
    event.node_type = clone.type;
    resource_callback(event);
  }
  std::vector<Node*> leaves;
  for (const auto& node : from.nodes) {
    if (depended_on.contains(node.get())) continue;
    leaves.insert(leaves.end(), ends[node.get()].begin(), ends[node.get()].end());
  }
  return leaves.empty() ? roots_after : leaves;
}

CUresult instantiate(GraphExec** out, Graph& graph) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* exec = new GraphExec;
  exec->id = process().next_graph.fetch_add(1);
  exec->instrumented = tool() != nullptr && wanted().any_activity();
  exec->kernels_off = wanted().kernels_off.load(std::memory_order_relaxed);
  exec->whole = tool() != nullptr && wanted().kinds.wants(ActivityKind::kGraph);
  exec->graph.id = exec->id;
  exec->graph.context = graph.context;
  ResourceEvent event = graph_event(kGraphExecCreateStarting, graph);
  resource_callback(event);
  ResourceEvent cloned = graph_event(kGraphCloned, exec->graph);
  cloned.original_graph = reinterpret_cast<CUgraph>(&graph);
  resource_callback(cloned);
  copy_nodes(exec->graph, graph, {}, true);

  // The first child of a node continues its lane; further ones and further roots get new lanes.
  std::set<const Node*> continued;
  bool first_root = true;
  for (const auto& node : exec->graph.nodes) {
    const auto parent = std::find_if(node->dependencies.begin(), node->dependencies.end(),
                                     [&](const Node* n) { return !continued.contains(n); });
    if (parent != node->dependencies.end()) {
      continued.insert(*parent);
      node->lane = (*parent)->lane;
    } else if (node->dependencies.empty() && first_root) {
      first_root = false;
    } else {
      node->lane = ++exec->next_lane;
    }
  }
  event.cbid = kGraphExecCreated;
  event.graph_exec = reinterpret_cast<CUgraphExec>(exec);
  resource_callback(event);
  *out = exec;
  return CUDA_SUCCESS;
}

CUresult destroy_exec(GraphExec* exec) {
  if (!alive(exec, Magic::kExec)) return CUDA_ERROR_INVALID_HANDLE;
  ResourceEvent event = graph_event(kGraphExecDestroyStarting, exec->graph);
  event.graph_exec = reinterpret_cast<CUgraphExec>(exec);
  resource_callback(event);
  exec->magic = Magic::kDead;
  delete exec;
  return CUDA_SUCCESS;
}

CUresult launch_graph(GraphExec& exec, Stream& stream) {
  current_call().launch = true;
  // Kinds that were off for a while do not come back for the nodes of older graphs.
  const bool nodes_seen = !wanted().graph_level.load(std::memory_order_relaxed) &&
                          exec.kernels_off == wanted().kernels_off.load(std::memory_order_relaxed);
  const bool traced = nodes_seen && exec.instrumented && wanted().kinds.wants(ActivityKind::kKernel);
  burn_launch_cost(traced ? exec.graph.nodes.size() : 0);
  if (const CUresult failure = scripted_launch_failure(); failure != CUDA_SUCCESS) return failure;
  std::vector<Activity> done;
  done.reserve(exec.graph.nodes.size());
  Activity whole;
  whole.kind = ActivityKind::kGraph;
  std::vector<std::pair<CUhostFn, void*>> host_calls;
  std::int64_t room_at = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (stream.capture != nullptr) {
      current_call().captured = true;
      if (!capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      copy_nodes(*stream.capture->graph, exec.graph, stream.frontier, false);
      return CUDA_SUCCESS;
    }
    const std::int64_t start = std::max(earliest_start(stream, now_ns()), exec.busy_until_ns + settings().gap_ns);
    std::int64_t finish = start;
    std::unordered_map<const Node*, std::int64_t> ends;
    std::vector<std::int64_t> lane_tail(exec.next_lane + 1, start);
    for (const auto& node : exec.graph.nodes) {
      std::int64_t begin = lane_tail[node->lane];
      for (const Node* dependency : node->dependencies) begin = std::max(begin, ends[dependency] + settings().gap_ns);
      const std::int64_t end = begin + node->duration_ns;
      ends[node.get()] = end;
      lane_tail[node->lane] = end;
      finish = std::max(finish, end);
      if (node->type == CU_GRAPH_NODE_TYPE_HOST && node->host != nullptr)
        host_calls.emplace_back(node->host, node->host_data);
      if (node->duration_ns == 0) continue;
      Activity work = node->work;
      place(work, stream, begin, node->duration_ns);
      if (node->lane != 0) work.stream = kGraphLaneStreamId + (node->lane - 1) % kGraphLaneStreams;
      work.graph_id = exec.id;
      work.graph_node_id = node->id;
      work.instrumented = exec.instrumented;
      done.push_back(work);
    }
    place(whole, stream, start, finish - start);
    whole.graph_id = exec.id;
    stream.last_begin_ns = start;
    stream.tail_ns = finish;
    exec.busy_until_ns = finish;
    room_at = enqueue(stream, finish);
  }
  for (Activity& work : done) emit(work, nodes_seen);
  const bool whole_seen = exec.whole || (settings().graph_level_late && exec.instrumented);
  if (whole_seen && wanted().kinds.wants(ActivityKind::kGraph)) emit(whole, true);
  for (const auto& [function, data] : host_calls) host_function(stream, function, data);
  finish_before_exit(whole.end_ns);
  if (room_at != 0) sleep_until(room_at);
  return CUDA_SUCCESS;
}

}  // namespace mfu::sim

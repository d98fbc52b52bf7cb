#include "core/drain/graph_inside.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/bit_mix.h"

namespace mfu {

std::size_t GraphInside::place_of(ActivityKind kind, KernelNameId name, std::uint64_t extent) noexcept {
  return mix(extent ^ std::uint64_t{raw(name)} << 40 ^ std::uint64_t{static_cast<std::uint8_t>(kind)} << 60) &
         (kMostKernels - 2);
}

void GraphInside::learn(const ActivityRecord& record) noexcept {
  // One mean for all copies and one for all sets: a node does not report its size.
  const std::uint64_t extent = record.kind == ActivityKind::kKernel ? record.extent : 0;
  const std::size_t at = place_of(record.kind, record.name, extent);
  const auto is_same = [&](const Learned& l) {
    return l.name == record.name && l.extent == extent && l.kind == record.kind && l.runs != 0;
  };
  Learned* place = is_same(learned_[at]) ? &learned_[at] : &learned_[at + 1];
  if (!is_same(*place)) {
    place = learned_[at].runs <= learned_[at + 1].runs ? &learned_[at] : &learned_[at + 1];
    if (place->runs > 1) {  // frequent kernels are replaced last
      --place->runs;
      return;
    }
    *place = {extent, record.name, record.kind, 0, 0};
  }
  if (place->runs < kRuns) ++place->runs;
  place->mean_ns += (static_cast<double>(record.end_ns - record.begin_ns) - place->mean_ns) / place->runs;
}

double GraphInside::time_of(const Node& node) const noexcept {
  const std::size_t at = place_of(node.kind, node.name, node.extent);
  for (const Learned* l : {&learned_[at], &learned_[at + 1]})
    if (l->runs != 0 && l->name == node.name && l->extent == node.extent && l->kind == node.kind)
      return std::max(1.0, l->mean_ns);
  return 0;
}

/// Nodes of one class of time have one number.
int GraphInside::class_of(const Node& node) {
  if (node.kind != ActivityKind::kKernel) return -1;
  return static_cast<int>(names_.class_of(node.name));
}

void GraphInside::add(Graph& graph, const Node& node) {
  if (graph.list == nullptr || graph.list.use_count() > 1) {  // shared lists are not changed
    auto own = std::make_shared<NodeList>(nodes_);
    if (graph.list != nullptr) own->nodes = graph.list->nodes;
    nodes_ += own->nodes.size();
    graph.list = std::move(own);
  }
  while (nodes_ >= kMostNodes && !stopped_.empty()) drop_oldest_stopped();
  graph.opaque = graph.opaque || nodes_ >= kMostNodes;
  if (graph.opaque) return;
  graph.list->nodes.push_back(node);
  ++nodes_;
}

void GraphInside::copy(std::uint64_t graph, std::uint64_t original) {
  const auto found = graphs_.find(original);
  if (found == graphs_.end()) return;
  const Graph same = found->second;
  graphs_[graph] = same;
  last_copy_ = graph;
  last_original_ = original;
}

void GraphInside::stop(GraphNumber number) {
  stopped_.push_back(raw(number));
  if (stopped_.size() > kMostStopped) drop_oldest_stopped();
}

void GraphInside::drop_oldest_stopped() {
  running_.erase(stopped_.front());
  stopped_.pop_front();
}

void GraphInside::apply(const GraphNote& note) {
  if (note.what == GraphNote::What::kStops) return stop(note.number);
  if (note.graph == 0) {  // a change of some graph
    for (auto& [handle, graph] : graphs_) graph.opaque = true;
    return;
  }
  const bool is_new = note.what == GraphNote::What::kBegins || note.what == GraphNote::What::kCopies;
  if (is_new) {
    graphs_.erase(note.graph);
    if (graphs_.size() == kMostGraphs) return;
    if (note.what == GraphNote::What::kCopies) return copy(note.graph, note.extent);
    graphs_[note.graph] = {};
    return;
  }
  const auto found = graphs_.find(note.graph);
  if (found == graphs_.end()) return;  // from before we looked
  Graph& graph = found->second;
  switch (note.what) {
    case GraphNote::What::kNode:
      return add(graph, {note.extent, note.name, note.product, note.kind});
    case GraphNote::What::kOpaque:
      graph.opaque = true;
      return;
    case GraphNote::What::kRuns:
      if (!graph.opaque && graph.list != nullptr) running_[raw(note.number)] = graph.list;
      // The driver instantiated an internal copy, whose handle the program never sees.
      if (last_original_ == note.graph) graphs_.erase(std::exchange(last_copy_, 0));
      last_original_ = 0;
      return;
    default:
      graphs_.erase(found);
      return;
  }
}

void GraphInside::follow() {
  // The lost notes may belong to any graph under construction.
  if (const std::uint64_t lost = contents_.lost(); lost != lost_) {
    lost_ = lost;
    for (auto& [handle, graph] : graphs_) graph.opaque = true;
  }
  for (GraphNote note; contents_.take(note);) apply(note);
}

/// Fills times_, gap_ns_ and scale_. False: not understood.
bool GraphInside::work_out_times(const std::vector<Node>& nodes, DurationNs span) {
  times_.clear();
  double known = 0;
  std::size_t unknown = 0;
  int unknown_class = 0;
  bool one_class = true;
  for (const Node& node : nodes) {
    const double time = time_of(node);
    times_.push_back(time);
    known += time;
    if (time > 0) continue;
    const int its_class = class_of(node);
    one_class = one_class && (unknown++ == 0 || its_class == unknown_class);
    unknown_class = its_class;
  }
  const auto took = static_cast<double>(span);
  const auto gaps = static_cast<double>(nodes.size() - 1);
  scale_ = 1;
  in_doubt_ = 0;
  if (unknown != 0) {
    gap_ns_ = static_cast<double>(kUsualGap);
    const double left = took - known - gaps * gap_ns_;
    // Shared out among several classes it may lie in the wrong one.
    in_doubt_ = one_class ? 0 : left / took;
    const double each = left / static_cast<double>(unknown);
    if (each < 1 || in_doubt_ > kMostInDoubt) return false;
    for (double& time : times_)
      if (time == 0) time = each;
    return true;
  }
  gap_ns_ = gaps == 0 ? 0 : std::clamp((took - known) / gaps, 0.0, static_cast<double>(kMostGap));
  scale_ = (took - gaps * gap_ns_) / known;
  if (scale_ <= kMostScale && scale_ >= 1 / kMostScale) return true;
  // Time that depends on more than name and grid: on arguments, or the memory's content. The class may still be sure.
  const Node& first = nodes.front();
  if (!std::all_of(nodes.begin(), nodes.end(), [&](const Node& n) { return class_of(n) == class_of(first); }))
    return false;
  const bool same = std::all_of(nodes.begin(), nodes.end(),
                                [&](const Node& n) { return n.name == first.name && n.extent == first.extent; });
  in_doubt_ = same ? 0 : 1;
  return true;
}

std::span<const ActivityRecord> GraphInside::of(const ActivityRecord& whole, GraphNumber number) {
  records_.clear();
  const DurationNs span = whole.end_ns - whole.begin_ns;
  graphs_ns_ += span;
  const auto found = running_.find(raw(number));
  if (found == running_.end() || !work_out_times(found->second->nodes, span)) return {};
  const std::vector<Node>& nodes = found->second->nodes;
  double at = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    ActivityRecord record = whole;
    record.kind = nodes[i].kind;
    record.name = nodes[i].name;
    record.extent = nodes[i].extent;
    record.product = nodes[i].product.product();
    record.first_of_product = nodes[i].product.first();
    if (record.graph == GraphId::kNone) record.graph = GraphId::kUnknown;
    record.begin_ns = whole.begin_ns + std::llround(at);
    at += times_[i] * scale_;
    record.end_ns = i + 1 == nodes.size() ? whole.end_ns : whole.begin_ns + std::llround(at);
    at += gap_ns_;
    records_.push_back(record);
  }
  known_ns_ += span;
  const bool understood = scale_ <= kMostScale && scale_ >= 1 / kMostScale;
  error_ns_ += (understood ? std::abs(scale_ - 1) + in_doubt_ : in_doubt_) * static_cast<double>(span);
  return records_;
}

GraphInside::Figures GraphInside::figures() const noexcept {
  return {graphs_ns_, known_ns_, known_ns_ == 0 ? 0 : error_ns_ / static_cast<double>(known_ns_)};
}

}  // namespace mfu

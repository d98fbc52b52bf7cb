// The inside of CUDA graphs that CUPTI times as a whole: which kernels ran, and for how long each, as far as the
// building of the graph and the same kernels outside of graphs say it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/attribution/graph_contents.h"
#include "core/base/activity_record.h"
#include "core/base/units.h"
#include "core/kernels/kernel_names.h"

namespace mfu {

/// [mfu-drain] A whole-graph record says when a graph ran, and nothing of its nodes. Which nodes those are, and in
/// which order they were captured, is in GraphContents. How long a node takes is known where the same kernel with the
/// same grid also ran outside of graphs: frameworks run what they capture eagerly first. Nodes that never did share the
/// time that the others leave, if they are all of one class or it is little.
///
/// Where the sum of what the nodes take is far from what the graph took, or too little is known, the graph stays one
/// record of unknown class.
class GraphInside {
 public:
  /// Bounds of memory: nodes of all graphs together (32 B each), and pairs of kernel and grid (32 B each).
  static constexpr std::size_t kMostNodes = 1u << 18;
  static constexpr std::size_t kMostKernels = 1u << 12;
  /// Longest idle time between two nodes [ns]; beyond it, the nodes are taken to have run longer. The usual gap is
  /// about 1 us: NVIDIA's "Getting Started with CUDA Graphs" (2019) measures 3.4 us per kernel of 2.9 us.
  static constexpr DurationNs kMostGap = 2000, kUsualGap = 1000;
  /// A graph that took so many times longer, or shorter, than its nodes do outside of it is not understood.
  static constexpr double kMostScale = 1.5;
  /// Part of a graph's time that nodes of several classes may share which never ran outside of it.
  static constexpr double kMostInDoubt = 0.05;

  GraphInside(GraphContents& contents, KernelNames& names) : contents_(contents), names_(names) {}

  /// Takes what host threads have noted since the last call.
  void follow();
  /// An activity that ran outside of graphs, with good times.
  void learn(const ActivityRecord& record) noexcept;
  /// The records of the nodes of `whole`, in order, laid over its time; none: not known. Valid until the next call.
  [[nodiscard]] std::span<const ActivityRecord> of(const ActivityRecord& whole, GraphNumber number);

  /// Time of graphs so far, of those whose inside is known, and how far their time lay from that of their nodes, as the
  /// mean of |took / expected - 1| weighted by time, and what may be in the wrong class [ratio].
  struct Figures {
    DurationNs graphs_ns = 0, known_ns = 0;
    double error = 0;
  };
  [[nodiscard]] Figures figures() const noexcept;

 private:
  struct Node {
    std::uint64_t extent = 0;
    KernelNameId name{};
    ProductTag product;
    ActivityKind kind{};
  };
  /// The nodes of a graph, its copies and what runs it, which have it together; counted while any of them is there.
  struct NodeList {
    explicit NodeList(std::size_t& in_all) : count(in_all) {}
    ~NodeList() { count -= nodes.size(); }
    NodeList(const NodeList&) = delete;
    NodeList& operator=(const NodeList&) = delete;
    std::vector<Node> nodes;
    std::size_t& count;
  };
  struct Graph {
    std::shared_ptr<NodeList> list;
    bool opaque = false;  ///< with nodes whose work is unknown
  };
  struct Learned {
    std::uint64_t extent = 0;
    KernelNameId name{};
    ActivityKind kind{};
    std::uint8_t runs = 0;  ///< 0: the place is free; counts up to kRuns
    double mean_ns = 0;     ///< of the last kRuns or so
  };
  static constexpr std::uint8_t kRuns = 16;
  static constexpr std::size_t kMostStopped = 256, kMostGraphs = 1u << 14;

  [[nodiscard]] static std::size_t place_of(ActivityKind kind, KernelNameId name, std::uint64_t extent) noexcept;
  /// Mean time of such a node outside of graphs [ns]; 0: it never ran there.
  [[nodiscard]] double time_of(const Node& node) const noexcept;
  [[nodiscard]] int class_of(const Node& node);
  [[nodiscard]] bool work_out_times(const std::vector<Node>& nodes, DurationNs span);
  void apply(const GraphNote& note);
  void add(Graph& graph, const Node& node);
  void copy(std::uint64_t graph, std::uint64_t original);
  void stop(GraphNumber number);
  void drop_oldest_stopped();

  GraphContents& contents_;
  KernelNames& names_;
  std::size_t nodes_ = 0;                            ///< in all NodeLists; outlives them
  std::unordered_map<std::uint64_t, Graph> graphs_;  ///< by handle, as long as they are there
  std::unordered_map<std::uint32_t, std::shared_ptr<const NodeList>> running_;  ///< by GraphNumber
  std::uint64_t last_copy_ = 0, last_original_ = 0;
  std::deque<std::uint32_t> stopped_;  ///< numbers, oldest first: records of their last launches may still come
  std::uint64_t lost_ = 0;
  std::vector<Learned> learned_ = std::vector<Learned>(kMostKernels);
  std::vector<double> times_;  ///< of the nodes of the graph that is worked on [ns]
  double gap_ns_ = 0, scale_ = 1, in_doubt_ = 0;
  std::vector<ActivityRecord> records_;
  DurationNs graphs_ns_ = 0, known_ns_ = 0;
  double error_ns_ = 0;
};

}  // namespace mfu

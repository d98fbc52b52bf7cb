// The contents of CUDA graphs, noted on host threads while graphs are built, and read by the drain.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "core/attribution/graph_products.h"
#include "core/attribution/product_tag.h"
#include "core/attribution/record_queue.h"
#include "core/base/activity_record.h"
#include "core/base/ids.h"

namespace mfu {

/// Numbers the contents that executable graphs have had, from 1. kNone: unknown contents.
enum class GraphNumber : std::uint32_t { kNone = 0 };

/// One step in the building of a graph.
struct GraphNote {
  enum class What : std::uint8_t {
    kBegins,  ///< a graph without nodes is there
    kNode,    ///< it gets a node that runs on the device
    kOpaque,  ///< it gets a node whose work is unknown: a child graph, a kernel that was not captured. Of graph 0: any
              ///< may
    kRuns,    ///< `number` names its nodes so far
    kCopies,  ///< it is made with the nodes of the graph whose handle is in `extent`
    kEnds,    ///< it is destroyed; executable graphs made of it stay
    kStops,   ///< nothing runs `number` any more
  };
  What what = What::kBegins;
  ActivityKind kind = ActivityKind::kKernel;  ///< kNode
  KernelNameId name = KernelNameId::kOther;   ///< kNode, kernels
  GraphNumber number = GraphNumber::kNone;    ///< kRuns, kStops
  std::uint64_t graph = 0;                    ///< handle; may be reused after kEnds
  std::uint64_t extent = 0;                   ///< kNode, kernels: pack(Grid); kCopies
  ProductTag product;                         ///< kNode, kernels: the matrix product that it computes
};

/// Lock-free and of fixed size; its pages are touched as graphs are built. Contents that do not fit are unknown ones.
class GraphContents {
 public:
  static constexpr std::uint32_t kNotes = 1u << 16;
  static constexpr std::uint32_t kExecs = 1u << 12;

  /// [any thread] Where the queue is full, nothing that is built until the drain has emptied it is known.
  void note(const GraphNote& note) noexcept {
    if (!queue_.push(note)) lost_.fetch_add(1, std::memory_order_release);
  }
  /// [any thread] `exec` runs the nodes that `graph` has now. CUDA forbids concurrent calls on one graph.
  void runs(std::uint64_t exec, std::uint64_t graph) noexcept {
    GraphNote made;
    made.what = GraphNote::What::kRuns;
    made.graph = graph;
    made.number = static_cast<GraphNumber>(last_number_.fetch_add(1, std::memory_order_relaxed) + 1);
    note(made);
    stops(execs_.set(key_of(exec), raw(made.number)));
  }
  /// [any thread] `exec` is gone, or was changed in a way that is not followed.
  void forget(std::uint64_t exec) noexcept { stops(execs_.erase(key_of(exec))); }
  /// [launching thread] hot, once per graph launch.
  [[nodiscard]] GraphNumber number_of(std::uint64_t exec) const noexcept {
    return static_cast<GraphNumber>(execs_.find(key_of(exec)));
  }

  /// [mfu-drain] False: there is none for now.
  [[nodiscard]] bool take(GraphNote& note) noexcept { return queue_.pop(note); }
  /// [mfu-drain] Notes that found no room so far.
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_acquire); }

 private:
  /// Handles are addresses of objects, aligned to 16.
  [[nodiscard]] static std::uint64_t key_of(std::uint64_t exec) noexcept { return std::rotr(exec, 4); }
  void stops(std::uint32_t number) noexcept {
    if (number == 0) return;
    GraphNote stop;
    stop.what = GraphNote::What::kStops;
    stop.number = static_cast<GraphNumber>(number);
    note(stop);
  }

  KeyTable<kExecs> execs_;
  BoundedQueue<GraphNote, kNotes> queue_;
  std::atomic<std::uint32_t> last_number_{0};
  std::atomic<std::uint64_t> lost_{0};
};

}  // namespace mfu

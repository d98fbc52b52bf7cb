// The contents of CUDA graphs, noted on host threads while graphs are built, and read by the drain.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/attribution/product_tag.h"
#include "core/base/activity_record.h"
#include "core/base/bit_mix.h"
#include "core/base/ids.h"
#include "core/base/zeroed_array.h"

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
  /// [any thread] `exec` runs the nodes that `graph` has now.
  void runs(std::uint64_t exec, std::uint64_t graph) noexcept {
    GraphNote made;
    made.what = GraphNote::What::kRuns;
    made.graph = graph;
    made.number = static_cast<GraphNumber>(last_number_.fetch_add(1, std::memory_order_relaxed) + 1);
    note(made);
    set(exec, made.number);
  }
  /// [any thread] `exec` is gone, or was changed in a way that is not followed.
  void forget(std::uint64_t exec) noexcept { set(exec, GraphNumber::kNone); }
  /// [launching thread] hot, once per graph launch.
  [[nodiscard]] GraphNumber number_of(std::uint64_t exec) const noexcept {
    if (execs_.size() == 0) return GraphNumber::kNone;
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      const Exec& slot = execs_[place(exec, i)];
      if (slot.handle.load(std::memory_order_acquire) == exec)
        return static_cast<GraphNumber>(slot.number.load(std::memory_order_relaxed));
    }
    return GraphNumber::kNone;
  }

  /// [mfu-drain] False: there is none for now.
  [[nodiscard]] bool take(GraphNote& note) noexcept { return queue_.pop(note); }
  /// [mfu-drain] Notes that found no room so far.
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_acquire); }

 private:
  static constexpr std::uint32_t kProbes = 8;
  struct Exec {
    std::atomic<std::uint64_t> handle;
    std::atomic<std::uint32_t> number;
  };
  /// As BoundedQueue (D. Vyukov's bounded MPMC scheme), in memory that is zero at first: a cell holds its turn less its
  /// index.
  class Queue {
   public:
    bool push(const GraphNote& note) noexcept {
      if (cells_.size() == 0) return false;
      std::uint64_t at = tail_.load(std::memory_order_relaxed);
      while (true) {
        Cell& cell = cells_[at % kNotes];
        const auto ahead = static_cast<std::int64_t>(cell.turn.load(std::memory_order_acquire) + at % kNotes - at);
        if (ahead < 0) return false;
        if (ahead > 0) {
          at = tail_.load(std::memory_order_relaxed);
        } else if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
          cell.note = note;
          cell.turn.store(at + 1 - at % kNotes, std::memory_order_release);
          return true;
        }
      }
    }
    /// One consumer.
    bool pop(GraphNote& note) noexcept {
      if (cells_.size() == 0) return false;
      Cell& cell = cells_[head_ % kNotes];
      if (cell.turn.load(std::memory_order_acquire) + head_ % kNotes != head_ + 1) return false;
      note = cell.note;
      cell.turn.store(head_ + kNotes - head_ % kNotes, std::memory_order_release);
      ++head_;
      return true;
    }

   private:
    struct Cell {
      std::atomic<std::uint64_t> turn;
      GraphNote note;
    };
    ZeroedArray<Cell> cells_{kNotes};
    std::atomic<std::uint64_t> tail_{0};
    std::uint64_t head_ = 0;
  };

  [[nodiscard]] static std::size_t place(std::uint64_t exec, std::uint32_t probe) noexcept {
    return (mix(exec >> 4) + probe) & (kExecs - 1);
  }
  /// CUDA forbids concurrent calls on one graph, so two threads never set the same handle at once.
  void set(std::uint64_t exec, GraphNumber number) noexcept {
    if (execs_.size() == 0) return;
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      Exec& slot = execs_[place(exec, i)];
      if (slot.handle.load(std::memory_order_acquire) != exec) continue;
      GraphNote before;
      before.what = GraphNote::What::kStops;
      before.number = static_cast<GraphNumber>(slot.number.exchange(raw(number), std::memory_order_acq_rel));
      if (before.number != GraphNumber::kNone) note(before);
      return;
    }
    if (number == GraphNumber::kNone) return;
    for (std::uint32_t i = 0; i < kProbes; ++i) {
      Exec& slot = execs_[place(exec, i)];
      std::uint64_t held = slot.handle.load(std::memory_order_acquire);
      // A place whose graph is gone is free again.
      if (held != 0 && slot.number.load(std::memory_order_relaxed) != raw(GraphNumber::kNone)) continue;
      if (!slot.handle.compare_exchange_strong(held, kBusy, std::memory_order_acq_rel)) continue;
      slot.number.store(raw(number), std::memory_order_relaxed);
      slot.handle.store(exec, std::memory_order_release);
      return;
    }
  }
  static constexpr std::uint64_t kBusy = ~std::uint64_t{0};

  ZeroedArray<Exec> execs_{kExecs};
  Queue queue_;
  std::atomic<std::uint32_t> last_number_{0};
  std::atomic<std::uint64_t> lost_{0};
};

}  // namespace mfu

// Whose kernel is it? Decided at launch, on the launching thread, from the ranges that are open at that moment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "core/attribution/correlation_map.h"
#include "core/attribution/graph_contents.h"
#include "core/attribution/graph_products.h"
#include "core/attribution/instance_table.h"
#include "core/attribution/launch_place.h"
#include "core/attribution/product_table.h"
#include "core/attribution/product_tag.h"
#include "core/attribution/range_stack.h"
#include "core/attribution/stream_lanes.h"
#include "core/base/counters.h"
#include "core/base/ids.h"
#include "core/base/zeroed_array.h"
#include "core/ranges/region_opening.h"

namespace mfu {

/// One host thread as attribution sees it. Written by its own thread; the atomics are read by others.
struct alignas(64) ThreadState {
  // Read and written by every launch, in the first two cache lines.
  std::atomic<std::uint32_t> innermost{0};  ///< innermost open region instance; 0: none. Read by threads without one
  std::atomic<std::uint32_t> serial{0};     ///< ThreadSerial of the thread that holds this state; 0: free
  std::atomic<std::uint64_t> launches{0};   ///< launch calls of threads that had this state, retracted ones excluded
  std::atomic<std::uint32_t> last_correlation{0};  ///< of the newest launch call
  std::atomic<std::uint32_t> any_launch{0};        ///< last_correlation and first_correlation are meaningful
  std::atomic<std::uint32_t> context{0};           ///< last CUDA context launched on
  std::uint32_t index = 0;                         ///< 1 + place in the thread table
  bool in_launch_call = false;                     ///< this thread is inside of the call of last_correlation
  /// Of the library call for a matrix product that the thread is inside of; no product: it is inside of none. first():
  /// the call has launched no kernel yet.
  ProductTag product;
  ProductTag launch_product;         ///< of the launch call that this thread is inside of
  CorrelationId first_of_product{};  ///< the launch that carries the product, once there is one
  StreamLanes::Cache lane;           ///< of the stream that it launched on last
  ProductWords asked;                ///< the product, while it is kAsked
  double flop_asked = 0;             ///< of all products that the thread launched kernels for
  std::atomic<std::uint32_t> first_correlation{0};
  std::atomic<std::uint32_t> os_thread{0};      ///< as gettid() says
  std::atomic<std::uint64_t> handle{0};         ///< as pthread_self() says
  std::atomic<const char*> waits_in{nullptr};   ///< the call that waits for the device, while it is inside of one
  std::atomic<const char*> slow_call{nullptr};  ///< likewise, one that may take long for other reasons
  std::atomic<std::uint16_t> range{0};          ///< RangeStack::name
  bool owns = false;                            ///< among the threads that ever had a region open
  InstanceTable::Share share;                   ///< of the table of instances
  RangeStack stack;
  RecentProducts recent_products;
  /// Its newest launches, in a ring: the names that CUPTI gave their kernels, which live as long as the modules do.
  struct NamedLaunch {
    std::atomic<std::uint32_t> correlation{0};
    std::atomic<const char*> kernel{nullptr};
  };
  static constexpr std::size_t kNamedLaunches = 512;
  std::array<NamedLaunch, kNamedLaunches> named;
};

/// Range events and launches in, LaunchOwner per correlation id out. Times are ticks that the caller read, so that a
/// stored trace drives the same object as a live process.
///
/// The rule: the thread's innermost open range that maps to a region; else the region that is open elsewhere in the
/// process, if only one thread has one; else that of the thread which last launched on the same context; else none.
class Attribution {
 public:
  static constexpr std::uint32_t kMaxThreads = 1024;
  static constexpr std::uint32_t kMaxProcessRanges = 1024;  ///< open start/end ranges that map to a region

  explicit Attribution(Counters& counters) noexcept : counters_(counters), instances_(counters) {}

  /// [any thread] cold. A state for the calling thread; nullptr when all are taken (use the anonymous calls then).
  [[nodiscard]] ThreadState* acquire_thread(std::uint32_t os_thread = 0) noexcept;
  /// [owner thread] The thread ends: its open instances are closed, the state is free again.
  void release_thread(ThreadState& thread, Ticks now) noexcept;

  /// [owner thread] hot. A range that maps to no region. \param name see MatchedRange.
  void push(ThreadState& thread, DomainId domain, std::uint16_t name = 0) noexcept {
    RangeStack::Frame frame;
    frame.domain = domain;
    frame.name = name;
    thread.range.store(name, std::memory_order_relaxed);
    frame.innermost = thread.stack.innermost();
    if (!thread.stack.push(frame)) counters_.add(Counter::kNvtxTooDeep);
  }
  /// [owner thread] A range that maps to a region: opens an instance, or a part of the one open already.
  /// \param shape nullptr: it has none. \return the level of the range, 0 for the outermost
  int push_region(ThreadState& thread, DomainId domain, RegionId region, RuleId rule, const ShapeWords* shape,
                  Ticks now) noexcept;
  int push_region(ThreadState& thread, DomainId domain, const RegionOpening& opening, Ticks now) noexcept {
    return push_region(thread, domain, opening.region, opening.rule, &opening.shape, now);
  }
  /// [owner thread] hot. `now` is called for the time only when the range opened something.
  template <typename Now>
  [[gnu::always_inline]] void pop(ThreadState& thread, DomainId domain, Now&& now) noexcept {
    InstanceId opened = InstanceId::kNone;
    switch (thread.stack.pop(domain, opened)) {
      case RangeStack::Popped::kFrame:
        thread.range.store(thread.stack.name(), std::memory_order_relaxed);
        if (opened != InstanceId::kNone) [[unlikely]]
          close_opened(thread, opened, now());
        return;
      case RangeStack::Popped::kTooDeep:
        return;
      case RangeStack::Popped::kUnmatched:
        counters_.add(Counter::kNvtxPopUnmatched);
        return;
    }
  }

  /// [any thread] Opens a start/end range that maps to a region. Returns its handle, 0 when it is not followed.
  [[nodiscard]] std::uint64_t start_process_region(ThreadState* thread, const RegionOpening& opening,
                                                   Ticks now) noexcept;
  /// [any thread] False for a handle that is not open.
  bool end_process_region(std::uint64_t handle, Ticks now) noexcept;

  /// [launching thread] hot. A launch call enters. False when the same call was entered by an outer API layer.
  /// \param place the stream, and what kind of launch; unknown where the caller does not know.
  /// \param kernel it launches a kernel: one of the product that the thread asks a library for, if it does.
  /// \param graph of a graph launch: the number of its contents, kept in the map in place of a kernel's product.
  [[gnu::always_inline]] bool launch(ThreadState& thread, CorrelationId id, std::uint32_t context,
                                     LaunchPlace place = {}, bool kernel = false,
                                     GraphNumber graph = GraphNumber::kNone) noexcept {
    const std::uint32_t innermost = thread.innermost.load(std::memory_order_relaxed);
    LaunchOwner owner;
    if (innermost != 0) {
      owner = static_cast<LaunchOwner>(innermost);
      note_owner(thread, context);
    } else {
      owner = ambient_owner(context);
      if (owner == LaunchOwner::kOutside) owner = outside_by(thread.index);
    }
    ProductTag product;
    if (kernel && thread.product.word() != 0) product = product_of(thread);
    if (!map_.insert(id, owner, place.by(thread.index), kernel ? product : ProductTag(raw(graph)))) return false;
    thread.launch_product = product;
    if (product.first()) {
      thread.product = product.further();
      thread.first_of_product = id;
    }
    thread.context.store(context, std::memory_order_relaxed);
    thread.in_launch_call = true;
    thread.launches.store(thread.launches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    thread.last_correlation.store(raw(id), std::memory_order_relaxed);
    if (thread.any_launch.load(std::memory_order_relaxed) == 0) [[unlikely]] {
      thread.first_correlation.store(raw(id), std::memory_order_relaxed);
      thread.any_launch.store(1, std::memory_order_release);
    }
    return true;
  }
  /// [launching thread] hot. The kernel of the launch call that has just entered; nullptr: it launches none.
  static void name_launch(ThreadState& thread, CorrelationId id, const char* kernel) noexcept {
    ThreadState::NamedLaunch& at =
        thread.named[thread.launches.load(std::memory_order_relaxed) % ThreadState::kNamedLaunches];
    at.kernel.store(kernel, std::memory_order_relaxed);
    at.correlation.store(raw(id), std::memory_order_release);
  }
  /// [any thread] Where the names of the kernels lie that were launched since `first`, in order, as far as the rings
  /// reach. Their modules may be gone meanwhile, and the names with them.
  [[nodiscard]] std::vector<std::pair<CorrelationId, const char*>> kernels_since(CorrelationId first) const;
  /// [launching thread] hot. The launch call `id` leaves; `failed`: it put no work on a stream.
  void launch_done(ThreadState& thread, CorrelationId id, bool failed) noexcept {
    if (!thread.in_launch_call || thread.last_correlation.load(std::memory_order_relaxed) != raw(id)) return;
    if (failed) {
      retract(thread, Counter::kLaunchesFailed);
      if (thread.launch_product.first() && thread.product) thread.product = thread.launch_product;
    }
    thread.in_launch_call = false;
  }
  /// [launching thread] The launch call that this thread is inside of only added a node to a graph.
  void launch_captured(ThreadState& thread) noexcept {
    if (thread.in_launch_call) retract(thread, Counter::kLaunchesCaptured);
  }
  /// [owner thread] hot. A library call for `product` begins: the kernels that the thread launches until it ends are of
  /// that product. False inside of such a call: the outermost counts, and end_product is not for the inner one.
  ///
  /// The product is numbered by the launch that carries it, which costs more than this call may.
  [[gnu::always_inline]] static bool begin_product(ThreadState& thread, const ProductWords& product) noexcept {
    if (thread.product) return false;
    thread.asked = product;
    thread.product = ProductTag::first_of(kAsked);
    return true;
  }
  /// [owner thread] hot. The call that begin_product was true for returns. `failed`: its launches, if any, are
  /// no whole product.
  void end_product(ThreadState& thread, bool failed) noexcept {
    if (failed && !thread.product.first())
      map_.retag(thread.first_of_product, ProductTag::first_of(ProductTable::kFull));
    if (!failed && !thread.product.first()) thread.flop_asked += thread.asked.product().flop();
    thread.product = {};
  }
  /// [launching thread] That node is `node`: each launch of its graph, or of a copy of it, computes the product again.
  void launch_captured_as(const ThreadState& thread, std::uint64_t node) noexcept {
    if (thread.in_launch_call && thread.launch_product) graph_products_.set(node, thread.launch_product);
  }
  /// [launching thread] A launch on a thread without a state.
  void launch_anonymous(CorrelationId id, std::uint32_t context) noexcept;

  /// [mfu-drain] Launch calls so far, over all threads.
  [[nodiscard]] std::uint64_t launches_seen() const noexcept;
  /// [any thread] The thread that launched last; nullptr: none has. Another one may have its state later.
  [[nodiscard]] const ThreadState* last_launcher() const noexcept;
  /// [mfu-drain] The newest correlation id of a launch; false when there was none yet.
  [[nodiscard]] bool newest_correlation(CorrelationId& id) const noexcept;
  /// [mfu-drain] How many ids before `newest` the first launch of all may lie; unknown of threads without a state.
  [[nodiscard]] std::uint32_t ids_since_first(CorrelationId newest) const noexcept;

  [[nodiscard]] CorrelationMap& map() noexcept { return map_; }
  [[nodiscard]] const CorrelationMap& map() const noexcept { return map_; }
  [[nodiscard]] InstanceTable& instances() noexcept { return instances_; }
  [[nodiscard]] StreamLanes& lanes() noexcept { return lanes_; }
  [[nodiscard]] ProductTable& products() noexcept { return products_; }
  [[nodiscard]] const ProductTable& products() const noexcept { return products_; }
  [[nodiscard]] GraphProducts& graph_products() noexcept { return graph_products_; }
  [[nodiscard]] GraphContents& graph_contents() noexcept { return graph_contents_; }
  /// [launching thread] hot. The number of the stream that a call names; see StreamLanes::lane_of.
  [[nodiscard]] LaunchPlace place_on(ThreadState& thread, std::uint32_t context, std::uint64_t stream,
                                     bool per_thread) noexcept {
    return LaunchPlace::on(
        lanes_.lane_of(thread.lane, context, stream, per_thread, thread.serial.load(std::memory_order_relaxed)));
  }
  /// [calling thread] A stream records an event, or waits for one.
  void event_call(const ThreadState& thread, CorrelationId id, bool awaited, LaunchPlace place,
                  std::uint32_t event) noexcept {
    map_.insert_event(id, awaited, place.by(thread.index), event);
  }

 private:
  /// The value of ThreadState::product until the product has a number.
  static constexpr ProductId kAsked{ProductTable::kCapacity + 1};

  /// [launching thread] hot. Of the library call that the thread is inside of.
  [[nodiscard]] ProductTag product_of(ThreadState& thread) noexcept {
    if (thread.product.product() == kAsked)
      thread.product = ProductTag::first_of(thread.recent_products.number_of(thread.asked, products_));
    return thread.product;
  }

  struct ProcessRange {
    std::atomic<std::uint32_t> generation{0};  ///< odd while open
    std::atomic<std::uint32_t> instance{0};
    std::uint32_t opener = 0;
    std::uint32_t order = 0;
  };

  void note_owner(const ThreadState& thread, std::uint32_t context) noexcept {
    std::atomic<std::uint32_t>& last = last_owner_[context & (kContexts - 1)];
    if (last.load(std::memory_order_relaxed) != thread.index) last.store(thread.index, std::memory_order_relaxed);
  }
  [[nodiscard]] LaunchOwner ambient_owner(std::uint32_t context) const noexcept;
  [[nodiscard]] InstanceId parent_elsewhere(const ThreadState& thread) const noexcept;
  std::uint32_t find_last_owner(std::uint32_t context) const noexcept;
  void close_opened(ThreadState& thread, InstanceId instance, Ticks now) noexcept {
    instances_.close(instance, now, thread.context.load(std::memory_order_relaxed));
    publish(thread, thread.stack.innermost());
  }
  void publish(ThreadState& thread, InstanceId innermost) noexcept {
    thread.innermost.store(raw(innermost), std::memory_order_release);
    if (innermost != InstanceId::kNone && !thread.owns) add_owner(thread);
  }
  void add_owner(ThreadState& thread) noexcept;
  void retract(ThreadState& thread, Counter why) noexcept;
  void pick_process_innermost() noexcept;

  [[nodiscard]] std::span<const ThreadState> states() const noexcept {
    return {threads_.data(), threads_used_.load(std::memory_order_acquire)};
  }
  static constexpr std::uint32_t kContexts = 256;

  Counters& counters_;
  CorrelationMap map_;
  StreamLanes lanes_;
  ProductTable products_;
  GraphProducts graph_products_;
  GraphContents graph_contents_;
  InstanceTable instances_;
  ZeroedArray<ThreadState> threads_{kMaxThreads};
  std::array<std::atomic<std::uint32_t>, kContexts> last_owner_{};  ///< by context: 1 + index of the thread state
  /// Thread states that ever had a region open. nullptr: the place is taken, and not written yet.
  std::array<std::atomic<const ThreadState*>, kMaxThreads> owners_{};
  std::atomic<std::uint32_t> owners_used_{0};
  std::atomic<std::uint32_t> threads_used_{0};  ///< states at or above this index were never used
  std::atomic<std::uint32_t> next_serial_{1};
  std::atomic<std::uint64_t> anonymous_launches_{0};
  std::atomic<std::uint32_t> anonymous_correlation_{0};
  std::atomic<std::uint32_t> process_innermost_{0};  ///< the start/end region opened last that is still open
  std::atomic<std::uint32_t> process_open_{0};
  std::atomic<std::uint32_t> process_order_{0};
  std::atomic_flag process_lock_ = ATOMIC_FLAG_INIT;  ///< start/end of regions only: rare, a few dozen instructions
  InstanceTable::Share process_share_;                ///< of the table of instances, under process_lock_
  std::array<ProcessRange, kMaxProcessRanges> process_ranges_{};
};

}  // namespace mfu

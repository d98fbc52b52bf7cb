// Shared by the parts of the engine: the process's state, and the steps that streams, work and graphs are made of.
#pragma once

#include <deque>
#include <iterator>
#include <set>

#include "tools/simgpu/driver/engine.h"

namespace mfu::sim {

constexpr std::uint32_t kDefaultStreamId = 7;
constexpr std::uint32_t kGraphLaneStreamId = 8;  // lanes of a graph that run beside the launch stream: 8-13
constexpr std::uint32_t kGraphLaneStreams = 6;

// CUpti_CallbackIdResource.
constexpr std::uint32_t kContextCreated = 1, kContextDestroyStarting = 2, kStreamCreated = 3,
                        kStreamDestroyStarting = 4, kCuInitFinished = 5, kModuleLoaded = 6, kModuleUnloadStarting = 7,
                        kGraphCreated = 9, kGraphDestroyStarting = 10, kGraphCloned = 11, kGraphNodeCreateStarting = 12,
                        kGraphNodeCreated = 13, kGraphNodeDestroyStarting = 14, kGraphNodeDependencyCreated = 15,
                        kGraphExecCreateStarting = 17, kGraphExecCreated = 18, kGraphExecDestroyStarting = 19,
                        kGraphNodeCloned = 20;

/// Everything that lives as long as the process. Leaked on purpose: threads may still launch during exit.
struct Process {
  std::atomic<const Tool*> tool{nullptr};
  Wanted wanted{};
  CallbackCost costs[kCostCount];
  std::atomic<std::uint32_t> correlation{0};
  std::atomic<std::uint64_t> launches{0};
  std::atomic<bool> ready{false};
  std::atomic<bool> forked{false};
  std::atomic<std::int64_t> started_ns{0};
  std::mutex init_mutex;
  bool injected = false;  ///< the injected library is loaded for good
  CUresult init_result = CUDA_SUCCESS;
  std::mutex mutex;  ///< guards what follows
  std::deque<Device> devices;
  std::vector<Context*> contexts;
  std::deque<Context*> dead_contexts;  ///< the latest that were destroyed, the oldest first
  std::set<std::string> names;
  std::uint32_t next_context = 1, next_module = 1;
  std::atomic<std::uint32_t> next_graph{1};
  std::atomic<std::uint64_t> next_node{1}, next_capture{1};
};
Process& process();

/// The contexts of a thread. Trivially destructible: libraries call the driver from destructors that run after those of
/// the main thread's own objects.
class ContextStack {
 public:
  [[nodiscard]] bool empty() const noexcept { return depth_ == 0; }
  [[nodiscard]] Context* back() const noexcept { return contexts_[depth_ - 1]; }
  void pop_back() noexcept { --depth_; }
  [[nodiscard]] bool push_back(Context* context) noexcept {
    if (depth_ == std::size(contexts_)) return false;
    contexts_[depth_++] = context;
    return true;
  }

 private:
  Context* contexts_[64];
  std::size_t depth_;
};

struct ThreadContexts {
  ContextStack stack;
  std::unordered_map<std::uint32_t, Stream*>*
      per_thread_streams;  ///< by their contexts' uids; never freed, for the same reason
};
ThreadContexts& thread_contexts();

template <typename T>
bool alive(const T* object, Magic magic) noexcept {
  return object != nullptr && object->magic == magic;
}

void resource_callback(const ResourceEvent& event);
void synchronize_callback(std::uint32_t cbid, Context* context, CUstream stream);

// Streams --------------------------------------------------------------------------------------------------------
/// When everything that new work on the stream has to wait for is done. The context's mutex is held.
std::int64_t ready_at(const Stream& stream);
/// Earliest start of new work on the stream. The context's mutex is held.
std::int64_t earliest_start(const Stream& stream, std::int64_t now);
/// Notes a launch in the stream's queue; returns when there is room again, 0 if there is. The mutex is held.
std::int64_t enqueue(Stream& stream, std::int64_t end_ns);
void init_stream(Stream& stream, Context& context, std::uint32_t id, unsigned flags, int priority);

// Work -----------------------------------------------------------------------------------------------------------
std::int64_t kernel_duration(const KernelCost& cost, const DeviceSpec& device, const LaunchShape& shape);
std::int64_t transfer_duration(const Activity& work, const DeviceSpec& device);
/// The grid and the blocks are of a size that a device takes.
bool valid(const LaunchShape& shape);
Activity kernel_work(const Function& function, const LaunchShape& shape, const LaunchOptions& options);
void place(Activity& work, const Stream& stream, std::int64_t begin_ns, std::int64_t duration_ns);
/// Writes the activity to the truth log, and to the tool that wants it.
void emit(Activity& activity, bool to_tool);
/// Option: the record is complete, and with the client, before the API call returns.
void finish_before_exit(std::int64_t end_ns);
/// CPU time of a launch by itself, and by being traced; `traced_nodes` of a graph leave records.
void burn_launch_cost(std::size_t traced_nodes = 0) noexcept;
CUresult scripted_launch_failure();

// Graphs ---------------------------------------------------------------------------------------------------------
/// Puts a node behind everything that the capturing stream holds so far.
void capture_node(Stream& stream, Node prototype);
bool capturing(const Stream& stream) noexcept;
ResourceEvent graph_event(std::uint32_t cbid, const Graph& graph);
/// Adds a node to a graph that the program builds, with the callbacks of that.
Node& create_node(Graph& graph, Node prototype);
/// Appends copies of the nodes of `from` to `to`; the roots depend on `roots_after`. Child graphs are put in flat.
/// Returns the nodes that nothing in `from` depends on.
std::vector<Node*> copy_nodes(Graph& to, const Graph& from, const std::vector<Node*>& roots_after, bool flatten);

}  // namespace mfu::sim

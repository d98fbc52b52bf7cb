// The simulated driver behind the exported cu* functions: devices, contexts, streams, events, modules and graphs on a
// timeline that is worked out at the moment of the launch. Nothing here runs in the background: an activity is done
// when the clock has passed its end.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/simgpu/interface.h"

namespace mfu::sim {

struct Context;
struct Graph;
struct Module;

/// First member of every object a handle points to, so that a stale or foreign handle gets CUDA_ERROR_INVALID_HANDLE.
enum class Magic : std::uint32_t {
  kDead = 0,
  kContext = 0x43545831,
  kStream = 0x53545231,
  kEvent = 0x45564531,
  kModule = 0x4D4F4431,
  kFunction = 0x46554E31,
  kGraph = 0x47524131,
  kNode = 0x4E4F4431,
  kExec = 0x45584531,
};

/// The facts that a `// simgpu:` line gives of a kernel.
struct KernelCost {
  double flop_per_block = 0, bytes_per_block = 0, efficiency = 1;
  int flop_param = -1, bytes_param = -1;  ///< index of a 32-bit kernel parameter that multiplies the count; -1: none
  int ns_param = -1;                      ///< index of a 32-bit parameter that is the duration [ns]; -1: none
  int until_param =
      -1;  ///< index of a 64-bit parameter: the kernel ends no earlier than this [CLOCK_REALTIME ns]; -1: none
  std::int64_t fixed_ns = 0;
};

struct Function {
  Magic magic = Magic::kFunction;
  const char* name = nullptr;  ///< interned
  KernelCost cost;
  Module* module = nullptr;
};

struct Module {
  Magic magic = Magic::kModule;
  std::uint32_t id = 0;
  bool any_name = false;  ///< an image that is no PTX text: every kernel name is taken
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Function>> functions;
  std::unordered_map<std::string, CUdeviceptr> globals;
};

/// One node of a graph, and what it does when the graph is launched.
struct Node {
  Magic magic = Magic::kNode;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  Activity work;  ///< template: kind, name, grid, bytes; times, stream and ids are filled at the launch
  std::int64_t duration_ns = 0;
  CUhostFn host = nullptr;
  void* host_data = nullptr;
  Graph* child = nullptr;           ///< child graph node
  const Node* made_from = nullptr;  ///< of a graph that runs: the node of the graph that it was made from
  std::vector<Node*> dependencies;
  std::uint32_t lane = 0;  ///< 0: the launch stream; others run beside it
};

struct Graph {
  Magic magic = Magic::kGraph;
  std::uint32_t id = 0;
  Context* context = nullptr;
  std::vector<std::unique_ptr<Node>> nodes;  ///< every node after those it depends on
};

struct GraphExec {
  Magic magic = Magic::kExec;
  std::uint32_t id = 0;
  Graph graph;                     ///< the clone that runs
  bool instrumented = false;       ///< a tool with any activity kind was attached when it was instantiated
  bool whole = false;              ///< whole-graph records were on when it was instantiated
  std::uint32_t kernels_off = 0;   ///< Wanted::kernels_off when it was instantiated
  std::int64_t busy_until_ns = 0;  ///< an executable graph runs once at a time
  std::uint32_t next_lane = 0;
};

/// One stream capture: the origin stream and every stream that joined it through an event.
struct Capture {
  Graph* graph = nullptr;
  struct Stream* origin = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  std::uint64_t id = 0;
};

struct Stream {
  Magic magic = Magic::kStream;
  Context* context = nullptr;
  std::uint32_t id = 0;
  bool blocking = true;  ///< waits for, and is waited for by, the legacy stream
  int priority = 0;
  unsigned flags = 0;
  std::int64_t tail_ns = 0;        ///< when everything enqueued so far is done
  std::int64_t last_begin_ns = 0;  ///< of its newest kernel
  std::shared_ptr<Capture> capture;
  std::vector<Node*> frontier;          ///< of the capture: the nodes that the next one depends on
  std::vector<std::int64_t> in_flight;  ///< ends of the last queue_depth launches, as a ring
  std::size_t in_flight_at = 0;
};

struct Event {
  Magic magic = Magic::kEvent;
  Context* context = nullptr;
  std::atomic<bool> recorded{false};
  std::atomic<std::int64_t> time_ns{0};
  std::shared_ptr<Capture> capture;
  std::vector<Node*> frontier;
};

struct Device {
  int ordinal = 0;
  const DeviceSpec* spec = nullptr;
  Context* primary = nullptr;
  int primary_uses = 0;
  std::atomic<std::uint64_t> allocated{0};
};

struct Context {
  Magic magic = Magic::kContext;
  std::uint32_t uid = 0;
  Device* device = nullptr;
  unsigned flags = 0;
  std::mutex mutex;  ///< guards every stream of the context
  Stream legacy;
  std::vector<Stream*> streams;       ///< created ones and per-thread ones
  std::uint32_t next_stream_id = 14;  ///< 7 is the default stream; 6-13 are the driver's own
};

/// How a launch call differs from a plain one.
struct LaunchOptions {
  bool cooperative = false;
  bool programmatic = false;  ///< may start before its predecessor on the stream has ended
};

struct LaunchShape {
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t shared_bytes;
  void** params = nullptr;  ///< the kernel's arguments; only read where its cost names one
};

/// The id and name of the API call in progress on this thread, for the truth log and for callbacks.
struct CallInfo {
  std::uint32_t correlation = 0;
  const char* api = "";
  bool launch = false;    ///< set by the engine: the call puts work on a stream
  bool captured = false;  ///< set by the engine: into a graph instead
};
CallInfo& current_call() noexcept;

// State of the process -------------------------------------------------------------------------------------------
bool driver_ready() noexcept;   ///< cuInit has finished in this process
bool driver_usable() noexcept;  ///< the same, and this is not a child forked afterwards
CUresult initialise(unsigned flags);
Device* device_at(int ordinal) noexcept;
int device_count() noexcept;
const Driver* driver_interface() noexcept;
Wanted& wanted() noexcept;
const Tool* tool() noexcept;
ThreadState& thread_state() noexcept;
std::int64_t now_ns() noexcept;  ///< CLOCK_REALTIME with the scripted jump
std::uint32_t next_correlation() noexcept;
const char* intern(std::string_view text);
void sleep_until(std::int64_t t_ns);

// Contexts -------------------------------------------------------------------------------------------------------
Context* current_context() noexcept;
CUresult set_current(Context* context);
CUresult create_context(Context** out, unsigned flags, int ordinal);
CUresult retain_primary(Context** out, int ordinal);
CUresult synchronize_context(Context* context);

// Streams and events ---------------------------------------------------------------------------------------------
CUresult resolve_stream(CUstream handle, bool per_thread, Stream** out);
CUresult create_stream(CUstream* out, unsigned flags, int priority);
CUresult synchronize_stream(Stream& stream);
[[gnu::weak]] CUresult host_function(Stream& stream, CUhostFn function, void* data);  ///< where the tests add it
std::int64_t start_of_next(Stream& stream);  ///< when a kernel that is launched now would begin

// Modules --------------------------------------------------------------------------------------------------------
CUresult load_module(Module** out, const void* image);
CUresult find_function(Function** out, Module* module, const char* name);
Function* function_of(const void* handle) noexcept;

// Work -----------------------------------------------------------------------------------------------------------
CUresult launch_kernel(Stream& stream, Function& function, const LaunchShape& shape, const LaunchOptions& options);
/// Enqueues a copy or a set. `wait`: the synchronous variants.
CUresult launch_transfer(Stream& stream, Activity work, bool wait);
Activity make_copy(std::uint64_t bytes, std::uint8_t copy_kind);
Activity make_set(std::uint64_t bytes, std::uint32_t value);

// Graphs ---------------------------------------------------------------------------------------------------------
CUresult begin_capture(Stream& stream);
CUresult end_capture(Stream& stream, Graph** out);
CUresult create_graph(Graph** out);
CUresult destroy_graph(Graph* graph);
CUresult instantiate(GraphExec** out, Graph& graph);
CUresult destroy_exec(GraphExec* exec);
CUresult launch_graph(GraphExec& exec, Stream& stream);

// Truth: in builds with tests (tests/simgpu/truth.cpp), and null in others ---------------------------------------
[[gnu::weak]] std::uint64_t truth_activity(const Activity& activity, Fate fate);
[[gnu::weak]] void truth_launch(const char* api, std::uint32_t correlation, CUresult result, bool capturing);
[[gnu::weak]] void truth_fate(std::uint64_t index, Fate fate);
[[gnu::weak]] void truth_flush();

}  // namespace mfu::sim

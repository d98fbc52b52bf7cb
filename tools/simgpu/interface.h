// The functions that the simulated libcuda offers to the other simulated libraries of the process (libcupti,
// libcudart). One exported function, simgpu_driver(), leads to all of it; both sides are built from the same sources.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>

#include "tools/simgpu/settings.h"

#define SIM_EXPORT extern "C" [[gnu::visibility("default")]]

namespace mfu::sim {

inline constexpr std::uint32_t kInterfaceVersion = 4;
inline constexpr std::uint32_t kMaxCallbackId = 1024;  ///< above every driver and runtime callback id of CUDA 13.5
inline constexpr std::uint32_t kMaxResourceId = 32;

enum class ActivityKind : std::uint8_t { kKernel, kMemcpy, kMemset, kGraph };
enum class ApiDomain : std::uint8_t { kDriver = 1, kRuntime = 2 };  ///< values of CUpti_CallbackDomain

/// One device activity. Times are known as soon as it is enqueued: the GPU is a timeline that is worked out, not run.
struct Activity {
  ActivityKind kind = ActivityKind::kKernel;
  std::uint8_t launch_type = 0;             ///< CUpti_ActivityLaunchType: 0 regular, 1 cooperative
  std::uint8_t copy_kind = 0;               ///< CUpti_ActivityMemcpyKind
  std::uint8_t src_kind = 0, dst_kind = 0;  ///< CUpti_ActivityMemoryKind
  bool instrumented = true;                 ///< false: a node of a graph that was instantiated before the tool attached
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint64_t bytes = 0;
  std::uint32_t device = 0, context = 0, stream = 0, correlation = 0;
  std::uint32_t graph_id = 0;
  std::uint64_t graph_node_id = 0;
  const char* name = nullptr;  ///< lives as long as the process
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  std::uint32_t shared_bytes = 0;
  std::uint32_t value = 0;         ///< memset only
  std::uint64_t truth = kNoTruth;  ///< its line in the truth log
  static constexpr std::uint64_t kNoTruth = ~0ull;

  /// A node of a graph that was instantiated before the tool attached shows up as a kernel, of any kind.
  [[nodiscard]] ActivityKind seen_as() const noexcept { return instrumented ? kind : ActivityKind::kKernel; }
};

/// One call of an API function, entering or leaving.
struct ApiEvent {
  ApiDomain domain;
  std::uint32_t cbid;
  bool exit;
  const char* name;
  const void* params;
  void* result;  ///< CUresult* or cudaError_t*; valid on exit
  const char* symbol;
  CUcontext context;
  std::uint32_t context_uid;
  std::uint32_t correlation;
  std::uint64_t* correlation_data;  ///< the same word on enter and exit
};

/// One finished API call, for the tool's API records.
struct ApiRecord {
  ApiDomain domain;
  std::uint32_t cbid;
  std::int64_t begin_ns, end_ns;
  std::uint32_t correlation;
  std::uint32_t result;
};

/// Arguments of a resource callback; unused ones are null. Graph members follow CUpti_GraphData.
struct ResourceEvent {
  std::uint32_t cbid;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  bool is_graph = false;
  CUgraph graph = nullptr, original_graph = nullptr;
  CUgraphNode node = nullptr, original_node = nullptr, dependency = nullptr;
  CUgraphNodeType node_type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphExec graph_exec = nullptr;
  bool is_module = false;
  std::uint32_t module_id = 0;
  const char* image = nullptr;
  std::uint64_t image_bytes = 0;
};

/// The functions of an attached tool library. Every function is called on the thread of the API call.
struct Tool {
  void (*api)(const ApiEvent&);
  void (*api_record)(const ApiRecord&);
  void (*activity)(const Activity&);
  void (*resource)(const ResourceEvent&);
  void (*synchronize)(std::uint32_t cbid, CUcontext context, CUstream stream);
  void (*deliver_now)();  ///< hands over every record of the calling thread's launches (kernel done before API exit)
};

inline constexpr std::uint8_t kWantCallback = 1;
inline constexpr std::uint8_t kWantRecord = 2;

/// The kinds of activity that somebody wants records of.
struct Kinds {
  std::atomic<bool> on[4]{};  ///< by ActivityKind
  [[nodiscard]] bool wants(ActivityKind kind) const noexcept {
    return on[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed);
  }
  /// Returns what was there before.
  bool set(ActivityKind kind, bool value) noexcept { return on[static_cast<std::size_t>(kind)].exchange(value); }
};

/// The tool's requests. Written by libcupti, read on every call by libcuda.
struct Wanted {
  std::atomic<std::uint8_t> driver[kMaxCallbackId];
  std::atomic<std::uint8_t> runtime[kMaxCallbackId];
  std::atomic<std::uint8_t> resource[kMaxResourceId];
  std::atomic<std::uint8_t> synchronize[8];
  Kinds kinds;
  /// Graphs are traced as a whole: their nodes leave no records. Stays once it is on (header of CUPTI 13.5: "enabling
  /// GRAPH_TRACE selects graph-level tracing for the CUPTI session").
  std::atomic<bool> graph_level;
  /// How often kernel records were switched off: nodes of a graph that was instantiated before leave none afterwards.
  std::atomic<std::uint32_t> kernels_off;
  [[nodiscard]] bool any_activity() const noexcept {
    return std::any_of(std::begin(kinds.on), std::end(kinds.on), [](const auto& on) { return on.load(); });
  }
};

/// State of the calling thread: by it forbidden calls are noticed, and nested calls share an id.
struct ThreadState {
  std::uint32_t api_callback = 0;         ///< depth inside driver or runtime callbacks of the client
  std::uint32_t resource_callback = 0;    ///< depth inside resource, synchronize and state callbacks
  std::uint32_t buffer_callback = 0;      ///< depth inside buffer requested or completed callbacks
  std::uint32_t injection = 0;            ///< depth inside InitializeInjection
  std::uint32_t runtime_correlation = 0;  ///< id of the runtime call that encloses this one; 0: none
  [[nodiscard]] bool in_callback() const noexcept { return (api_callback | resource_callback | buffer_callback) != 0; }
};

/// The fate of an activity's record.
enum class Fate : std::uint8_t {
  kNone,
  kUnwanted,
  kDelivered,
  kForeign,
  kDropped,
  kZeroed,
  kNegative,
  kTruncated,
  kIncomplete
};

/// Cost of the client's callbacks, summed by libcupti and written with the truth.
struct CallbackCost {
  std::atomic<std::uint64_t> count{0}, total_ns{0}, max_ns{0};
};
enum CallbackCostIndex { kCostApi, kCostResource, kCostRequested, kCostCompleted, kCostCount };

struct Driver {
  std::uint32_t version;  ///< kInterfaceVersion
  const Settings* settings;
  Wanted* wanted;
  std::atomic<const Tool*>* tool;
  CallbackCost* costs;  ///< kCostCount entries
  ThreadState* (*thread)();
  std::int64_t (*now_ns)();  ///< CLOCK_REALTIME, plus the scripted clock jump [ns]
  bool (*initialised)();
  bool (*forked)();  ///< true in a child that was forked after initialisation
  std::uint32_t (*next_correlation)();
  CUcontext (*current_context)(std::uint32_t* uid, std::uint32_t* device);
  bool (*context_info)(CUcontext, std::uint32_t* uid, std::uint32_t* device);
  bool (*stream_id)(CUcontext, CUstream, bool per_thread, std::uint32_t* id);
  std::int64_t (*start_of_next)(CUstream);  ///< when a kernel launched now would begin [ns]; current context's streams
  bool (*graph_id)(CUgraph, std::uint32_t* id);
  bool (*graph_exec_id)(CUgraphExec, std::uint32_t* id);
  bool (*graph_node_id)(CUgraphNode, std::uint64_t* id);
  const char* (*function_name)(const void* function);  ///< nullptr if the handle is unknown
  void (*truth_fate)(std::uint64_t truth, Fate fate);  ///< nullptr, as the next: in builds without tests
  void (*truth_flush)();
};

}  // namespace mfu::sim

extern "C" const mfu::sim::Driver* simgpu_driver();

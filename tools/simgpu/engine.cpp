#include "tools/simgpu/engine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace mfu::sim {
namespace {

constexpr double kPcieBytesPerSecond = 50e9;     // PCIe 5 x16 as it is measured, both directions alike
constexpr std::int64_t kTransferSetupNs = 1200;  // what a tiny copy or set takes
constexpr std::uint32_t kDefaultStreamId = 7;
constexpr std::uint32_t kGraphLaneStreamId = 8;  // lanes of a graph that run beside the launch stream: 8-13
constexpr std::uint32_t kGraphLaneStreams = 6;

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
  CUresult init_result = CUDA_SUCCESS;
  std::mutex mutex;  ///< guards what follows
  std::deque<Device> devices;
  std::vector<Context*> contexts;
  std::set<std::string> names;
  std::uint32_t next_context = 1, next_module = 1;
  std::atomic<std::uint32_t> next_graph{1};
  std::atomic<std::uint64_t> next_node{1}, next_capture{1};
};

Process& process() {
  static Process* const instance = [] {
    auto* p = new Process;
    p->correlation = settings().correlation_start;
    return p;
  }();
  return *instance;
}

std::int64_t realtime_ns() noexcept {
  timespec ts{};
  clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

std::int64_t clock_offset_ns(std::int64_t now) noexcept {
  const Settings& s = settings();
  if (s.clock_jump_s == 0) return 0;
  const std::int64_t started = process().started_ns.load(std::memory_order_relaxed);
  if (started == 0 || static_cast<double>(now - started) * 1e-9 < s.clock_jump_after_s) return 0;
  return static_cast<std::int64_t>(s.clock_jump_s * 1e9);
}

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
  std::unordered_map<Context*, Stream*>* per_thread_streams;  ///< never freed, for the same reason
};

ThreadContexts& thread_contexts() {
  static thread_local ThreadContexts contexts{};
  return contexts;
}

template <typename T>
bool alive(const T* object, Magic magic) noexcept {
  return object != nullptr && object->magic == magic;
}

void resource_callback(const ResourceEvent& event) {
  const Tool* t = tool();
  if (t != nullptr && wanted().resource[event.cbid].load(std::memory_order_relaxed) != 0) t->resource(event);
}

void synchronize_callback(std::uint32_t cbid, Context* context, CUstream stream) {
  const Tool* t = tool();
  if (t != nullptr && wanted().synchronize[cbid].load(std::memory_order_relaxed) != 0) {
    t->synchronize(cbid, reinterpret_cast<CUcontext>(context), stream);
  }
}

// CUpti_CallbackIdResource.
constexpr std::uint32_t kContextCreated = 1, kContextDestroyStarting = 2, kStreamCreated = 3,
                        kStreamDestroyStarting = 4, kCuInitFinished = 5, kModuleLoaded = 6, kModuleUnloadStarting = 7,
                        kGraphCreated = 9, kGraphDestroyStarting = 10, kGraphCloned = 11, kGraphNodeCreateStarting = 12,
                        kGraphNodeCreated = 13, kGraphNodeDestroyStarting = 14, kGraphNodeDependencyCreated = 15,
                        kGraphExecCreateStarting = 17, kGraphExecCreated = 18, kGraphExecDestroyStarting = 19,
                        kGraphNodeCloned = 20;

void run_injection_library() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0' || std::strcmp(path, "none") == 0) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;  // the real driver says nothing either
  auto* entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (entry == nullptr) return;
  ++thread_state().injection;
  entry();
  --thread_state().injection;
}

Node& append(Graph& graph, Node prototype) {
  prototype.id = process().next_node.fetch_add(1);
  prototype.graph = &graph;
  graph.nodes.push_back(std::make_unique<Node>(std::move(prototype)));
  return *graph.nodes.back();
}

ResourceEvent graph_event(std::uint32_t cbid, const Graph& graph) {
  ResourceEvent event{.cbid = cbid};
  event.context = reinterpret_cast<CUcontext>(graph.context);
  event.is_graph = true;
  event.graph = reinterpret_cast<CUgraph>(const_cast<Graph*>(&graph));
  return event;
}

/// Adds a node to a graph that the program builds, with the callbacks of that.
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

/// Puts a node behind everything that the capturing stream holds so far.
void capture_node(Stream& stream, Node prototype) {
  prototype.dependencies = stream.frontier;
  Node& node = create_node(*stream.capture->graph, std::move(prototype));
  stream.frontier = {&node};
}

bool capturing(const Stream& stream) noexcept {
  return stream.capture != nullptr && stream.capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/// When everything that new work on the stream has to wait for is done. The context's mutex is held.
std::int64_t ready_at(const Stream& stream) {
  const Context& context = *stream.context;
  std::int64_t ready = stream.tail_ns;
  if (&stream == &context.legacy) {
    for (const Stream* other : context.streams) {
      if (other->blocking) ready = std::max(ready, other->tail_ns);
    }
  } else if (stream.blocking) {
    ready = std::max(ready, context.legacy.tail_ns);
  }
  return ready;
}

/// Earliest start of new work on the stream. The context's mutex is held.
std::int64_t earliest_start(const Stream& stream, std::int64_t now) {
  return std::max(now + settings().launch_latency_ns, ready_at(stream) + settings().gap_ns);
}

/// Notes a launch in the stream's queue; returns when there is room again, 0 if there is. The mutex is held.
std::int64_t enqueue(Stream& stream, std::int64_t end_ns) {
  const std::uint32_t depth = settings().queue_depth;
  if (depth == 0) return 0;
  if (stream.in_flight.size() < depth) {
    stream.in_flight.push_back(end_ns);
    return 0;
  }
  const std::int64_t oldest = stream.in_flight[stream.in_flight_at];
  stream.in_flight[stream.in_flight_at] = end_ns;
  stream.in_flight_at = (stream.in_flight_at + 1) % depth;
  return oldest;
}

std::int64_t scaled(double ns) { return std::max<std::int64_t>(1, std::llround(ns * settings().time_scale)); }

std::int64_t kernel_duration(const KernelCost& cost, const DeviceSpec& device, const LaunchShape& shape) {
  if (cost.fixed_ns > 0) return scaled(static_cast<double>(cost.fixed_ns));
  if (cost.ns_param >= 0 && shape.params != nullptr) {
    std::uint32_t ns = 0;
    std::memcpy(&ns, shape.params[cost.ns_param], sizeof ns);
    return scaled(ns);
  }
  const auto factor = [&](int index) {
    std::uint32_t value = 1;
    if (index >= 0 && shape.params != nullptr) std::memcpy(&value, shape.params[index], sizeof value);
    return static_cast<double>(value);
  };
  const double flop_per_block = cost.flop_per_block * factor(cost.flop_param);
  const double bytes_per_block = cost.bytes_per_block * factor(cost.bytes_param);
  const double blocks = static_cast<double>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  if (cost.flop_per_block <= 0 && cost.bytes_per_block <= 0) {
    const double threads = blocks * shape.block[0] * shape.block[1] * shape.block[2];
    const double by_threads = threads * settings().bytes_per_thread / device.bytes_per_s * 1e9;
    return scaled(std::max(static_cast<double>(settings().default_kernel_ns), by_threads));
  }
  // One block runs on one SM: a small grid cannot use the whole device.
  const double share = std::min(1.0, blocks / device.sm_count);
  const double by_flop = blocks * flop_per_block / (device.flop_per_s * cost.efficiency * share);
  const double by_bytes = blocks * bytes_per_block / (device.bytes_per_s * cost.efficiency);
  return scaled(std::max(1500.0, std::max(by_flop, by_bytes) * 1e9));
}

std::int64_t transfer_duration(const Activity& work, const DeviceSpec& device) {
  const bool on_device = work.kind == ActivityKind::kMemset || work.copy_kind == 8;
  const double rate = on_device ? device.bytes_per_s / 2 : kPcieBytesPerSecond;
  return scaled(static_cast<double>(kTransferSetupNs) + static_cast<double>(work.bytes) / rate * 1e9);
}

bool wanted_kind(ActivityKind kind) noexcept {
  const Wanted& w = wanted();
  switch (kind) {
    case ActivityKind::kKernel:
      return w.kernels.load(std::memory_order_relaxed);
    case ActivityKind::kMemcpy:
      return w.memcpys.load(std::memory_order_relaxed);
    case ActivityKind::kMemset:
      return w.memsets.load(std::memory_order_relaxed);
    case ActivityKind::kGraph:
      return w.graphs.load(std::memory_order_relaxed);
  }
  return false;
}

void emit(Activity& activity, bool to_tool) {
  const Tool* t = tool();
  // A memcpy or memset node of a graph that CUPTI did not see being instantiated shows up as a kernel.
  const ActivityKind seen_as = activity.instrumented ? activity.kind : ActivityKind::kKernel;
  const bool handed_over = t != nullptr && to_tool && wanted_kind(seen_as);
  activity.truth = truth_activity(activity, handed_over ? Fate::kNone : Fate::kUnwanted);
  if (handed_over) t->activity(activity);
}

/// Option: the record is complete, and with the client, before the API call returns.
void finish_before_exit(std::int64_t end_ns) {
  if (!settings().kernel_before_exit) return;
  sleep_until(end_ns);
  if (const Tool* t = tool(); t != nullptr) t->deliver_now();
}

void burn_launch_cost() {
  const std::int64_t cost = settings().launch_cost_ns;
  if (cost == 0) return;
  const std::int64_t until = realtime_ns() + cost;
  while (realtime_ns() < until) {
  }
}

CUresult scripted_launch_failure() {
  const Settings& s = settings();
  if (s.fail_launch_rate <= 0) return CUDA_SUCCESS;
  const std::uint64_t n = process().launches.fetch_add(1, std::memory_order_relaxed);
  return hit(s.fail_launch_rate, n, 1) ? static_cast<CUresult>(s.fail_launch_error) : CUDA_SUCCESS;
}

void init_stream(Stream& stream, Context& context, std::uint32_t id, unsigned flags, int priority) {
  stream.context = &context;
  stream.id = id;
  stream.flags = flags;
  stream.priority = priority;
  stream.blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
}

void parse_ptx(Module& module, const char* text) {
  std::unordered_map<std::string, KernelCost> costs;
  std::istringstream lines(text);
  std::string line;
  std::vector<std::string> entries;
  while (std::getline(lines, line)) {
    static constexpr std::string_view kMark = "// simgpu:";
    if (const std::size_t at = line.find(kMark); at != std::string::npos) {
      std::istringstream words(line.substr(at + kMark.size()));
      std::string name, word;
      words >> name;
      KernelCost cost;
      while (words >> word) {
        const std::size_t equals = word.find('=');
        const double value = equals == std::string::npos ? 0 : std::strtod(word.c_str() + equals + 1, nullptr);
        const std::string key = word.substr(0, equals);
        if (key == "flop_per_block") cost.flop_per_block = value;
        if (key == "bytes_per_block") cost.bytes_per_block = value;
        if (key == "flop_param") cost.flop_param = static_cast<int>(value);
        if (key == "bytes_param") cost.bytes_param = static_cast<int>(value);
        if (key == "efficiency") cost.efficiency = value > 0 ? value : 1;
        if (key == "ns") cost.fixed_ns = std::llround(value);
        if (key == "ns_param") cost.ns_param = static_cast<int>(value);
        if (key == "until_param") cost.until_param = static_cast<int>(value);
      }
      costs[name] = cost;
      continue;
    }
    static constexpr std::string_view kEntry = ".entry";
    if (const std::size_t at = line.find(kEntry); at != std::string::npos && line.find("//") > at) {
      const std::size_t begin = line.find_first_not_of(" \t", at + kEntry.size());
      if (begin == std::string::npos) continue;
      entries.push_back(line.substr(begin, line.find_first_of("( \t{", begin) - begin));
    }
  }
  for (const std::string& name : entries) {
    auto function = std::make_unique<Function>();
    function->name = intern(name);
    function->module = &module;
    if (const auto it = costs.find(name); it != costs.end()) function->cost = it->second;
    module.functions.emplace(name, std::move(function));
  }
}

}  // namespace

// State of the process -------------------------------------------------------------------------------------------

CallInfo& current_call() noexcept {
  static thread_local CallInfo call;
  return call;
}

bool driver_ready() noexcept { return process().ready.load(std::memory_order_acquire); }
bool driver_usable() noexcept { return driver_ready() && !process().forked.load(std::memory_order_relaxed); }
Wanted& wanted() noexcept { return process().wanted; }
const Tool* tool() noexcept { return process().tool.load(std::memory_order_acquire); }

ThreadState& thread_state() noexcept {
  static thread_local ThreadState state;
  return state;
}

std::int64_t now_ns() noexcept {
  const std::int64_t now = realtime_ns();
  return now + clock_offset_ns(now);
}

std::uint32_t next_correlation() noexcept {
  std::uint32_t id = 0;
  do {
    id = process().correlation.fetch_add(1, std::memory_order_relaxed) + 1;
  } while (id == 0);  // 0 means "no id" in every record
  return id;
}

const char* intern(std::string_view text) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  return p.names.emplace(text).first->c_str();
}

void sleep_until(std::int64_t t_ns) {
  for (;;) {
    const std::int64_t left = t_ns - now_ns();
    if (left <= 0) return;
    if (left < 60'000) {  // a sleep takes at least that long
      sched_yield();
      continue;
    }
    const std::int64_t nap = left - 50'000;
    const timespec ts{nap / 1'000'000'000, nap % 1'000'000'000};
    nanosleep(&ts, nullptr);
  }
}

CUresult initialise(unsigned flags) {
  Process& p = process();
  if (p.forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (driver_ready()) return p.init_result;
  if (thread_state().injection != 0) {
    rule_broken("cuInit was called inside InitializeInjection");
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  const std::lock_guard lock(p.init_mutex);
  if (driver_ready()) return p.init_result;
  if (settings().devices.empty()) return CUDA_ERROR_NO_DEVICE;
  for (std::size_t i = 0; i < settings().devices.size(); ++i) {
    Device& device = p.devices.emplace_back();
    device.ordinal = static_cast<int>(i);
    device.spec = &settings().devices[i];
  }
  p.started_ns.store(realtime_ns());
  run_injection_library();
  pthread_atfork(nullptr, nullptr, [] { process().forked.store(true); });
  p.ready.store(true, std::memory_order_release);
  resource_callback(ResourceEvent{.cbid = kCuInitFinished});
  return CUDA_SUCCESS;
}

int device_count() noexcept { return static_cast<int>(process().devices.size()); }

Device* device_at(int ordinal) noexcept {
  Process& p = process();
  if (ordinal < 0 || ordinal >= static_cast<int>(p.devices.size())) return nullptr;
  return &p.devices[static_cast<std::size_t>(ordinal)];
}

// Contexts -------------------------------------------------------------------------------------------------------

Context* current_context() noexcept {
  const auto& stack = thread_contexts().stack;
  if (stack.empty()) return nullptr;
  return alive(stack.back(), Magic::kContext) ? stack.back() : nullptr;
}

CUresult set_current(Context* context) {
  if (context != nullptr && !alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = thread_contexts().stack;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr && !stack.push_back(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

CUresult push_context(Context* context) {
  if (!alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  return thread_contexts().stack.push_back(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult pop_context(Context** context) {
  auto& stack = thread_contexts().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult create_context(Context** out, unsigned flags, int ordinal) {
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* context = new Context;
  Process& p = process();
  {
    const std::lock_guard lock(p.mutex);
    context->uid = p.next_context++;
    p.contexts.push_back(context);
  }
  context->device = device;
  context->flags = flags;
  init_stream(context->legacy, *context, kDefaultStreamId, 0, 0);
  *out = context;
  resource_callback(ResourceEvent{.cbid = kContextCreated, .context = reinterpret_cast<CUcontext>(context)});
  return CUDA_SUCCESS;
}

CUresult destroy_context(Context* context) {
  if (!alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  synchronize_context(context);
  resource_callback(ResourceEvent{.cbid = kContextDestroyStarting, .context = reinterpret_cast<CUcontext>(context)});
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  std::erase(p.contexts, context);
  context->magic = Magic::kDead;  // never freed: other threads may hold it as current
  auto& stack = thread_contexts().stack;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult retain_primary(Context** out, int ordinal) {
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  if (device->primary == nullptr) {
    if (const CUresult result = create_context(&device->primary, 0, ordinal); result != CUDA_SUCCESS) return result;
  }
  ++device->primary_uses;
  *out = device->primary;
  return CUDA_SUCCESS;
}

CUresult release_primary(int ordinal, bool reset) {
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary == nullptr) return reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  if (!reset && --device->primary_uses > 0) return CUDA_SUCCESS;
  Context* context = device->primary;
  device->primary = nullptr;
  device->primary_uses = 0;
  return destroy_context(context);
}

CUresult synchronize_context(Context* context) {
  if (!alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  std::int64_t until = 0;
  {
    const std::lock_guard lock(context->mutex);
    until = context->legacy.tail_ns;
    for (const Stream* stream : context->streams) {
      if (capturing(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      until = std::max(until, stream->tail_ns);
    }
  }
  sleep_until(until);
  synchronize_callback(2, context, nullptr);
  return CUDA_SUCCESS;
}

// Streams and events ---------------------------------------------------------------------------------------------

CUresult resolve_stream(CUstream handle, bool per_thread, Stream** out) {
  if (handle == nullptr) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* context = current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle == CU_STREAM_LEGACY) {
      *out = &context->legacy;
      return CUDA_SUCCESS;
    }
    auto*& streams = thread_contexts().per_thread_streams;
    if (streams == nullptr) streams = new std::unordered_map<Context*, Stream*>;
    Stream*& stream = (*streams)[context];
    if (stream == nullptr) {
      stream = new Stream;
      const std::lock_guard lock(context->mutex);
      init_stream(*stream, *context, context->next_stream_id++, 0, 0);
      context->streams.push_back(stream);
    }
    *out = stream;
    return CUDA_SUCCESS;
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!alive(stream, Magic::kStream)) return CUDA_ERROR_INVALID_HANDLE;
  *out = stream;
  return CUDA_SUCCESS;
}

CUresult create_stream(CUstream* out, unsigned flags, int priority) {
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* stream = new Stream;
  {
    const std::lock_guard lock(context->mutex);
    init_stream(*stream, *context, context->next_stream_id++, flags, priority);
    context->streams.push_back(stream);
  }
  *out = reinterpret_cast<CUstream>(stream);
  resource_callback(
      ResourceEvent{.cbid = kStreamCreated, .context = reinterpret_cast<CUcontext>(context), .stream = *out});
  return CUDA_SUCCESS;
}

CUresult destroy_stream(CUstream handle) {
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD || !alive(stream, Magic::kStream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Context* context = stream->context;
  resource_callback(
      ResourceEvent{.cbid = kStreamDestroyStarting, .context = reinterpret_cast<CUcontext>(context), .stream = handle});
  const std::lock_guard lock(context->mutex);
  // Its work goes on: a stream of the same context that nobody sees any more keeps the tail for cuCtxSynchronize.
  context->legacy.tail_ns = std::max(context->legacy.tail_ns, stream->blocking ? stream->tail_ns : 0);
  std::erase(context->streams, stream);
  stream->magic = Magic::kDead;
  return CUDA_SUCCESS;
}

CUresult synchronize_stream(Stream& stream) {
  std::int64_t until = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (capturing(stream)) {
      stream.capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    until = &stream == &stream.context->legacy ? ready_at(stream) : stream.tail_ns;
  }
  sleep_until(until);
  synchronize_callback(1, stream.context, reinterpret_cast<CUstream>(&stream));
  return CUDA_SUCCESS;
}

CUresult query_stream(Stream& stream) {
  const std::lock_guard lock(stream.context->mutex);
  if (capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stream.tail_ns <= now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

std::int64_t start_of_next(Stream& stream) {
  const std::lock_guard lock(stream.context->mutex);
  return earliest_start(stream, now_ns());
}

CUresult record_event(Event& event, Stream& stream) {
  const std::lock_guard lock(stream.context->mutex);
  if (capturing(stream)) {
    event.capture = stream.capture;
    event.frontier = stream.frontier;
    return CUDA_SUCCESS;
  }
  event.capture.reset();
  event.time_ns.store(std::max(stream.tail_ns, now_ns()));
  event.recorded.store(true);
  return CUDA_SUCCESS;
}

CUresult wait_event(Stream& stream, Event& event) {
  const std::lock_guard lock(stream.context->mutex);
  if (event.capture != nullptr && event.capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    if (stream.capture != nullptr && stream.capture != event.capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    stream.capture = event.capture;
    for (Node* node : event.frontier) {
      if (std::find(stream.frontier.begin(), stream.frontier.end(), node) == stream.frontier.end()) {
        stream.frontier.push_back(node);
      }
    }
    return CUDA_SUCCESS;
  }
  if (capturing(stream)) return event.recorded.load() ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_SUCCESS;
  stream.tail_ns = std::max(stream.tail_ns, event.time_ns.load());
  return CUDA_SUCCESS;
}

CUresult synchronize_event(Event& event) {
  if (event.capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  sleep_until(event.time_ns.load());
  return CUDA_SUCCESS;
}

CUresult host_function(Stream& stream, CUhostFn function, void* data) {
  std::int64_t at = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (capturing(stream)) {
      Node node;
      node.type = CU_GRAPH_NODE_TYPE_HOST;
      node.host = function;
      node.host_data = data;
      capture_node(stream, std::move(node));
      return CUDA_SUCCESS;
    }
    at = std::max(now_ns(), ready_at(stream));
    stream.tail_ns = at;
  }
  // The driver runs it on a thread of its own; the stream does not wait for its length here.
  struct Call {
    std::int64_t at;
    CUhostFn function;
    void* data;
  };
  pthread_t thread{};
  auto* call = new Call{at, function, data};
  const int error = pthread_create(
      &thread, nullptr,
      [](void* raw) -> void* {
        const std::unique_ptr<Call> c(static_cast<Call*>(raw));
        sleep_until(c->at);
        c->function(c->data);
        return nullptr;
      },
      call);
  if (error != 0) {
    delete call;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_detach(thread);
  return CUDA_SUCCESS;
}

// Modules --------------------------------------------------------------------------------------------------------

CUresult load_module(Module** out, const void* image) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto module = std::make_unique<Module>();
  const auto* text = static_cast<const char*>(image);
  std::uint32_t word = 0;
  std::memcpy(&word, image, sizeof word);
  // ELF cubin, fat binary, fat binary wrapper, Tile IR: no kernel names to be had without a decoder.
  module->any_name = word == 0x464C457Fu || word == 0xBA55ED50u || word == 0x466243B1u;
  if (!module->any_name) parse_ptx(*module, text);
  if (!module->any_name && module->functions.empty() && std::strstr(text, ".version") == nullptr) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  {
    Process& p = process();
    const std::lock_guard lock(p.mutex);
    module->id = p.next_module++;
  }
  *out = module.release();
  ResourceEvent event{.cbid = kModuleLoaded, .context = reinterpret_cast<CUcontext>(current_context())};
  event.is_module = true;
  event.module_id = (*out)->id;
  event.image = text;
  event.image_bytes = (*out)->any_name ? 0 : std::strlen(text);
  resource_callback(event);
  return CUDA_SUCCESS;
}

CUresult load_module_file(Module** out, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return image.size() < 4 ? CUDA_ERROR_INVALID_IMAGE : load_module(out, image.c_str());
}

CUresult unload_module(Module* module) {
  if (!alive(module, Magic::kModule)) return CUDA_ERROR_INVALID_HANDLE;
  ResourceEvent event{.cbid = kModuleUnloadStarting, .context = reinterpret_cast<CUcontext>(current_context())};
  event.is_module = true;
  event.module_id = module->id;
  resource_callback(event);
  module->magic = Magic::kDead;  // kept: records in flight still point to its kernels
  return CUDA_SUCCESS;
}

CUresult find_function(Function** out, Module* module, const char* name) {
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!alive(module, Magic::kModule)) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(module->mutex);
  auto it = module->functions.find(name);
  if (it == module->functions.end()) {
    if (!module->any_name) return CUDA_ERROR_NOT_FOUND;
    auto function = std::make_unique<Function>();
    function->name = intern(name);
    function->module = module;
    for (const auto& [part, flop] : settings().flop_per_block) {
      if (std::strstr(name, part.c_str()) != nullptr) function->cost.flop_per_block = flop;
    }
    it = module->functions.emplace(name, std::move(function)).first;
  }
  *out = it->second.get();
  return CUDA_SUCCESS;
}

Function* function_of(const void* handle) noexcept {
  auto* function = static_cast<Function*>(const_cast<void*>(handle));
  return alive(function, Magic::kFunction) ? function : nullptr;
}

// Work -----------------------------------------------------------------------------------------------------------

namespace {

Activity kernel_work(const Function& function, const LaunchShape& shape, const LaunchOptions& options) {
  Activity work;
  work.kind = ActivityKind::kKernel;
  work.name = function.name;
  work.launch_type = options.cooperative ? 1 : 0;
  work.shared_bytes = shape.shared_bytes;
  std::copy(std::begin(shape.grid), std::end(shape.grid), std::begin(work.grid));
  std::copy(std::begin(shape.block), std::end(shape.block), std::begin(work.block));
  return work;
}

bool valid(const LaunchShape& shape) {
  const std::uint64_t threads = static_cast<std::uint64_t>(shape.block[0]) * shape.block[1] * shape.block[2];
  const std::uint64_t blocks = static_cast<std::uint64_t>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  return threads > 0 && threads <= 1024 && blocks > 0;
}

void place(Activity& work, const Stream& stream, std::int64_t begin_ns, std::int64_t duration_ns) {
  work.begin_ns = begin_ns;
  work.end_ns = begin_ns + duration_ns;
  work.device = static_cast<std::uint32_t>(stream.context->device->ordinal);
  work.context = stream.context->uid;
  work.stream = stream.id;
  work.correlation = current_call().correlation;
}

}  // namespace

CUresult launch_kernel(Stream& stream, Function& function, const LaunchShape& shape, const LaunchOptions& options) {
  current_call().launch = true;
  if (!valid(shape)) return CUDA_ERROR_INVALID_VALUE;
  burn_launch_cost();
  if (const CUresult failure = scripted_launch_failure(); failure != CUDA_SUCCESS) return failure;
  std::int64_t duration = kernel_duration(function.cost, *stream.context->device->spec, shape);
  Activity work = kernel_work(function, shape, options);
  std::int64_t room_at = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (stream.capture != nullptr) {
      current_call().captured = true;
      if (!capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      Node node;
      node.type = CU_GRAPH_NODE_TYPE_KERNEL;
      node.work = work;
      node.duration_ns = duration;
      capture_node(stream, std::move(node));
      return CUDA_SUCCESS;
    }
    const std::int64_t now = now_ns();
    std::int64_t begin = earliest_start(stream, now);
    if (options.programmatic && ready_at(stream) == stream.tail_ns) {
      begin = std::max(
          {now + settings().launch_latency_ns, stream.last_begin_ns, stream.tail_ns - settings().pdl_overlap_ns});
    }
    if (function.cost.until_param >= 0 && shape.params != nullptr) {
      std::int64_t until = 0;
      std::memcpy(&until, shape.params[function.cost.until_param], sizeof until);
      duration = std::max(duration, until - begin);
    }
    place(work, stream, begin, duration);
    stream.last_begin_ns = begin;
    stream.tail_ns = std::max(stream.tail_ns, work.end_ns);
    room_at = enqueue(stream, work.end_ns);
  }
  emit(work, true);
  finish_before_exit(work.end_ns);
  if (room_at != 0) sleep_until(room_at);
  return CUDA_SUCCESS;
}

Activity make_copy(std::uint64_t bytes, std::uint8_t copy_kind) {
  // CUpti_ActivityMemcpyKind: 1 HtoD, 2 DtoH, 8 DtoD, 9 HtoH, 10 PtoP; CUpti_ActivityMemoryKind: 1 pageable, 3 device.
  Activity work;
  work.kind = ActivityKind::kMemcpy;
  work.bytes = bytes;
  work.copy_kind = copy_kind;
  work.src_kind = copy_kind == 1 || copy_kind == 9 ? 1 : 3;
  work.dst_kind = copy_kind == 2 || copy_kind == 9 ? 1 : 3;
  return work;
}

Activity make_set(std::uint64_t bytes, std::uint32_t value) {
  Activity work;
  work.kind = ActivityKind::kMemset;
  work.bytes = bytes;
  work.value = value;
  work.dst_kind = 3;
  return work;
}

CUresult launch_transfer(Stream& stream, Activity work, bool wait) {
  current_call().launch = true;
  const std::int64_t duration = transfer_duration(work, *stream.context->device->spec);
  std::int64_t room_at = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (stream.capture != nullptr) {
      current_call().captured = true;
      if (!capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      if (wait) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      Node node;
      node.type = work.kind == ActivityKind::kMemcpy ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_MEMSET;
      node.work = work;
      node.duration_ns = duration;
      capture_node(stream, std::move(node));
      return CUDA_SUCCESS;
    }
    place(work, stream, earliest_start(stream, now_ns()), duration);
    stream.tail_ns = work.end_ns;
    room_at = enqueue(stream, work.end_ns);
  }
  emit(work, true);
  finish_before_exit(work.end_ns);
  if (wait) sleep_until(work.end_ns);
  if (room_at != 0) sleep_until(room_at);
  return CUDA_SUCCESS;
}

// Graphs ---------------------------------------------------------------------------------------------------------

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
      for (Node* dependency : node->dependencies) {
        if (reached.insert(dependency).second) open.push_back(dependency);
      }
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

CUresult add_node(Node** out, Graph& graph, Node* const* dependencies, std::size_t count, Node prototype) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!alive(dependencies[i], Magic::kNode) || dependencies[i]->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    prototype.dependencies.push_back(dependencies[i]);
  }
  Node& node = create_node(graph, std::move(prototype));
  if (out != nullptr) *out = &node;
  return CUDA_SUCCESS;
}

CUresult kernel_node(Node& prototype, Function& function, const LaunchShape& shape, const LaunchOptions& options,
                     const Device& device) {
  if (!valid(shape)) return CUDA_ERROR_INVALID_VALUE;
  prototype.type = CU_GRAPH_NODE_TYPE_KERNEL;
  prototype.work = kernel_work(function, shape, options);
  prototype.duration_ns = kernel_duration(function.cost, *device.spec, shape);
  return CUDA_SUCCESS;
}

namespace {

/// Appends copies of the nodes of `from` to `to`; the roots depend on `roots_after`. Child graphs are put in flat.
/// Returns the nodes that nothing in `from` depends on.
std::vector<Node*> copy_nodes(Graph& to, const Graph& from, const std::vector<Node*>& roots_after, bool flatten) {
  std::unordered_map<const Node*, std::vector<Node*>> ends;  // what stands for a node as a dependency
  std::set<const Node*> depended_on;
  for (const auto& node : from.nodes) {
    Node copy = *node;
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

}  // namespace

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

CUresult instantiate(GraphExec** out, Graph& graph) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* exec = new GraphExec;
  exec->id = process().next_graph.fetch_add(1);
  exec->instrumented = tool() != nullptr && wanted().any_activity();
  exec->kernels_off = wanted().kernels_off.load(std::memory_order_relaxed);
  exec->graph.id = exec->id;
  exec->graph.context = graph.context;
  ResourceEvent event = graph_event(kGraphExecCreateStarting, graph);
  resource_callback(event);
  ResourceEvent cloned = graph_event(kGraphCloned, exec->graph);
  cloned.original_graph = reinterpret_cast<CUgraph>(&graph);
  resource_callback(cloned);
  copy_nodes(exec->graph, graph, {}, true);

  // The first child of a node goes on in its lane, further ones and further roots get lanes of their own.
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
  burn_launch_cost();
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
  const bool whole_only = wanted().graphs.load(std::memory_order_relaxed);
  // Kinds that were off for a while do not come back for the nodes of older graphs.
  const bool nodes_seen = !whole_only && exec.kernels_off == wanted().kernels_off.load(std::memory_order_relaxed);
  for (Activity& work : done) emit(work, nodes_seen);
  if (whole_only && exec.instrumented) emit(whole, true);
  for (const auto& [function, data] : host_calls) host_function(stream, function, data);
  finish_before_exit(whole.end_ns);
  if (room_at != 0) sleep_until(room_at);
  return CUDA_SUCCESS;
}

// Interface ------------------------------------------------------------------------------------------------------

namespace {

CUcontext interface_current(std::uint32_t* uid, std::uint32_t* device) {
  Context* context = current_context();
  if (uid != nullptr) *uid = context == nullptr ? 0 : context->uid;
  if (device != nullptr) *device = context == nullptr ? 0 : static_cast<std::uint32_t>(context->device->ordinal);
  return reinterpret_cast<CUcontext>(context);
}

bool interface_context(CUcontext handle, std::uint32_t* uid, std::uint32_t* device) {
  auto* context = reinterpret_cast<Context*>(handle);
  if (!alive(context, Magic::kContext)) return false;
  if (uid != nullptr) *uid = context->uid;
  if (device != nullptr) *device = static_cast<std::uint32_t>(context->device->ordinal);
  return true;
}

bool interface_stream(CUcontext handle, CUstream stream, bool per_thread, std::uint32_t* id) {
  auto* context = reinterpret_cast<Context*>(handle);
  if (stream == nullptr && !per_thread && alive(context, Magic::kContext)) {
    *id = context->legacy.id;
    return true;
  }
  Stream* found = nullptr;
  if (resolve_stream(stream, per_thread, &found) != CUDA_SUCCESS) return false;
  *id = found->id;
  return true;
}

std::int64_t interface_start(CUstream handle) {
  Stream* stream = nullptr;
  return resolve_stream(handle, false, &stream) == CUDA_SUCCESS ? start_of_next(*stream) : now_ns();
}

bool interface_graph(CUgraph handle, std::uint32_t* id) {
  const auto* graph = reinterpret_cast<const Graph*>(handle);
  if (!alive(graph, Magic::kGraph)) return false;
  *id = graph->id;
  return true;
}

bool interface_exec(CUgraphExec handle, std::uint32_t* id) {
  const auto* exec = reinterpret_cast<const GraphExec*>(handle);
  if (!alive(exec, Magic::kExec)) return false;
  *id = exec->id;
  return true;
}

bool interface_node(CUgraphNode handle, std::uint64_t* id) {
  const auto* node = reinterpret_cast<const Node*>(handle);
  if (!alive(node, Magic::kNode)) return false;
  *id = node->id;
  return true;
}

const char* interface_function(const void* handle) {
  const Function* function = function_of(handle);
  return function == nullptr ? nullptr : function->name;
}

}  // namespace

const Driver* driver_interface() noexcept {
  static const Driver* const instance = new Driver{
      .version = kInterfaceVersion,
      .settings = &settings(),
      .wanted = &process().wanted,
      .tool = &process().tool,
      .costs = process().costs,
      .thread = [] { return &thread_state(); },
      .now_ns = [] { return now_ns(); },
      .initialised = [] { return driver_ready(); },
      .forked = [] { return process().forked.load(std::memory_order_relaxed); },
      .next_correlation = [] { return next_correlation(); },
      .current_context = interface_current,
      .context_info = interface_context,
      .stream_id = interface_stream,
      .start_of_next = interface_start,
      .graph_id = interface_graph,
      .graph_exec_id = interface_exec,
      .graph_node_id = interface_node,
      .function_name = interface_function,
      .truth_fate = truth_fate,
      .truth_flush = truth_flush,
  };
  return instance;
}

}  // namespace mfu::sim

extern "C" [[gnu::visibility("default")]] const mfu::sim::Driver* simgpu_driver() {
  return mfu::sim::driver_interface();
}

#include "tools/simgpu/driver/engine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tools/simgpu/driver/engine_state.h"

namespace mfu::sim {

Process& process() {
  static Process* const instance = [] {
    auto* p = new Process;
    p->correlation = settings().correlation_start;
    return p;
  }();
  return *instance;
}

ThreadContexts& thread_contexts() {
  static thread_local ThreadContexts contexts{};
  return contexts;
}

void resource_callback(const ResourceEvent& event) {
  const Tool* t = tool();
  if (t != nullptr && wanted().resource[event.cbid].load(std::memory_order_relaxed) != 0) t->resource(event);
}

void synchronize_callback(std::uint32_t cbid, Context* context, CUstream stream) {
  const Tool* t = tool();
  if (t != nullptr && wanted().synchronize[cbid].load(std::memory_order_relaxed) != 0)
    t->synchronize(cbid, reinterpret_cast<CUcontext>(context), stream);
}

namespace {

std::int64_t clock_offset_ns(std::int64_t now) noexcept {
  const Settings& s = settings();
  if (s.clock_jump_s == 0) return 0;
  const std::int64_t started = process().started_ns.load(std::memory_order_relaxed);
  if (started == 0 || static_cast<double>(now - started) * 1e-9 < s.clock_jump_after_s) return 0;
  return static_cast<std::int64_t>(s.clock_jump_s * 1e9);
}

void run_injection_library() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0' || std::strcmp(path, "none") == 0) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;  // the real driver says nothing either
  auto* entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (entry == nullptr) return;
  ++thread_state().injection;
  const bool keep = entry() != 0;
  --thread_state().injection;
  if (keep)
    process().injected = true;
  else
    dlclose(library);
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
  // As drivers 535.261 and 550.163 do it: a nested call answers as the outer one will, and the injected
  // library is called where there is no device, too.
  if (thread_state().injection != 0) return settings().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  const std::lock_guard lock(p.init_mutex);
  if (driver_ready()) return p.init_result;
  if (settings().devices.empty()) {
    if (!p.injected) run_injection_library();
    return CUDA_ERROR_NO_DEVICE;
  }
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

template <typename Object, Magic magic, typename Handle, typename Id>
bool interface_id(Handle handle, Id* id) {
  const auto* object = reinterpret_cast<const Object*>(handle);
  if (!alive(object, magic)) return false;
  *id = object->id;
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
      .graph_id = interface_id<Graph, Magic::kGraph>,
      .graph_exec_id = interface_id<GraphExec, Magic::kExec>,
      .graph_node_id = interface_id<Node, Magic::kNode>,
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

// The exported functions of the simulated libcupti.so.N: the Callback API and the Activity API as far as tracing tools
// use them. Rules of the real library that a client must not break end in an abort with a line on stderr.
#include <cupti.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tools/simgpu/cupti_buffers.h"
#include "tools/simgpu/cupti_foreign.h"
#include "tools/simgpu/cupti_records.h"

#define SIM_EXPORT extern "C" [[gnu::visibility("default")]]

// Exports NAME under another name in C++: headers from 13.2 on declare it themselves, with types that older ones lack.
#define SIM_EXPORT_AS(name, parameters)                                                   \
  extern "C" [[gnu::visibility("default")]] CUptiResult sim_##name parameters asm(#name); \
  CUptiResult sim_##name parameters

struct CUpti_Subscriber_st {
  CUpti_CallbackFunc callback;
  void* userdata;
  std::string name;
  bool v2;
};

namespace {

using namespace mfu::sim;

constexpr CUptiResult kOk = CUPTI_SUCCESS;

struct Api {
  std::mutex mutex;  ///< guards the kinds and the subscriber's life
  std::atomic<CUpti_Subscriber_st*> subscriber{nullptr};
  std::atomic<std::uint32_t> kernel_kind{kKindConcurrentKernel};
  std::atomic<bool> external{false};
  std::uint32_t thread_id_type = 0;
  std::map<std::uint32_t, std::uint64_t> attributes;
  std::map<std::string, std::uint64_t> calls;  ///< per function, only where the fault script names any
};

Api& api() {
  static Api* const instance = new Api;
  return *instance;
}

struct External {
  std::uint32_t kind;
  std::uint64_t id;
};
std::vector<External>& external_stack() {
  static thread_local std::vector<External> stack;
  return stack;
}

// What the driver calls ------------------------------------------------------------------------------------------

void on_api(const ApiEvent& event) {
  const CUpti_Subscriber_st* subscriber = api().subscriber.load(std::memory_order_acquire);
  if (subscriber == nullptr) return;
  CUpti_CallbackData data{};
  data.callbackSite = event.exit ? CUPTI_API_EXIT : CUPTI_API_ENTER;
  data.functionName = event.name;
  data.functionParams = event.params;
  data.functionReturnValue = event.exit ? event.result : nullptr;
  data.symbolName = event.symbol;
  data.context = event.context;
  data.contextUid = event.context_uid;
  data.correlationData = event.correlation_data;
  data.correlationId = event.correlation;
  ThreadState& thread = *connected_driver()->thread();
  ++thread.api_callback;
  {
    const CallbackTimer timer(kCostApi);
    subscriber->callback(subscriber->userdata, static_cast<CUpti_CallbackDomain>(event.domain), event.cbid, &data);
  }
  --thread.api_callback;
}

void notify(CUpti_CallbackDomain domain, std::uint32_t cbid, const void* data) {
  const CUpti_Subscriber_st* subscriber = api().subscriber.load(std::memory_order_acquire);
  if (subscriber == nullptr) return;
  ThreadState& thread = *connected_driver()->thread();
  ++thread.resource_callback;
  {
    const CallbackTimer timer(kCostResource);
    subscriber->callback(subscriber->userdata, domain, cbid, data);
  }
  --thread.resource_callback;
}

void on_resource(const ResourceEvent& event) {
  CUpti_ResourceData data{};
  data.context = event.context;
  data.resourceHandle.stream = event.stream;
  CUpti_GraphData graph{};
  CUpti_ModuleResourceData module{};
  if (event.is_graph) {
    graph.graph = event.graph;
    graph.originalGraph = event.original_graph;
    graph.node = event.node;
    graph.originalNode = event.original_node;
    graph.nodeType = event.node_type;
    graph.dependency = event.dependency;
    graph.graphExec = event.graph_exec;
    data.resourceDescriptor = &graph;
  } else if (event.is_module) {
    module.moduleId = event.module_id;
    module.cubinSize = event.image_bytes;
    module.pCubin = event.image;
    data.resourceDescriptor = &module;
  }
  notify(CUPTI_CB_DOMAIN_RESOURCE, event.cbid, &data);
}

void on_synchronize(std::uint32_t cbid, CUcontext context, CUstream stream) {
  CUpti_SynchronizeData data{};
  data.context = context;
  data.stream = stream;
  notify(CUPTI_CB_DOMAIN_SYNCHRONIZE, cbid, &data);
}

void on_activity(const Activity& activity) {
  record_activity(activity, api().kernel_kind.load(std::memory_order_relaxed));
}

void on_api_record(const ApiRecord& record) {
  if (api().external.load(std::memory_order_relaxed)) {
    // One record per kind on the thread's stack: the innermost.
    const std::vector<External>& stack = external_stack();
    for (std::size_t i = stack.size(); i-- > 0;) {
      const bool hidden = std::any_of(stack.begin() + static_cast<std::ptrdiff_t>(i) + 1, stack.end(),
                                      [&](const External& e) { return e.kind == stack[i].kind; });
      if (!hidden) record_external(stack[i].kind, stack[i].id, record.correlation);
    }
  }
  record_api(record);
}

void on_deliver_now() { flush_on_worker(false); }

constexpr Tool kTool{on_api, on_api_record, on_activity, on_resource, on_synchronize, on_deliver_now};

// Around every exported function ---------------------------------------------------------------------------------

/// Runs the fault script for `function`; a value other than 0 is the answer.
CUptiResult scripted(const char* function) {
  const Settings& s = settings();
  if (s.functions.empty()) return kOk;
  auto it = s.functions.find(function);
  if (it == s.functions.end()) it = s.functions.find("*");
  if (it == s.functions.end()) return kOk;
  std::uint64_t call = 0;
  {
    const std::lock_guard lock(api().mutex);
    call = ++api().calls[function];
  }
  const FunctionFault& fault = it->second;
  if (call < fault.from_call || acting_as_foreign()) return kOk;
  if (fault.delay_ms > 0) {
    const timespec ts{fault.delay_ms / 1000, fault.delay_ms % 1000 * 1'000'000};
    nanosleep(&ts, nullptr);
  }
  while (fault.hang) pause();
  return static_cast<CUptiResult>(fault.result);
}

/// Whether CUPTI can work with the driver: there is one, and it is not older than this CUPTI's major version.
bool driver_is_fit() {
  const Driver* driver = connected_driver();
  const std::uint32_t version = cupti_layout().version;
  return driver != nullptr && (version < 100000 || driver->settings->driver_version >= version / 10000 * 1000);
}

/// 13.2 cannot initialise without a fit driver, and every function of it asks another one for the text of that error,
/// without end: the stack overflows.
void overflow_stack_if_unfit(const char* function) {
  if (cupti_layout().version / 100 != 1302 || driver_is_fit()) return;
  std::fprintf(stderr, "[simgpu] %s of CUPTI 13.2 without a driver that it can use: stack overflow\n", function);
  std::abort();
}

/// Start of a function that works without a driver.
CUptiResult enter(const char* function) {
  overflow_stack_if_unfit(function);
  if (const Driver* driver = connected_driver(); driver != nullptr && driver->forked()) {
    rule_broken("CUPTI was called in a process forked after cuInit");
  }
  return scripted(function);
}

/// Start of a function that answers 999 where there is no driver.
CUptiResult enter_with_driver(const char* function) {
  if (const CUptiResult result = enter(function); result != kOk) return result;
  if (!driver_is_fit())  // 15 up to 12.9, 999 from 13.0 on
    return cupti_layout().version >= 130000 ? CUPTI_ERROR_UNKNOWN : CUPTI_ERROR_NOT_INITIALIZED;
  return kOk;
}

/// From 13.3 on the few functions that used to work without a driver answer 999 there as well.
bool needs_driver_for_anything() { return cupti_layout().version >= 130300; }

void attach() {
  connected_driver()->tool->store(&kTool, std::memory_order_release);
  start_foreign_clients();
}

std::atomic<std::uint8_t>* callback_flags(CUpti_CallbackDomain domain, std::uint32_t* count) {
  Wanted& w = *connected_driver()->wanted;
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      *count = cupti_layout().max_driver_cbid + 1;
      return w.driver;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
      *count = cupti_layout().max_runtime_cbid + 1;
      return w.runtime;
    case CUPTI_CB_DOMAIN_RESOURCE:
      *count = 24;
      return w.resource;
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
      *count = 3;
      return w.synchronize;
    default:
      *count = 0;
      return nullptr;
  }
}

void set_flag(std::atomic<std::uint8_t>& flag, std::uint8_t bit, bool on) {
  if (on) {
    flag.fetch_or(bit, std::memory_order_relaxed);
  } else {
    flag.fetch_and(static_cast<std::uint8_t>(~bit), std::memory_order_relaxed);
  }
}

CUptiResult enable_domain(bool on, CUpti_CallbackDomain domain) {
  if (domain == CUPTI_CB_DOMAIN_STATE || domain == CUPTI_CB_DOMAIN_NVTX) return kOk;
  std::uint32_t count = 0;
  std::atomic<std::uint8_t>* flags = callback_flags(domain, &count);
  if (flags == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  for (std::uint32_t i = 1; i < count; ++i) set_flag(flags[i], kWantCallback, on);
  return kOk;
}

bool is_subscriber(CUpti_SubscriberHandle handle) { return handle != nullptr && handle == api().subscriber.load(); }

CUptiResult subscribe(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata, bool v2,
                      const CUpti_SubscriberParams* params) {
  if (out == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(api().mutex);
  if (CUpti_Subscriber_st* other = api().subscriber.load(); other != nullptr) {
    if (params != nullptr && params->oldSubscriberName != nullptr && params->oldSubscriberSize > 0) {
      std::snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s", other->name.c_str());
    }
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  auto* subscriber =
      new CUpti_Subscriber_st{callback, userdata, "", v2};  // leaked on unsubscribe: callbacks may be under way
  if (params != nullptr && params->subscriberName != nullptr) subscriber->name = params->subscriberName;
  if (acting_as_foreign()) subscriber->name = "foreign";
  api().subscriber.store(subscriber, std::memory_order_release);
  attach();
  *out = subscriber;
  return kOk;
}

CUptiResult set_kind(CUpti_ActivityKind kind, bool on) {
  const auto number = static_cast<std::uint32_t>(kind);
  const Settings& s = settings();
  if (on && !acting_as_foreign() &&
      std::find(s.refused_kinds.begin(), s.refused_kinds.end(), number) != s.refused_kinds.end()) {
    return static_cast<CUptiResult>(s.refused_kinds_result);
  }
  if (number == 0 || number > cupti_layout().max_kind) return CUPTI_ERROR_INVALID_KIND;
  attach();
  Wanted& w = *connected_driver()->wanted;
  const std::lock_guard lock(api().mutex);
  switch (number) {
    case kKindKernel:
    case kKindConcurrentKernel:
      if (on && w.kernels.load() && api().kernel_kind.load() != number) return CUPTI_ERROR_NOT_COMPATIBLE;
      if (!on && api().kernel_kind.load() != number) return kOk;
      api().kernel_kind.store(number);
      if (w.kernels.exchange(on) && !on) w.kernels_off.fetch_add(1);
      break;
    case kKindMemcpy:
      w.memcpys.store(on);
      break;
    case kKindMemset:
      w.memsets.store(on);
      break;
    case kKindGraphTrace:
      w.graphs.store(on);
      break;
    case kKindExternalCorrelation:
      api().external.store(on);
      break;
    case kKindDriver:
      for (std::uint32_t i = 1; i <= cupti_layout().max_driver_cbid; ++i) set_flag(w.driver[i], kWantRecord, on);
      break;
    case kKindRuntime:
      for (std::uint32_t i = 1; i <= cupti_layout().max_runtime_cbid; ++i) set_flag(w.runtime[i], kWantRecord, on);
      break;
    default:
      break;  // known to this version, and nothing on this device makes such records
  }
  return kOk;
}

const char* result_name(CUptiResult result) {
  switch (result) {
    case CUPTI_SUCCESS:
      return "CUPTI_SUCCESS";
    case CUPTI_ERROR_INVALID_PARAMETER:
      return "CUPTI_ERROR_INVALID_PARAMETER";
    case CUPTI_ERROR_INVALID_OPERATION:
      return "CUPTI_ERROR_INVALID_OPERATION";
    case CUPTI_ERROR_OUT_OF_MEMORY:
      return "CUPTI_ERROR_OUT_OF_MEMORY";
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
      return "CUPTI_ERROR_MAX_LIMIT_REACHED";
    case CUPTI_ERROR_NOT_COMPATIBLE:
      return "CUPTI_ERROR_NOT_COMPATIBLE";
    case CUPTI_ERROR_NOT_INITIALIZED:
      return "CUPTI_ERROR_NOT_INITIALIZED";
    case CUPTI_ERROR_QUEUE_EMPTY:
      return "CUPTI_ERROR_QUEUE_EMPTY";
    case CUPTI_ERROR_INVALID_KIND:
      return "CUPTI_ERROR_INVALID_KIND";
    case CUPTI_ERROR_NOT_SUPPORTED:
      return "CUPTI_ERROR_NOT_SUPPORTED";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
    case CUPTI_ERROR_UNKNOWN:
      return "CUPTI_ERROR_UNKNOWN";
    default:
      return nullptr;
  }
}

}  // namespace

#define ENTER(function)                                           \
  if (const CUptiResult early = enter(#function); early != kOk) { \
    return early;                                                 \
  }
/// For a function that needs a driver from 13.3 on.
#define ENTER_ANYWHERE(function)                                                                               \
  if (const CUptiResult early = needs_driver_for_anything() ? enter_with_driver(#function) : enter(#function); \
      early != kOk) {                                                                                          \
    return early;                                                                                              \
  }
#define ENTER_WITH_DRIVER(function)                                           \
  if (const CUptiResult early = enter_with_driver(#function); early != kOk) { \
    return early;                                                             \
  }

// Callback API ---------------------------------------------------------------------------------------------------

SIM_EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  overflow_stack_if_unfit("cuptiGetVersion");
  if (const CUptiResult early = scripted("cuptiGetVersion"); early != kOk) return early;
  if (needs_driver_for_anything() && !driver_is_fit()) return CUPTI_ERROR_UNKNOWN;
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = cupti_layout().version;
  return kOk;
}

SIM_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** str) {
  overflow_stack_if_unfit("cuptiGetResultString");
  if (str == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *str = result_name(result);
  return *str != nullptr ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata) {
  ENTER_WITH_DRIVER(cuptiSubscribe)
  return subscribe(out, callback, userdata, false, nullptr);
}

SIM_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata,
                                         CUpti_SubscriberParams* params) {
  ENTER_WITH_DRIVER(cuptiSubscribe_v2)
  return subscribe(out, callback, userdata, true, params);
}

SIM_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiUnsubscribe)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                            CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_SYNCHRONIZE}) {
    enable_domain(false, domain);
  }
  api().subscriber.store(nullptr);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                           CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiEnableCallback)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_STATE) {
    return cbid >= 1 && cbid <= 3 && cupti_layout().version >= 20 ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (domain == CUPTI_CB_DOMAIN_NVTX) return kOk;
  std::uint32_t count = 0;
  std::atomic<std::uint8_t>* flags = callback_flags(domain, &count);
  if (flags == nullptr || cbid == 0 || cbid >= count) return CUPTI_ERROR_INVALID_PARAMETER;
  set_flag(flags[cbid], kWantCallback, enable != 0);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle subscriber,
                                             CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  ENTER_WITH_DRIVER(cuptiGetCallbackState)
  std::uint32_t count = 0;
  std::atomic<std::uint8_t>* flags = callback_flags(domain, &count);
  if (enable == nullptr || !is_subscriber(subscriber) || flags == nullptr || cbid >= count) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  *enable = (flags[cbid].load() & kWantCallback) != 0 ? 1 : 0;
  return kOk;
}

SIM_EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                         CUpti_CallbackDomain domain) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiEnableDomain)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  return enable_domain(enable != 0, domain);
}

SIM_EXPORT CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiEnableAllDomains)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                            CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_SYNCHRONIZE}) {
    enable_domain(enable != 0, domain);
  }
  return kOk;
}

// Activity API ---------------------------------------------------------------------------------------------------

SIM_EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                      CUpti_BuffersCallbackCompleteFunc completed) {
  ENTER_ANYWHERE(cuptiActivityRegisterCallbacks)
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  BufferCallbacks callbacks;
  callbacks.requested = requested;
  callbacks.completed = completed;
  callbacks.foreign = acting_as_foreign();
  set_buffer_callbacks(callbacks);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  ENTER_WITH_DRIVER(cuptiActivityEnable)
  return set_kind(kind, true);
}

SIM_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  ENTER_WITH_DRIVER(cuptiActivityDisable)
  return set_kind(kind, false);
}

SIM_EXPORT CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind) {
  ENTER_WITH_DRIVER(cuptiActivityEnableContext)
  if (!connected_driver()->context_info(context, nullptr, nullptr)) return CUPTI_ERROR_INVALID_PARAMETER;
  return set_kind(kind, true);  // the simulated device keeps one switch for all contexts
}

SIM_EXPORT CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
  ENTER_WITH_DRIVER(cuptiActivityEnableDriverApi)
  if (cbid == 0 || cbid > cupti_layout().max_driver_cbid) return CUPTI_ERROR_INVALID_PARAMETER;
  attach();
  set_flag(connected_driver()->wanted->driver[cbid], kWantRecord, enable != 0);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
  ENTER_WITH_DRIVER(cuptiActivityEnableRuntimeApi)
  if (cbid == 0 || cbid > cupti_layout().max_runtime_cbid) return CUPTI_ERROR_INVALID_PARAMETER;
  attach();
  set_flag(connected_driver()->wanted->runtime[cbid], kWantRecord, enable != 0);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  ENTER_WITH_DRIVER(cuptiActivityFlushAll)
  const ThreadState& thread = *connected_driver()->thread();
  if (thread.buffer_callback != 0)
    rule_broken("cuptiActivityFlushAll was called inside a buffer callback: it deadlocks");
  if (thread.resource_callback != 0)
    rule_broken("cuptiActivityFlushAll was called inside a resource callback: it deadlocks");
  const bool forced = (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0;
  if (settings().flush_on_worker) {
    flush_on_worker(forced);
  } else {
    flush_buffers(forced);
  }
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityFlushPeriod(uint32_t ms) {
  ENTER_WITH_DRIVER(cuptiActivityFlushPeriod)
  set_flush_period(ms);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, CUpti_Activity** record) {
  overflow_stack_if_unfit("cuptiActivityGetNextRecord");
  if (const CUptiResult early = scripted("cuptiActivityGetNextRecord"); early != kOk) return early;
  if (needs_driver_for_anything() && !driver_is_fit()) return CUPTI_ERROR_UNKNOWN;
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto kind_at = [&](std::size_t offset) {
    std::uint32_t kind = 0;
    std::memcpy(&kind, buffer + offset, sizeof kind);
    return kind;
  };
  std::size_t offset = 0;
  if (*record != nullptr) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(*record);
    if (at < buffer || at >= buffer + valid) return CUPTI_ERROR_INVALID_PARAMETER;
    offset = static_cast<std::size_t>(at - buffer);
    const std::size_t bytes = record_bytes(cupti_layout(), kind_at(offset));
    if (bytes == 0) return CUPTI_ERROR_INVALID_KIND;
    offset += bytes;
  }
  if (offset >= valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  if (valid - offset < sizeof(std::uint32_t)) return CUPTI_ERROR_INVALID_KIND;
  const std::size_t bytes = record_bytes(cupti_layout(), kind_at(offset));
  if (bytes == 0 || bytes > valid - offset) return CUPTI_ERROR_INVALID_KIND;
  *record = reinterpret_cast<CUpti_Activity*>(buffer + offset);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext /*context*/, uint32_t /*stream*/, size_t* dropped) {
  ENTER(cuptiActivityGetNumDroppedRecords)
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = take_dropped();
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* size, void* value) {
  ENTER_WITH_DRIVER(cuptiActivitySetAttribute)
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto number = static_cast<std::uint32_t>(attribute);
  if (number > (cupti_layout().version >= 130000 ? 10u : cupti_layout().version >= 21 ? 9u : 8u)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, value, std::min(*size, sizeof word));
  const std::lock_guard lock(api().mutex);
  api().attributes[number] = word;
  if (number == CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT) set_device_buffer_limit(word);
  if (number == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER) set_buffers_zeroed((word & 0xFF) == 0);
  if (number == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) set_per_thread_buffers((word & 0xFF) != 0);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t* size, void* value) {
  ENTER_WITH_DRIVER(cuptiActivityGetAttribute)
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  static const std::map<std::uint32_t, std::uint64_t> defaults{{0, 3'200'000}, {1, 8 << 20}, {2, 250},
                                                               {5, 0},         {6, 3},       {8, 0}};
  const auto number = static_cast<std::uint32_t>(attribute);
  const std::lock_guard lock(api().mutex);
  std::uint64_t word = 0;
  if (const auto it = defaults.find(number); it != defaults.end()) word = it->second;
  if (const auto it = api().attributes.find(number); it != api().attributes.end()) word = it->second;
  if (number == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) word = per_thread_buffers() ? 1 : 0;
  std::memcpy(value, &word, std::min(*size, sizeof word));
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback) {
  ENTER_WITH_DRIVER(cuptiActivityRegisterTimestampCallback)
  set_timestamp_callback(callback);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  ENTER_WITH_DRIVER(cuptiActivityPushExternalCorrelationId)
  external_stack().push_back({static_cast<std::uint32_t>(kind), id});
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t* last) {
  ENTER_WITH_DRIVER(cuptiActivityPopExternalCorrelationId)
  std::vector<External>& stack = external_stack();
  for (std::size_t i = stack.size(); i-- > 0;) {
    if (stack[i].kind != static_cast<std::uint32_t>(kind)) continue;
    if (last != nullptr) *last = stack[i].id;
    stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(i));
    return kOk;
  }
  return CUPTI_ERROR_QUEUE_EMPTY;
}

SIM_EXPORT CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t /*enable*/) {
  ENTER_WITH_DRIVER(cuptiActivityEnableLatencyTimestamps)
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityEnableLaunchAttributes(uint8_t /*enable*/) {
  ENTER_WITH_DRIVER(cuptiActivityEnableLaunchAttributes)
  return kOk;
}

/// Hardware event tracing needs Blackwell.
SIM_EXPORT CUptiResult cuptiActivityEnableHWTrace(uint8_t enable) {
  ENTER_WITH_DRIVER(cuptiActivityEnableHWTrace)
  return enable == 0 ? kOk : CUPTI_ERROR_NOT_SUPPORTED;
}

SIM_EXPORT CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  ENTER_ANYWHERE(cuptiGetTimestamp)
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = cupti_timestamp();
  return kOk;
}

SIM_EXPORT CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  ENTER_WITH_DRIVER(cuptiSetThreadIdType)
  api().thread_id_type = static_cast<std::uint32_t>(type);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiGetThreadIdType(CUpti_ActivityThreadIdType* type) {
  ENTER_WITH_DRIVER(cuptiGetThreadIdType)
  if (type == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *type = static_cast<CUpti_ActivityThreadIdType>(api().thread_id_type);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiGetContextId(CUcontext context, uint32_t* id) {
  ENTER_WITH_DRIVER(cuptiGetContextId)
  if (id == nullptr || !connected_driver()->context_info(context, id, nullptr)) return CUPTI_ERROR_INVALID_CONTEXT;
  return kOk;
}

SIM_EXPORT CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* id) {
  ENTER_WITH_DRIVER(cuptiGetDeviceId)
  if (id == nullptr || !connected_driver()->context_info(context, nullptr, id)) return CUPTI_ERROR_INVALID_CONTEXT;
  return kOk;
}

SIM_EXPORT CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t* id) {
  ENTER_WITH_DRIVER(cuptiGetStreamIdEx)
  if (id == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return connected_driver()->stream_id(context, stream, per_thread != 0, id) ? kOk : CUPTI_ERROR_INVALID_STREAM;
}

SIM_EXPORT CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t* id) {
  ENTER_WITH_DRIVER(cuptiGetGraphId)
  return id != nullptr && connected_driver()->graph_id(graph, id) ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT CUptiResult cuptiGetGraphExecId(CUgraphExec exec, uint32_t* id) {
  ENTER_WITH_DRIVER(cuptiGetGraphExecId)
  return id != nullptr && connected_driver()->graph_exec_id(exec, id) ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t* id) {
  ENTER_WITH_DRIVER(cuptiGetGraphNodeId)
  return id != nullptr && connected_driver()->graph_node_id(node, id) ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT CUptiResult cuptiFinalize() {
  rule_broken("cuptiFinalize was called: it stops every thread of the process and crashes with CUDA graphs");
  return kOk;
}

// The subscriber's own forms, from 13.2 and 13.3 on. One subscriber at a time here: whoever asks for several is
// refused, as by a version that cannot, and its records have every field.

SIM_EXPORT_AS(cuptiActivityRegisterCallbacks_v2,
              (CUpti_SubscriberHandle subscriber, BufferRequestedV2 requested, BufferCompletedV2 completed)) {
  ENTER_WITH_DRIVER(cuptiActivityRegisterCallbacks_v2)
  if (!is_subscriber(subscriber) || requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  BufferCallbacks callbacks;
  callbacks.requested_v2 = requested;
  callbacks.completed_v2 = completed;
  callbacks.foreign = acting_as_foreign();
  set_buffer_callbacks(callbacks);
  return kOk;
}

SIM_EXPORT_AS(cuptiActivityEnable_v2,
              (CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, const void* /*config*/)) {
  ENTER_WITH_DRIVER(cuptiActivityEnable_v2)
  return is_subscriber(subscriber) ? set_kind(kind, true) : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT_AS(cuptiActivityDisable_v2,
              (CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, const void* /*config*/)) {
  ENTER_WITH_DRIVER(cuptiActivityDisable_v2)
  return is_subscriber(subscriber) ? set_kind(kind, false) : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT_AS(cuptiActivitySetAttribute_v2,
              (CUpti_SubscriberHandle subscriber, CUpti_ActivityAttribute attribute, size_t* size, void* value)) {
  ENTER_WITH_DRIVER(cuptiActivitySetAttribute_v2)
  return is_subscriber(subscriber) ? cuptiActivitySetAttribute(attribute, size, value) : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT_AS(cuptiActivityGetAttribute_v2,
              (CUpti_SubscriberHandle subscriber, CUpti_ActivityAttribute attribute, size_t* size, void* value)) {
  ENTER_WITH_DRIVER(cuptiActivityGetAttribute_v2)
  return is_subscriber(subscriber) ? cuptiActivityGetAttribute(attribute, size, value) : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_EXPORT_AS(cuptiActivityGetNextRecord_v2,
              (CUpti_SubscriberHandle subscriber, uint8_t* buffer, size_t valid, CUpti_Activity** record)) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return cuptiActivityGetNextRecord(buffer, valid, record);
}

/// Whether any client has a kind enabled.
SIM_EXPORT_AS(cuptiIsTracingSessionRunning, (uint8_t * running)) {
  ENTER_WITH_DRIVER(cuptiIsTracingSessionRunning)
  if (running == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *running = connected_driver()->wanted->any_activity() ? 1 : 0;
  return kOk;
}

/// For tests: makes a foreign client do its next thing on the calling thread. `action`: start or stop.
SIM_EXPORT int simgpu_foreign(const char* kind, const char* action) { return run_foreign_client(kind, action) ? 0 : 1; }

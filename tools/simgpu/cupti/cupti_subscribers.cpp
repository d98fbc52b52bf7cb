#include "tools/simgpu/cupti/cupti_subscribers.h"

#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_records.h"
#include "tools/simgpu/cupti/test_hooks.h"

namespace mfu::sim {

namespace {

constexpr CUptiResult kOk = CUPTI_SUCCESS;
constexpr std::size_t kMaxSubscribers = kClients - 1;

struct Clients {
  std::mutex mutex;  ///< guards who is there, and the union of what all want
  std::array<std::atomic<CUpti_Subscriber_st*>, kMaxSubscribers> subscribers{};
  ClientKinds global;  ///< of the calls that name no subscriber
  std::atomic<bool> external{false};
  std::atomic<int> family{0};  ///< of activity calls: 1 without, 2 with a subscriber
};

Clients& clients() {
  static Clients* const instance = new Clients;
  return *instance;
}

template <typename Call>
void for_each(Call&& call) {
  for (const auto& slot : clients().subscribers)
    if (CUpti_Subscriber_st* subscriber = slot.load(std::memory_order_acquire)) call(*subscriber);
}

// Calls of the driver ------------------------------------------------------------------------------------------

void on_api(const ApiEvent& event) {
  if (hit(settings().silent_rate, event.correlation, 10)) return;
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
  const bool driver = event.domain == ApiDomain::kDriver;
  ThreadState& thread = *connected_driver()->thread();
  for_each([&](const CUpti_Subscriber_st& subscriber) {
    if ((driver ? subscriber.driver : subscriber.runtime)[event.cbid].load(std::memory_order_relaxed) == 0) return;
    ++thread.api_callback;
    burn(settings().callback_ns);
    timed(kCostApi, [&] {
      subscriber.callback(subscriber.userdata, static_cast<CUpti_CallbackDomain>(event.domain), event.cbid, &data);
    });
    --thread.api_callback;
  });
}

void notify(CUpti_CallbackDomain domain, std::uint32_t cbid, const void* data) {
  ThreadState& thread = *connected_driver()->thread();
  for_each([&](const CUpti_Subscriber_st& subscriber) {
    const auto& flag = domain == CUPTI_CB_DOMAIN_RESOURCE ? subscriber.resource[cbid] : subscriber.synchronize[cbid];
    if (flag.load(std::memory_order_relaxed) == 0) return;
    ++thread.resource_callback;
    timed(kCostResource, [&] { subscriber.callback(subscriber.userdata, domain, cbid, data); });
    --thread.resource_callback;
  });
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
  bool any = false;
  for_each([&](const CUpti_Subscriber_st& subscriber) {
    if (!subscriber.kinds.wants(activity.seen_as())) return;
    any = true;
    record_activity(activity, subscriber.kinds.kernel_kind.load(std::memory_order_relaxed), subscriber.client);
  });
  const ClientKinds& global = clients().global;
  // The driver calls for what any client wants. Without a subscriber, that is what the one client asked for.
  if (!any) record_activity(activity, global.kernel_kind.load(std::memory_order_relaxed), 0);
}

void on_api_record(const ApiRecord& record) {
  if (clients().external.load(std::memory_order_relaxed)) {
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

/// Flags of a domain, of one subscriber or of all together.
template <typename Flags>
std::atomic<std::uint8_t>* flags_of(Flags& of, CUpti_CallbackDomain domain, std::uint32_t* count) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      *count = cupti_layout().max_driver_cbid + 1;
      return of.driver;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
      *count = cupti_layout().max_runtime_cbid + 1;
      return of.runtime;
    case CUPTI_CB_DOMAIN_RESOURCE:
      *count = 24;
      return of.resource;
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
      *count = 3;
      return of.synchronize;
    default:
      *count = 0;
      return nullptr;
  }
}

/// The mutex is held. The driver does what at least one client wants.
void set_driver_kinds() {
  Wanted& w = *connected_driver()->wanted;
  for (const ActivityKind kind :
       {ActivityKind::kKernel, ActivityKind::kMemcpy, ActivityKind::kMemset, ActivityKind::kGraph}) {
    bool on = clients().global.wants(kind);
    for_each([&](const CUpti_Subscriber_st& s) { on = on || s.kinds.wants(kind); });
    const bool was_on = w.kinds.set(kind, on);
    if (kind == ActivityKind::kKernel && was_on && !on) w.kernels_off.fetch_add(1);
    if (kind == ActivityKind::kGraph && (on || settings().graph_level_ends)) w.graph_level.store(on);
  }
}

}  // namespace

void set_flag(std::atomic<std::uint8_t>& flag, std::uint8_t bit, bool on) {
  if (on)
    flag.fetch_or(bit, std::memory_order_relaxed);
  else
    flag.fetch_and(static_cast<std::uint8_t>(~bit), std::memory_order_relaxed);
}

std::vector<External>& external_stack() {
  static thread_local std::vector<External> stack;
  return stack;
}

void attach() {
  connected_driver()->tool->store(&kTool, std::memory_order_release);
  if (start_foreign_clients != nullptr) start_foreign_clients();
}

bool is_subscriber(CUpti_SubscriberHandle handle) {
  bool found = false;
  for_each([&](const CUpti_Subscriber_st& subscriber) { found = found || &subscriber == handle; });
  return found;
}

CUptiResult subscribe(CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void* userdata,
                      const SubscriberParams* params) {
  if (out == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const bool several = params != nullptr && cupti_layout().version >= 130200 &&
                       params->struct_size >= offsetof(SubscriberParams, padding) && params->several != 0;
  const std::lock_guard lock(clients().mutex);
  const CUpti_Subscriber_st* first = nullptr;
  bool all_several = true;
  for_each([&](const CUpti_Subscriber_st& other) {
    if (first == nullptr) first = &other;
    all_several = all_several && other.several;
  });
  if (first != nullptr && params != nullptr && params->old_name != nullptr && params->old_size > 0)
    std::snprintf(params->old_name, params->old_size, "%s", first->name.c_str());
  if (first != nullptr && !(several && all_several)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  for (std::size_t i = 0; i < kMaxSubscribers; ++i) {
    if (clients().subscribers[i].load() != nullptr) continue;
    auto* subscriber = new CUpti_Subscriber_st;  // leaked on unsubscribe: callbacks may be under way
    subscriber->callback = callback;
    subscriber->userdata = userdata;
    subscriber->several = several;
    subscriber->client = static_cast<std::uint32_t>(i + 1);
    subscriber->foreign = acting_as_foreign();
    subscriber->kinds.kernel_kind.store(kKindConcurrentKernel);
    if (params != nullptr && params->name != nullptr) subscriber->name = params->name;
    if (subscriber->foreign) subscriber->name = "foreign";
    clients().subscribers[i].store(subscriber, std::memory_order_release);
    attach();
    *out = subscriber;
    return kOk;
  }
  return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

void unsubscribe(CUpti_SubscriberHandle subscriber) {
  for (const CUpti_CallbackDomain domain :
       {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_SYNCHRONIZE})
    (void)set_callback(subscriber, domain, 0, false);
  const std::lock_guard lock(clients().mutex);
  for (auto& slot : clients().subscribers)
    if (slot.load() == subscriber) slot.store(nullptr);
  set_driver_kinds();
}

CUptiResult set_callback(CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain, std::uint32_t id, bool on) {
  std::uint32_t count = 0;
  std::atomic<std::uint8_t>* own = flags_of(*subscriber, domain, &count);
  std::atomic<std::uint8_t>* all = flags_of(*connected_driver()->wanted, domain, &count);
  if (own == nullptr || id >= count) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(clients().mutex);
  for (std::uint32_t i = id == 0 ? 1 : id; i < (id == 0 ? count : id + 1); ++i) {
    own[i].store(on ? 1 : 0, std::memory_order_relaxed);
    bool wanted = false;
    for_each([&](CUpti_Subscriber_st& s) { wanted = wanted || flags_of(s, domain, &count)[i].load() != 0; });
    set_flag(all[i], kWantCallback, wanted);
  }
  return kOk;
}

CUptiResult choose_family(bool own_forms) {
  const int wanted = own_forms ? 2 : 1;
  int chosen = 0;
  if (clients().family.compare_exchange_strong(chosen, wanted) || chosen == wanted) return kOk;
  return CUPTI_ERROR_NOT_COMPATIBLE;
}

CUptiResult set_kind(CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, bool on) {
  const auto number = static_cast<std::uint32_t>(kind);
  const Settings& s = settings();
  if (on && !acting_as_foreign() &&
      std::find(s.refused_kinds.begin(), s.refused_kinds.end(), number) != s.refused_kinds.end())
    return static_cast<CUptiResult>(s.refused_kinds_result);
  if (number == 0 || number > cupti_layout().max_kind) return CUPTI_ERROR_INVALID_KIND;
  attach();
  Wanted& w = *connected_driver()->wanted;
  const std::lock_guard lock(clients().mutex);
  ClientKinds& kinds = subscriber != nullptr ? subscriber->kinds : clients().global;
  if (kinds.kernel_kind.load() == 0) kinds.kernel_kind.store(kKindConcurrentKernel);
  switch (number) {
    case kKindKernel:
    case kKindConcurrentKernel:
      if (on && kinds.wants(ActivityKind::kKernel) && kinds.kernel_kind.load() != number)
        return CUPTI_ERROR_NOT_COMPATIBLE;
      if (!on && kinds.kernel_kind.load() != number) return kOk;
      kinds.kernel_kind.store(number);
      kinds.set(ActivityKind::kKernel, on);
      break;
    case kKindMemcpy:
      kinds.set(ActivityKind::kMemcpy, on);
      break;
    case kKindMemset:
      kinds.set(ActivityKind::kMemset, on);
      break;
    case kKindGraphTrace:
      kinds.set(ActivityKind::kGraph, on);
      break;
    case kKindExternalCorrelation:
      clients().external.store(on);
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
  set_driver_kinds();
  return kOk;
}

}  // namespace mfu::sim

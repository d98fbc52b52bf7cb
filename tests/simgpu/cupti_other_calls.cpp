// The exported functions of the simulated libcupti.so.N that this library does not call, and other tools do.
#include <cupti.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "cupti_v2.h"
#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_entry.h"
#include "tools/simgpu/cupti/cupti_subscribers.h"

namespace mfu::sim {
void set_timestamp_callback(CUpti_TimestampCallbackFunc callback);  // spoilt_records.cpp
}

using namespace mfu::sim;

namespace {
constexpr CUptiResult kOk = CUPTI_SUCCESS;

struct NamedResult {
  CUptiResult result;
  const char* name;
};
#define SIM_NAMED(result) \
  { result, #result }
constexpr NamedResult kResults[] = {
    SIM_NAMED(CUPTI_SUCCESS),
    SIM_NAMED(CUPTI_ERROR_INVALID_PARAMETER),
    SIM_NAMED(CUPTI_ERROR_INVALID_OPERATION),
    SIM_NAMED(CUPTI_ERROR_OUT_OF_MEMORY),
    SIM_NAMED(CUPTI_ERROR_MAX_LIMIT_REACHED),
    SIM_NAMED(CUPTI_ERROR_NOT_COMPATIBLE),
    SIM_NAMED(CUPTI_ERROR_NOT_INITIALIZED),
    SIM_NAMED(CUPTI_ERROR_QUEUE_EMPTY),
    SIM_NAMED(CUPTI_ERROR_INVALID_KIND),
    SIM_NAMED(CUPTI_ERROR_NOT_SUPPORTED),
    SIM_NAMED(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES),
    SIM_NAMED(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
    SIM_NAMED(CUPTI_ERROR_UNKNOWN),
};

constexpr CUpti_CallbackDomain kDomains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                             CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_SYNCHRONIZE};

CUptiResult own_form(CUpti_SubscriberHandle subscriber) {
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  return choose_family(true);
}
}  // namespace

SIM_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** str) {
  overflow_stack_if_unfit("cuptiGetResultString");
  if (str == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto* const known =
      std::find_if(std::begin(kResults), std::end(kResults), [&](const NamedResult& r) { return r.result == result; });
  *str = known == std::end(kResults) ? nullptr : known->name;
  return *str != nullptr ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
}

SIM_CUPTI(cuptiActivityEnableContext, (CUcontext context, CUpti_ActivityKind kind), {
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  if (!connected_driver()->context_info(context, nullptr, nullptr)) return CUPTI_ERROR_INVALID_PARAMETER;
  return set_kind(nullptr, kind, true);  // the simulated device keeps one switch for all contexts
})

SIM_CUPTI(cuptiActivityFlushPeriod, (uint32_t ms), {
  set_flush_period(ms);
  return kOk;
})

SIM_CUPTI(cuptiActivityRegisterTimestampCallback, (CUpti_TimestampCallbackFunc callback), {
  set_timestamp_callback(callback);
  return kOk;
})

SIM_CUPTI(cuptiActivityPushExternalCorrelationId, (CUpti_ExternalCorrelationKind kind, uint64_t id), {
  external_stack().push_back({static_cast<std::uint32_t>(kind), id});
  return kOk;
})

SIM_CUPTI(cuptiActivityPopExternalCorrelationId, (CUpti_ExternalCorrelationKind kind, uint64_t* last), {
  std::vector<External>& stack = external_stack();
  for (std::size_t i = stack.size(); i-- > 0;) {
    if (stack[i].kind != static_cast<std::uint32_t>(kind)) continue;
    if (last != nullptr) *last = stack[i].id;
    stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(i));
    return kOk;
  }
  return CUPTI_ERROR_QUEUE_EMPTY;
})

SIM_CUPTI(cuptiActivityEnableLatencyTimestamps, (uint8_t /*enable*/), { return kOk; })

SIM_CUPTI(cuptiActivityEnableLaunchAttributes, (uint8_t /*enable*/), { return kOk; })

/// Hardware event tracing needs Blackwell.
SIM_CUPTI(cuptiActivityEnableHWTrace, (uint8_t enable), { return enable == 0 ? kOk : CUPTI_ERROR_NOT_SUPPORTED; })

SIM_CUPTI(cuptiGetStreamIdEx, (CUcontext context, CUstream stream, uint8_t per_thread, uint32_t* id), {
  if (id == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return connected_driver()->stream_id(context, stream, per_thread != 0, id) ? kOk : CUPTI_ERROR_INVALID_STREAM;
})

SIM_CUPTI(cuptiGetGraphId, (CUgraph graph, uint32_t* id),
          { return id != nullptr && connected_driver()->graph_id(graph, id) ? kOk : CUPTI_ERROR_INVALID_PARAMETER; })

SIM_CUPTI(cuptiGetGraphExecId, (CUgraphExec exec, uint32_t* id), {
  return id != nullptr && connected_driver()->graph_exec_id(exec, id) ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
})

SIM_CUPTI(cuptiGetCallbackState,
          (uint32_t * enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain, CUpti_CallbackId cbid), {
            if (enable == nullptr || !is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
            const Layout& layout = cupti_layout();
            const std::atomic<std::uint8_t>* flags = nullptr;
            if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid <= layout.max_driver_cbid) flags = subscriber->driver;
            if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && cbid <= layout.max_runtime_cbid) flags = subscriber->runtime;
            if (domain == CUPTI_CB_DOMAIN_RESOURCE && cbid < 24) flags = subscriber->resource;
            if (domain == CUPTI_CB_DOMAIN_SYNCHRONIZE && cbid < 3) flags = subscriber->synchronize;
            if (flags == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
            *enable = flags[cbid].load();
            return kOk;
          })

SIM_EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                         CUpti_CallbackDomain domain) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiEnableDomain)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_STATE || domain == CUPTI_CB_DOMAIN_NVTX) return kOk;
  return set_callback(subscriber, domain, 0, enable != 0);
}

SIM_EXPORT CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiEnableAllDomains)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  for (const CUpti_CallbackDomain domain : kDomains) (void)set_callback(subscriber, domain, 0, enable != 0);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiFinalize() {
  rule_broken("cuptiFinalize was called: it stops every thread of the process and crashes with CUDA graphs");
  return kOk;
}

SIM_CUPTI(cuptiActivityDisable, (CUpti_ActivityKind kind), {
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  return set_kind(nullptr, kind, false);
})

SIM_CUPTI_AS(cuptiActivityDisable_v2,
             (CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, const void* /*config*/), {
               if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
               if (const CUptiResult mixed = choose_family(true); mixed != kOk) return mixed;
               return set_kind(subscriber, kind, false);
             })

SIM_CUPTI_AS(cuptiActivitySetAttribute_v2,
             (CUpti_SubscriberHandle subscriber, CUpti_ActivityAttribute attribute, size_t* size, void* value), {
               return is_subscriber(subscriber) ? cuptiActivitySetAttribute(attribute, size, value)
                                                : CUPTI_ERROR_INVALID_PARAMETER;
             })

SIM_CUPTI_AS(cuptiActivityGetAttribute_v2,
             (CUpti_SubscriberHandle subscriber, CUpti_ActivityAttribute attribute, size_t* size, void* value), {
               return is_subscriber(subscriber) ? cuptiActivityGetAttribute(attribute, size, value)
                                                : CUPTI_ERROR_INVALID_PARAMETER;
             })

// Activity API from 13.2 on, separately for each subscriber. Several live side by side where each of them asked for
// that; their records have every field.

SIM_CUPTI_AS(cuptiActivityRegisterCallbacks_v2,
             (CUpti_SubscriberHandle subscriber, BufferRequestedV2 requested, BufferCompletedV2 completed), {
               if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
               if (const CUptiResult refused = own_form(subscriber); refused != kOk) return refused;
               BufferCallbacks callbacks;
               callbacks.requested = [requested](std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
                 BufferRequestInfoV2 info{sizeof info};
                 requested(buffer, size, most, &info);
               };
               callbacks.completed = [completed](std::uint8_t* buffer, std::size_t size, std::size_t valid) {
                 BufferCompleteInfoV2 info{sizeof info, thread_id(), nullptr, 0};
                 completed(buffer, size, valid, &info);
               };
               callbacks.foreign = acting_as_foreign();
               set_buffer_callbacks(subscriber->client, callbacks);
               return kOk;
             })

SIM_CUPTI_AS(cuptiActivityEnable_v2,
             (CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, const void* /*config*/), {
               if (const CUptiResult refused = own_form(subscriber); refused != kOk) return refused;
               // Between subscribers, graphs are nodes for all or for none;
               // CUPTI_ACTIVITY_ATTR_ENABLE_MULTI_SUBSCRIBER_GRAPH_TRACE is 0 here.
               if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE && subscriber->several) return CUPTI_ERROR_NOT_COMPATIBLE;
               return set_kind(subscriber, kind, true);
             })

SIM_EXPORT_AS(cuptiActivityGetNextRecord_v2,
              (CUpti_SubscriberHandle subscriber, uint8_t* buffer, size_t valid, CUpti_Activity** record)) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  return cuptiActivityGetNextRecord(buffer, valid, record);
}

SIM_CUPTI_AS(cuptiActivityGetNumDroppedRecords_v2,
             (CUpti_SubscriberHandle subscriber, CUcontext /*context*/, uint32_t /*stream*/, size_t* dropped), {
               if (dropped == nullptr || !is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
               *dropped = take_dropped(subscriber->client);
               return kOk;
             })

SIM_CUPTI_AS(cuptiGetTimestamp_v2, (CUpti_SubscriberHandle subscriber, uint64_t* timestamp), {
  if (timestamp == nullptr || !is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = cupti_timestamp();
  return kOk;
})

/// Whether any client has a kind enabled.
SIM_CUPTI_AS(cuptiIsTracingSessionRunning, (uint8_t * running), {
  if (running == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *running = connected_driver()->wanted->any_activity() ? 1 : 0;
  return kOk;
})

// The exported functions of the simulated libcupti.so.N that name a subscriber: the Callback API, and from 13.2 on the
// Activity API, separately for each subscriber. Several subscribers live side by side where each of them asked
// for that; their records have every field.
#include <cupti.h>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_entry.h"
#include "tools/simgpu/cupti/cupti_records.h"
#include "tools/simgpu/cupti/cupti_subscribers.h"
#include "tools/simgpu/cupti/test_hooks.h"

using namespace mfu::sim;

namespace {
constexpr CUptiResult kOk = CUPTI_SUCCESS;

constexpr CUpti_CallbackDomain kDomains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                             CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_SYNCHRONIZE};

CUptiResult own_form(CUpti_SubscriberHandle subscriber) {
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  return choose_family(true);
}
}  // namespace

// Callback API ---------------------------------------------------------------------------------------------------

SIM_CUPTI(cuptiSubscribe, (CUpti_SubscriberHandle * out, CUpti_CallbackFunc callback, void* userdata),
          { return subscribe(out, callback, userdata, nullptr); })

SIM_CUPTI_AS(cuptiSubscribe_v2,
             (CUpti_SubscriberHandle * out, CUpti_CallbackFunc callback, void* userdata, SubscriberParams* params),
             { return subscribe(out, callback, userdata, params); })

SIM_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiUnsubscribe)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  unsubscribe(subscriber);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                           CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ENTER_WITH_DRIVER(cuptiEnableCallback)
  if (!is_subscriber(subscriber)) return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_STATE)
    return cbid >= 1 && cbid <= 3 && cupti_layout().version >= 20 ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_NVTX) return kOk;
  return cbid == 0 ? CUPTI_ERROR_INVALID_PARAMETER : set_callback(subscriber, domain, cbid, enable != 0);
}

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

// Activity API, one subscriber's -----------------------------------------------------------------------------------

SIM_CUPTI_AS(cuptiActivityRegisterCallbacks_v2,
             (CUpti_SubscriberHandle subscriber, BufferRequestedV2 requested, BufferCompletedV2 completed), {
               if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
               if (const CUptiResult refused = own_form(subscriber); refused != kOk) return refused;
               BufferCallbacks callbacks;
               callbacks.requested_v2 = requested;
               callbacks.completed_v2 = completed;
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

// The Callback API of the simulated libcupti.so.N.
#include <cupti.h>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_entry.h"
#include "tools/simgpu/cupti/cupti_records.h"
#include "tools/simgpu/cupti/cupti_subscribers.h"
#include "tools/simgpu/cupti/test_hooks.h"

using namespace mfu::sim;

namespace {
constexpr CUptiResult kOk = CUPTI_SUCCESS;
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

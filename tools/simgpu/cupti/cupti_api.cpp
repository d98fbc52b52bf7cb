// The exported functions of the simulated libcupti.so.N: the Activity API as far as tracing tools use it, in the forms
// that name no subscriber, and what belongs to neither API. Rules of the real library that a client must not break end
// in an abort with a line on stderr.
#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_entry.h"
#include "tools/simgpu/cupti/cupti_records.h"
#include "tools/simgpu/cupti/cupti_subscribers.h"
#include "tools/simgpu/cupti/test_hooks.h"

// The forms of a call that name no subscriber are refused once the others were used.
#define ENTER_GLOBAL_FORM \
  if (const CUptiResult mixed = choose_family(false); mixed != CUPTI_SUCCESS) return mixed;
#define SIM_CUPTI_GLOBAL(name, parameters, ...) SIM_CUPTI(name, parameters, {ENTER_GLOBAL_FORM __VA_ARGS__})

namespace {

using namespace mfu::sim;

constexpr CUptiResult kOk = CUPTI_SUCCESS;

struct Api {
  std::mutex mutex;
  std::map<std::uint32_t, std::uint64_t> attributes;
};

Api& api() {
  static Api* const instance = new Api;
  return *instance;
}

/// Switches the records of one function of an API.
CUptiResult set_api_record(std::atomic<std::uint8_t>* flags, CUpti_CallbackId cbid, std::uint32_t max_cbid, bool on) {
  if (cbid == 0 || cbid > max_cbid) return CUPTI_ERROR_INVALID_PARAMETER;
  attach();
  set_flag(flags[cbid], kWantRecord, on);
  return kOk;
}

}  // namespace

// Callback API ---------------------------------------------------------------------------------------------------

SIM_EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  overflow_stack_if_unfit("cuptiGetVersion");
  if (const CUptiResult early = scripted("cuptiGetVersion"); early != kOk) return early;
  if (needs_driver_for_anything() && !driver_is_fit()) return CUPTI_ERROR_UNKNOWN;
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = cupti_layout().version;
  return kOk;
}

// Activity API ---------------------------------------------------------------------------------------------------

SIM_EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                      CUpti_BuffersCallbackCompleteFunc completed) {
  ENTER_ANYWHERE(cuptiActivityRegisterCallbacks)
  ENTER_GLOBAL_FORM
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  BufferCallbacks callbacks;
  callbacks.requested = requested;
  callbacks.completed = [completed](std::uint8_t* buffer, std::size_t size, std::size_t valid) {
    completed(nullptr, 0, buffer, size, valid);
  };
  callbacks.foreign = acting_as_foreign();
  set_buffer_callbacks(0, callbacks);
  return kOk;
}

SIM_CUPTI_GLOBAL(cuptiActivityEnable, (CUpti_ActivityKind kind), { return set_kind(nullptr, kind, true); })

SIM_CUPTI_GLOBAL(cuptiActivityEnableDriverApi, (CUpti_CallbackId cbid, uint8_t enable), {
  return set_api_record(connected_driver()->wanted->driver, cbid, cupti_layout().max_driver_cbid, enable != 0);
})

SIM_CUPTI_GLOBAL(cuptiActivityEnableRuntimeApi, (CUpti_CallbackId cbid, uint8_t enable), {
  return set_api_record(connected_driver()->wanted->runtime, cbid, cupti_layout().max_runtime_cbid, enable != 0);
})

SIM_CUPTI(cuptiActivityFlushAll, (uint32_t flag), {
  const ThreadState& thread = *connected_driver()->thread();
  if (thread.buffer_callback != 0)
    rule_broken("cuptiActivityFlushAll was called inside a buffer callback: it deadlocks");
  if (thread.resource_callback != 0)
    rule_broken("cuptiActivityFlushAll was called inside a resource callback: it deadlocks");
  const bool forced = (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0;
  if (settings().flush_on_worker)
    flush_on_worker(forced);
  else
    flush_buffers(forced);
  return kOk;
})

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
  ENTER_GLOBAL_FORM
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = take_dropped(0);
  return kOk;
}

SIM_CUPTI(cuptiActivitySetAttribute, (CUpti_ActivityAttribute attribute, size_t* size, void* value), {
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto number = static_cast<std::uint32_t>(attribute);
  if (number > (cupti_layout().version >= 130000 ? 10u : cupti_layout().version >= 21 ? 9u : 8u))
    return CUPTI_ERROR_INVALID_PARAMETER;
  std::uint64_t word = 0;
  std::memcpy(&word, value, std::min(*size, sizeof word));
  const std::lock_guard lock(api().mutex);
  api().attributes[number] = word;
  if (number == CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT) set_device_buffer_limit(word);
  if (number == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER) set_buffers_zeroed((word & 0xFF) == 0);
  if (number == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) set_per_thread_buffers((word & 0xFF) != 0);
  return kOk;
})

SIM_CUPTI(cuptiActivityGetAttribute, (CUpti_ActivityAttribute attribute, size_t* size, void* value), {
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
})

SIM_EXPORT CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  ENTER_ANYWHERE(cuptiGetTimestamp)
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = cupti_timestamp();
  return kOk;
}

SIM_CUPTI(cuptiSetThreadIdType, (CUpti_ActivityThreadIdType /*type*/), { return kOk; })

SIM_CUPTI(cuptiGetContextId, (CUcontext context, uint32_t* id), {
  if (id == nullptr || !connected_driver()->context_info(context, id, nullptr)) return CUPTI_ERROR_INVALID_CONTEXT;
  return kOk;
})

SIM_CUPTI(cuptiGetDeviceId, (CUcontext context, uint32_t* id), {
  if (id == nullptr || !connected_driver()->context_info(context, nullptr, id)) return CUPTI_ERROR_INVALID_CONTEXT;
  return kOk;
})

SIM_CUPTI(cuptiGetGraphNodeId, (CUgraphNode node, uint64_t* id), {
  return id != nullptr && connected_driver()->graph_node_id(node, id) ? kOk : CUPTI_ERROR_INVALID_PARAMETER;
})

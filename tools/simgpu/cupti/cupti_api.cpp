// The exported functions of the simulated libcupti.so.N: the Activity API as far as tracing tools use it, in the forms
// that name no subscriber, and what belongs to neither API. Rules of the real library that a client must not break end
// in an abort with a line on stderr.
#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tools/simgpu/cupti/cupti_buffers.h"
#include "tools/simgpu/cupti/cupti_entry.h"
#include "tools/simgpu/cupti/cupti_foreign.h"
#include "tools/simgpu/cupti/cupti_records.h"
#include "tools/simgpu/cupti/cupti_subscribers.h"

namespace {

using namespace mfu::sim;

constexpr CUptiResult kOk = CUPTI_SUCCESS;

struct Api {
  std::mutex mutex;
  std::uint32_t thread_id_type = 0;
  std::map<std::uint32_t, std::uint64_t> attributes;
};

Api& api() {
  static Api* const instance = new Api;
  return *instance;
}

void set_api_record(std::atomic<std::uint8_t>& flag, bool on) {
  if (on) {
    flag.fetch_or(kWantRecord, std::memory_order_relaxed);
  } else {
    flag.fetch_and(static_cast<std::uint8_t>(~kWantRecord), std::memory_order_relaxed);
  }
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

// Activity API ---------------------------------------------------------------------------------------------------

SIM_EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                      CUpti_BuffersCallbackCompleteFunc completed) {
  ENTER_ANYWHERE(cuptiActivityRegisterCallbacks)
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  BufferCallbacks callbacks;
  callbacks.requested = requested;
  callbacks.completed = completed;
  callbacks.foreign = acting_as_foreign();
  set_buffer_callbacks(0, callbacks);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  ENTER_WITH_DRIVER(cuptiActivityEnable)
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  return set_kind(nullptr, kind, true);
}

SIM_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  ENTER_WITH_DRIVER(cuptiActivityDisable)
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  return set_kind(nullptr, kind, false);
}

SIM_EXPORT CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind) {
  ENTER_WITH_DRIVER(cuptiActivityEnableContext)
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  if (!connected_driver()->context_info(context, nullptr, nullptr)) return CUPTI_ERROR_INVALID_PARAMETER;
  return set_kind(nullptr, kind, true);  // the simulated device keeps one switch for all contexts
}

SIM_EXPORT CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
  ENTER_WITH_DRIVER(cuptiActivityEnableDriverApi)
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  if (cbid == 0 || cbid > cupti_layout().max_driver_cbid) return CUPTI_ERROR_INVALID_PARAMETER;
  attach();
  set_api_record(connected_driver()->wanted->driver[cbid], enable != 0);
  return kOk;
}

SIM_EXPORT CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
  ENTER_WITH_DRIVER(cuptiActivityEnableRuntimeApi)
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  if (cbid == 0 || cbid > cupti_layout().max_runtime_cbid) return CUPTI_ERROR_INVALID_PARAMETER;
  attach();
  set_api_record(connected_driver()->wanted->runtime[cbid], enable != 0);
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
  if (const CUptiResult mixed = choose_family(false); mixed != kOk) return mixed;
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = take_dropped(0);
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

/// For tests: makes a foreign client do its next thing on the calling thread. `action`: start or stop.
SIM_EXPORT int simgpu_foreign(const char* kind, const char* action) { return run_foreign_client(kind, action) ? 0 : 1; }

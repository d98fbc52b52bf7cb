// The exported functions of the simulated libcuda.so.1 that programs call, and the demo does not: events.
#include "tools/simgpu/driver/driver_call.h"

namespace {

using namespace mfu::sim;

/// Hands what a handle names to `body`.
template <typename Body>
CUresult with_event(CUevent handle, Body&& body) {
  auto* event = as<Event>(handle, Magic::kEvent);
  return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(*event);
}

CUresult record_on(CUevent handle, CUstream stream, bool per_thread) {
  return with_event(handle, [&](Event& event) {
    return on_stream(stream, per_thread, [&](Stream& s) { return record_event(event, s); });
  });
}

CUresult elapsed_time(float* ms, CUevent first, CUevent last) {
  auto* start = as<Event>(first, Magic::kEvent);
  auto* end = as<Event>(last, Magic::kEvent);
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!start->recorded.load() || !end->recorded.load()) return CUDA_ERROR_INVALID_HANDLE;
  if (end->time_ns.load() > now_ns()) return CUDA_ERROR_NOT_READY;
  *ms = static_cast<float>(static_cast<double>(end->time_ns.load() - start->time_ns.load()) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_STREAM_API(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned Flags), (hStream, hEvent, Flags), {
  return with_event(hEvent, [&](Event& event) {
    return on_stream(hStream, per_thread, [&](Stream& s) { return wait_event(s, event); });
  });
})
SIM_STREAM_API(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void* userData), (hStream, fn, userData),
               { return on_stream(hStream, per_thread, [&](Stream& s) { return host_function(s, fn, userData); }); })
SIM_API(cuEventCreate, (CUevent * phEvent, unsigned Flags), (phEvent, Flags), {
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto* event = new Event;
  event->context = context;
  *phEvent = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
})
SIM_API(cuEventDestroy_v2, (CUevent hEvent), (hEvent), {
  return with_event(hEvent, [](Event& event) {
    event.magic = Magic::kDead;
    delete &event;
    return CUDA_SUCCESS;
  });
})
SIM_STREAM_API(cuEventRecord, (CUevent hEvent, CUstream hStream), (hEvent, hStream),
               { return record_on(hEvent, hStream, per_thread); })
SIM_STREAM_API(cuEventRecordWithFlags, (CUevent hEvent, CUstream hStream, unsigned flags), (hEvent, hStream, flags),
               { return record_on(hEvent, hStream, per_thread); })
SIM_API(cuEventQuery, (CUevent hEvent), (hEvent), {
  return with_event(
      hEvent, [](Event& event) { return event.time_ns.load() <= now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; });
})
SIM_API(cuEventSynchronize, (CUevent hEvent), (hEvent),
        { return with_event(hEvent, [](Event& event) { return synchronize_event(event); }); })
SIM_API(cuEventElapsedTime, (float* ms, CUevent hStart, CUevent hEnd), (ms, hStart, hEnd),
        { return elapsed_time(ms, hStart, hEnd); })
SIM_API(cuEventElapsedTime_v2, (float* ms, CUevent hStart, CUevent hEnd), (ms, hStart, hEnd),
        { return elapsed_time(ms, hStart, hEnd); })

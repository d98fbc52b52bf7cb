// The exported functions of the simulated libcuda.so.1 that programs call, and the demo does not: events, host
// functions, and whether a stream is done.
#include <pthread.h>

#include <algorithm>

#include "tools/simgpu/driver/driver_call.h"
#include "tools/simgpu/driver/engine_state.h"

namespace mfu::sim {

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
  // The driver runs it on its own thread; the stream does not wait for its length here.
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

}  // namespace mfu::sim

namespace {

using namespace mfu::sim;

CUresult query_stream(Stream& stream) {
  const std::lock_guard lock(stream.context->mutex);
  if (capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stream.tail_ns <= now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
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
SIM_STREAM_API(cuStreamQuery, (CUstream hStream), (hStream),
               { return on_stream(hStream, per_thread, [](Stream& s) { return query_stream(s); }); })

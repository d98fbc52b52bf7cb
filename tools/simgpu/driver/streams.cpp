#include "tools/simgpu/driver/engine_state.h"

#include <algorithm>

namespace mfu::sim {

std::int64_t ready_at(const Stream& stream) {
  const Context& context = *stream.context;
  std::int64_t ready = stream.tail_ns;
  if (&stream == &context.legacy) {
    for (const Stream* other : context.streams)
      if (other->blocking) ready = std::max(ready, other->tail_ns);
  } else if (stream.blocking) {
    ready = std::max(ready, context.legacy.tail_ns);
  }
  return ready;
}

std::int64_t earliest_start(const Stream& stream, std::int64_t now) {
  return std::max(now + settings().launch_latency_ns, ready_at(stream) + settings().gap_ns);
}

std::int64_t enqueue(Stream& stream, std::int64_t end_ns) {
  const std::uint32_t depth = settings().queue_depth;
  if (depth == 0) return 0;
  if (stream.in_flight.size() < depth) {
    stream.in_flight.push_back(end_ns);
    return 0;
  }
  const std::int64_t oldest = stream.in_flight[stream.in_flight_at];
  stream.in_flight[stream.in_flight_at] = end_ns;
  stream.in_flight_at = (stream.in_flight_at + 1) % depth;
  return oldest;
}

void init_stream(Stream& stream, Context& context, std::uint32_t id, unsigned flags, int priority) {
  stream.context = &context;
  stream.id = id;
  stream.flags = flags;
  stream.priority = priority;
  stream.blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
}

CUresult resolve_stream(CUstream handle, bool per_thread, Stream** out) {
  if (handle == nullptr) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* context = current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle == CU_STREAM_LEGACY) {
      *out = &context->legacy;
      return CUDA_SUCCESS;
    }
    auto*& streams = thread_contexts().per_thread_streams;
    if (streams == nullptr) streams = new std::unordered_map<std::uint32_t, Stream*>;
    Stream*& stream = (*streams)[context->uid];
    if (stream == nullptr) {
      stream = new Stream;
      const std::lock_guard lock(context->mutex);
      init_stream(*stream, *context, context->next_stream_id++, 0, 0);
      context->streams.push_back(stream);
    }
    *out = stream;
    return CUDA_SUCCESS;
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!alive(stream, Magic::kStream)) return CUDA_ERROR_INVALID_HANDLE;
  *out = stream;
  return CUDA_SUCCESS;
}

CUresult create_stream(CUstream* out, unsigned flags, int priority) {
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* stream = new Stream;
  {
    const std::lock_guard lock(context->mutex);
    init_stream(*stream, *context, context->next_stream_id++, flags, priority);
    context->streams.push_back(stream);
  }
  *out = reinterpret_cast<CUstream>(stream);
  resource_callback(
      ResourceEvent{.cbid = kStreamCreated, .context = reinterpret_cast<CUcontext>(context), .stream = *out});
  return CUDA_SUCCESS;
}

CUresult synchronize_stream(Stream& stream) {
  std::int64_t until = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (capturing(stream)) {
      stream.capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    until = &stream == &stream.context->legacy ? ready_at(stream) : stream.tail_ns;
  }
  sleep_until(until);
  synchronize_callback(1, stream.context, reinterpret_cast<CUstream>(&stream));
  return CUDA_SUCCESS;
}

std::int64_t start_of_next(Stream& stream) {
  const std::lock_guard lock(stream.context->mutex);
  return earliest_start(stream, now_ns());
}

}  // namespace mfu::sim

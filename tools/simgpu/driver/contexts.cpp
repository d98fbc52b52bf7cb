#include "tools/simgpu/driver/engine_state.h"

#include <algorithm>
#include <memory>

namespace mfu::sim {

Context* current_context() noexcept {
  const auto& stack = thread_contexts().stack;
  if (stack.empty()) return nullptr;
  return alive(stack.back(), Magic::kContext) ? stack.back() : nullptr;
}

CUresult set_current(Context* context) {
  if (context != nullptr && !alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = thread_contexts().stack;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr && !stack.push_back(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

namespace {

/// Other threads may hold a context as current that is destroyed, and it must answer that it is. So it is kept until
/// many younger ones are gone; then its memory is a new context's, as with any driver.
Context* new_context(Process& p) {
  constexpr std::size_t kKept = 1024;
  if (p.dead_contexts.size() < kKept) return new Context;
  Context* const oldest = p.dead_contexts.front();
  p.dead_contexts.pop_front();
  std::destroy_at(oldest);
  return std::construct_at(oldest);
}

}  // namespace

CUresult create_context(Context** out, unsigned flags, int ordinal) {
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Process& p = process();
  Context* context = nullptr;
  {
    const std::lock_guard lock(p.mutex);
    context = new_context(p);
    context->uid = p.next_context++;
    p.contexts.push_back(context);
  }
  context->device = device;
  context->flags = flags;
  init_stream(context->legacy, *context, kDefaultStreamId, 0, 0);
  *out = context;
  resource_callback(ResourceEvent{.cbid = kContextCreated, .context = reinterpret_cast<CUcontext>(context)});
  return CUDA_SUCCESS;
}

CUresult retain_primary(Context** out, int ordinal) {
  Device* device = device_at(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  if (device->primary == nullptr)
    if (const CUresult result = create_context(&device->primary, 0, ordinal); result != CUDA_SUCCESS) return result;
  ++device->primary_uses;
  *out = device->primary;
  return CUDA_SUCCESS;
}

CUresult synchronize_context(Context* context) {
  if (!alive(context, Magic::kContext)) return CUDA_ERROR_INVALID_CONTEXT;
  std::int64_t until = 0;
  {
    const std::lock_guard lock(context->mutex);
    until = context->legacy.tail_ns;
    for (const Stream* stream : context->streams) {
      if (capturing(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      until = std::max(until, stream->tail_ns);
    }
  }
  sleep_until(until);
  synchronize_callback(2, context, nullptr);
  return CUDA_SUCCESS;
}

}  // namespace mfu::sim

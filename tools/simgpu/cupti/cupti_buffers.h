// Activity buffers of the simulated libcupti: asked for when the first record of a batch is made, on the launching
// thread; handed back, filled, by a worker thread of CUPTI's own or by the thread that flushes.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <functional>

#include "tools/simgpu/cupti/cupti_records.h"
#include "tools/simgpu/interface.h"

namespace mfu::sim {

/// The layout in force: as built, or what SIMGPU_CUPTI_VERSION says.
const Layout& cupti_layout();

/// The driver of this process; nullptr when there is none, or when it is not the simulated one. Looked for on every
/// call until it is there, as the real library does.
const Driver* connected_driver();

/// Who hands out buffers and takes them back.
struct BufferCallbacks {
  std::function<void(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records)> requested;
  std::function<void(std::uint8_t* buffer, std::size_t size, std::size_t valid)> completed;
  bool foreign = false;
};
/// Client 0 names no subscriber; every subscriber has its own number.
inline constexpr std::uint32_t kClients = 5;
void set_buffer_callbacks(std::uint32_t client, const BufferCallbacks& callbacks);
void set_per_thread_buffers(bool on);
bool per_thread_buffers();
/// CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT.
void set_device_buffer_limit(std::uint64_t buffers);
/// Whether a buffer is filled with zeros when the client hands it over, on the client's thread.
void set_buffers_zeroed(bool on);
bool buffers_are_zeroed();

/// cuptiGetTimestamp.
[[nodiscard]] std::uint64_t cupti_timestamp();

void record_activity(const Activity& activity, std::uint32_t kernel_kind, std::uint32_t client);
void record_api(const ApiRecord& record);
void record_external(std::uint32_t kind, std::uint64_t id, std::uint32_t correlation);

/// cuptiActivityFlushAll. Without `forced` only buffers whose records are all complete are handed back.
void flush_buffers(bool forced);
/// The same from the worker thread; returns when it is done.
void flush_on_worker(bool forced);
void set_flush_period(std::uint32_t ms);
/// Dropped records since the last call.
[[nodiscard]] std::size_t take_dropped(std::uint32_t client);

}  // namespace mfu::sim

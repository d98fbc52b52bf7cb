#include "tools/simgpu/driver/memory.h"

#include <map>
#include <mutex>

#include "tools/simgpu/driver/engine.h"

namespace mfu::sim {
namespace {

constexpr std::size_t kGranularity = 512;

struct Block {
  std::size_t bytes = 0;
  Device* device = nullptr;
};

struct Memory {
  std::mutex mutex;
  std::map<std::uint64_t, Block> device;  ///< by first address
  std::uint64_t next = kFirstDeviceAddress;
};

/// Leaked: threads of the program may still copy while the process exits.
Memory& memory() {
  static Memory* const instance = new Memory;
  return *instance;
}

Device* current_device() {
  const Context* context = current_context();
  return context == nullptr ? nullptr : context->device;
}

}  // namespace

CUresult allocate(CUdeviceptr* out, std::size_t bytes) {
  Device* const device = current_device();
  if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (device->allocated.load() + bytes > device->spec->memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::size_t taken = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  if (m.next + taken > kFirstDeviceAddress + kDeviceAddresses) return CUDA_ERROR_OUT_OF_MEMORY;
  if (map_contents != nullptr) map_contents();
  *out = m.next;
  m.next += taken;
  m.device[*out] = {bytes, device};
  device->allocated.fetch_add(bytes);
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto it = m.device.find(address);
  if (it == m.device.end()) return CUDA_ERROR_INVALID_VALUE;
  it->second.device->allocated.fetch_sub(it->second.bytes);
  if (drop_contents != nullptr) drop_contents(address, it->second.bytes);
  m.device.erase(it);
  return CUDA_SUCCESS;
}

bool device_pointer(std::uint64_t address, PointerInfo* out) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  auto it = m.device.upper_bound(address);
  if (it == m.device.begin() || address - (--it)->first >= it->second.bytes) return false;
  *out = {true, it->first, it->second.bytes, it->second.device->ordinal};
  return true;
}

}  // namespace mfu::sim

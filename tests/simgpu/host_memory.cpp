// The page-locked host memory of the simulated GPU.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tools/simgpu/driver/engine.h"
#include "tools/simgpu/driver/memory.h"

namespace mfu::sim {
namespace {

struct Block {
  std::size_t bytes = 0;
  Device* device = nullptr;
  bool ours = true;  ///< false where the program registered its own
};

struct Memory {
  std::mutex mutex;
  std::map<std::uint64_t, Block> host;  ///< by first address
};

/// Leaked: threads of the program may still copy while the process exits.
Memory& memory() {
  static Memory* const instance = new Memory;
  return *instance;
}

const Block* find(const std::map<std::uint64_t, Block>& blocks, std::uint64_t address, std::uint64_t* begin) {
  auto it = blocks.upper_bound(address);
  if (it == blocks.begin()) return nullptr;
  --it;
  if (address - it->first >= it->second.bytes) return nullptr;
  *begin = it->first;
  return &it->second;
}

Device* current_device() {
  const Context* context = current_context();
  return context == nullptr ? nullptr : context->device;
}

}  // namespace

CUresult allocate_host(void** out, std::size_t bytes) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* const p = std::aligned_alloc(4096, (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096);
  if (p == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.host[reinterpret_cast<std::uint64_t>(p)] = {bytes, current_device()};
  *out = p;
  return CUDA_SUCCESS;
}

CUresult release_host(void* address) {
  if (address == nullptr) return CUDA_SUCCESS;
  Memory& m = memory();
  {
    const std::lock_guard lock(m.mutex);
    const auto it = m.host.find(reinterpret_cast<std::uint64_t>(address));
    if (it == m.host.end() || !it->second.ours) return CUDA_ERROR_INVALID_VALUE;
    m.host.erase(it);
  }
  std::free(address);
  return CUDA_SUCCESS;
}

CUresult register_host(void* address, std::size_t bytes) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  std::uint64_t begin = 0;
  if (find(m.host, reinterpret_cast<std::uint64_t>(address), &begin) != nullptr) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  m.host[reinterpret_cast<std::uint64_t>(address)] = {bytes, current_device(), false};
  return CUDA_SUCCESS;
}

CUresult unregister_host(void* address) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto it = m.host.find(reinterpret_cast<std::uint64_t>(address));
  if (it == m.host.end() || it->second.ours) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  m.host.erase(it);
  return CUDA_SUCCESS;
}

bool pointer_info(std::uint64_t address, PointerInfo* out) {
  if (on_device(address)) return device_pointer(address, out);
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const Block* block = find(m.host, address, &out->begin);
  if (block == nullptr) return false;
  out->device_memory = false;
  out->bytes = block->bytes;
  out->ordinal = block->device == nullptr ? 0 : block->device->ordinal;
  return true;
}

}  // namespace mfu::sim

// The memory of the simulated devices: addresses and who owns them. Kernels compute nothing.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace mfu::sim {

struct Device;

/// Every device address lies in here, whichever device it belongs to. Below all that the loader and malloc hand out.
inline constexpr std::uint64_t kFirstDeviceAddress = 0x2000'0000'0000ull;
inline constexpr std::uint64_t kDeviceAddresses = 2ull << 40;

inline bool on_device(CUdeviceptr p) noexcept { return p - kFirstDeviceAddress < kDeviceAddresses; }

CUresult allocate(CUdeviceptr* out, std::size_t bytes);
CUresult release(CUdeviceptr address);
/// The allocation that holds an address.
struct PointerInfo {
  bool device_memory = false;  ///< otherwise page-locked host memory
  std::uint64_t begin = 0;
  std::size_t bytes = 0;
  int ordinal = 0;  ///< device it belongs to
};
/// False where no device memory is allocated there.
bool device_pointer(std::uint64_t address, PointerInfo* out);

/// Where the tests add it: page-locked host memory, allocated here, or the program's own that it registered.
CUresult allocate_host(void** out, std::size_t bytes);
CUresult release_host(void* address);
CUresult register_host(void* address, std::size_t bytes);
CUresult unregister_host(void* address);
/// False where nothing is allocated or registered there.
bool pointer_info(std::uint64_t address, PointerInfo* out);

/// Contents, where the tests add them: copies `rows` of `width` bytes, on either side. Nothing above 64 MiB: buffers of
/// that size hold weights, which are not read back.
[[gnu::weak]] void move_rows(std::uint64_t to, std::size_t to_pitch, std::uint64_t from, std::size_t from_pitch,
                             std::size_t width, std::size_t rows);
/// Fills `count` elements of `width` (1, 2 or 4) bytes.
[[gnu::weak]] void set_contents(std::uint64_t to, std::uint32_t value, std::size_t width, std::size_t count);
[[gnu::weak]] void map_contents();
[[gnu::weak]] void drop_contents(std::uint64_t address, std::size_t bytes);

}  // namespace mfu::sim

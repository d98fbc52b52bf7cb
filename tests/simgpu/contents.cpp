// SIMGPU_MEMORY=contents: device memory holds zeros and what was copied or set there.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/simgpu/driver/memory.h"
#include "tools/simgpu/settings.h"

namespace mfu::sim {
namespace {

constexpr std::size_t kMostContents = 64u << 20;

bool has_contents(std::size_t bytes) { return settings().memory_contents && bytes > 0 && bytes <= kMostContents; }

}  // namespace

/// Reserves the whole range once: pages come to be when they are written.
void map_contents() {
  static const bool mapped = [] {
    if (!settings().memory_contents) return false;
    void* const wanted = reinterpret_cast<void*>(kFirstDeviceAddress);
    void* const at = mmap(wanted, kDeviceAddresses, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != wanted) {
      std::fprintf(stderr, "[simgpu] SIMGPU_MEMORY=contents: 2 TiB of addresses cannot be reserved\n");
      std::abort();
    }
    madvise(wanted, kDeviceAddresses, MADV_NOHUGEPAGE);
    return true;
  }();
  (void)mapped;
}

void drop_contents(std::uint64_t address, std::size_t bytes) {
  if (!settings().memory_contents) return;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = (address + page - 1) / page * page, last = (address + bytes) / page * page;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void move_rows(std::uint64_t to, std::size_t to_pitch, std::uint64_t from, std::size_t from_pitch, std::size_t width,
               std::size_t rows) {
  if (!has_contents(width * rows)) return;
  for (std::size_t row = 0; row < rows; ++row)
    std::memmove(reinterpret_cast<void*>(to + row * to_pitch), reinterpret_cast<const void*>(from + row * from_pitch),
                 width);
}

void set_contents(std::uint64_t to, std::uint32_t value, std::size_t width, std::size_t count) {
  if (!has_contents(width * count)) return;
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  if (width == 1) {
    std::memset(bytes, static_cast<int>(value & 0xFF), count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes + i * width, &value, width);
}

}  // namespace mfu::sim

// The library's own operator new: hidden, so that the host's stays what it is. [any thread]
//
// A refused allocation must not end the host. Exceptions would do where they are caught, but destructors and moves that
// are noexcept allocate too (those of a JSON tree do), and an exception there is std::terminate. So the first refused
// request, and those that follow while everything comes to its end, are served from a reserve, and the library goes
// inert at once.
#include "injection/guards/allocation.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "cuda/host_thread.h"
#include "cuda/nvtx_handler.h"

namespace mfu {
namespace {

// Untouched pages of it cost nothing. The start of a run with a large config takes less than 1 MiB.
constexpr std::size_t kReserve = std::size_t{4} << 20;
// The last part is for what cannot be refused: small requests, such as those of noexcept functions.
constexpr std::size_t kForAll = std::size_t{3} << 20;
constexpr std::size_t kSmall = 4096;

alignas(64) char g_reserve[kReserve];
std::atomic<std::size_t> g_used{0};
std::atomic<bool> g_refused{false};

/// Never given back: memory from here lasts as long as the process.
[[maybe_unused]] void* from_reserve(std::size_t size, std::size_t alignment) noexcept {
  if (!g_refused.exchange(true, std::memory_order_relaxed)) host_counters().add(Counter::kFaultsContained);
  host_switches().inert.store(true, std::memory_order_relaxed);
  if (size > kReserve) return nullptr;
  const std::size_t room = (size + alignment + 63) & ~std::size_t{63};
  std::size_t at = g_used.load(std::memory_order_relaxed);
  do {
    if (room > kReserve - at || (at + room > kForAll && size > kSmall)) return nullptr;
  } while (!g_used.compare_exchange_weak(at, at + room, std::memory_order_relaxed));
  const auto address = (reinterpret_cast<std::size_t>(g_reserve) + at + alignment - 1) & ~(alignment - 1);
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

[[maybe_unused]] bool is_of_reserve(const void* memory) noexcept {
  return memory >= g_reserve && memory < g_reserve + kReserve;
}

}  // namespace

bool memory_was_refused() noexcept { return g_refused.load(std::memory_order_relaxed); }

}  // namespace mfu

// A sanitizer brings its own, and libstdc++ as a shared library that would not use these.
#ifndef MFU_SANITIZED

namespace {

void* allocate(std::size_t size) noexcept {
  void* memory = std::malloc(size != 0 ? size : 1);
  return memory != nullptr ? memory : mfu::from_reserve(size, alignof(std::max_align_t));
}

void* allocate(std::size_t size, std::align_val_t alignment) noexcept {
  void* memory = nullptr;
  if (::posix_memalign(&memory, static_cast<std::size_t>(alignment), size != 0 ? size : 1) == 0) return memory;
  return mfu::from_reserve(size, static_cast<std::size_t>(alignment));
}

void release(void* memory) noexcept {
  if (!mfu::is_of_reserve(memory)) std::free(memory);
}

template <typename... Arguments>
void* allocate_or_throw(Arguments... arguments) {
  void* memory = allocate(arguments...);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size); }
void* operator new[](std::size_t size) { return allocate_or_throw(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return allocate_or_throw(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return allocate_or_throw(size, alignment); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, alignment);
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

#endif

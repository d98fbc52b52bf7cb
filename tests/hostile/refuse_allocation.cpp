// Preloaded: refuses allocations of libmfuinject.so, and of nobody else, as a machine without memory would.
//   REFUSE_FROM=N    the first refused one, counted from 0 over all threads; unset: none
//   REFUSE_COUNT=N   how many are refused; 0: all from there on
//   REFUSE_MAPPING=N the one mapping (mmap) of it that is refused, counted from 0; unset: none
//   REFUSE_TALLY=F   at the end of the process the numbers of allocations and of mappings are written there
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

std::atomic<std::uintptr_t> g_begin{0}, g_end{0};
std::atomic<long> g_seen{0};
std::atomic<long> g_mapped{0};
long g_from = -1, g_count = 0, g_mapping = -1;

/// The library's text, once it is loaded: looked for at every call until then.
bool is_of_the_library(const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (g_end.load() == 0) {
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void*) {
          if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "libmfuinject.so") == nullptr) return 0;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& header = info->dlpi_phdr[i];
            if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
            g_begin.store(info->dlpi_addr + header.p_vaddr);
            g_end.store(info->dlpi_addr + header.p_vaddr + header.p_memsz);
          }
          return 1;
        },
        nullptr);
  }
  return address >= g_begin.load() && address < g_end.load();
}

bool refused(const void* caller) {
  if (!is_of_the_library(caller)) return false;
  const long n = g_seen.fetch_add(1);
  const bool refuse = g_from >= 0 && n >= g_from && (g_count == 0 || n < g_from + g_count);
  if (refuse) errno = ENOMEM;
  return refuse;
}

__attribute__((constructor)) void begin() {
  if (const char* from = ::getenv("REFUSE_FROM")) g_from = std::atol(from);
  if (const char* count = ::getenv("REFUSE_COUNT")) g_count = std::atol(count);
  if (const char* mapping = ::getenv("REFUSE_MAPPING")) g_mapping = std::atol(mapping);
}

__attribute__((destructor)) void end() {
  const char* path = ::getenv("REFUSE_TALLY");
  if (path == nullptr) return;
  char text[64];
  const int length = std::snprintf(text, sizeof text, "%ld %ld\n", g_seen.load(), g_mapped.load());
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || ::write(file, text, static_cast<std::size_t>(length)) != length) return;
  ::close(file);
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_realloc(memory, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return refused(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  if (refused(__builtin_return_address(0))) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
__attribute__((visibility("default"))) void* mmap(void* address, std::size_t size, int protection, int flags, int file,
                                                  off_t offset) {
  if (is_of_the_library(__builtin_return_address(0)) && g_mapped.fetch_add(1) == g_mapping) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
__attribute__((visibility("default"))) void* mmap64(void* address, std::size_t size, int protection, int flags,
                                                    int file, off64_t offset) {
  if (is_of_the_library(__builtin_return_address(0)) && g_mapped.fetch_add(1) == g_mapping) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
}

// Preloaded: a file that libmfuinject.so opens takes its number at once and comes SLOW_OPEN_MS later, as on a slow
// shared file system: Linux takes the number before it looks the path up. Written bytes take SLOW_WRITE_MS.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

bool is_of_the_library(const void* caller) {
  ::Dl_info info{};
  return ::dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "libmfuinject.so") != nullptr;
}

void wait_ms(const char* variable) {
  const char* text = ::getenv(variable);
  const long ms = text != nullptr ? std::atol(text) : 0;
  const ::timespec time{ms / 1000, ms % 1000 * 1'000'000};
  if (ms > 0) ::nanosleep(&time, nullptr);
}

int open_file(const char* path, int flags, ::mode_t mode) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  ::va_list more;
  va_start(more, flags);
  const auto mode = static_cast<::mode_t>((flags & O_CREAT) != 0 ? va_arg(more, int) : 0);
  va_end(more);
  if (!is_of_the_library(__builtin_return_address(0))) return open_file(path, flags, mode);
  const int number = open_file("/dev/null", O_RDONLY | O_CLOEXEC, 0);
  wait_ms("SLOW_OPEN_MS");
  const int file = open_file(path, flags, mode);
  if (number < 0 || file < 0) {
    if (number >= 0) ::close(number);
    return file;
  }
  ::dup3(file, number, flags & O_CLOEXEC);
  ::close(file);
  return number;
}
__attribute__((visibility("default"))) ssize_t write(int file, const void* bytes, std::size_t size) {
  if (is_of_the_library(__builtin_return_address(0))) wait_ms("SLOW_WRITE_MS");
  return ::syscall(SYS_write, file, bytes, size);
}
}

#include "injection/guards/own_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace mfu {
namespace {

// linux/close_range.h, Linux 5.9
constexpr unsigned kUnshare = 1u << 1;
#ifdef SYS_close_range
constexpr long kCloseRange = SYS_close_range;
#else
constexpr long kCloseRange = 436;  // on every architecture
#endif

/// Older systems: a copy of the host's table, closed at once, since what is open here is open: a pipe of the host's
/// would have no end. Locks and positions are the host's still.
bool copy_and_close() noexcept {
  // Without a list of what is open nothing may be copied.
  if (::access("/proc/thread-self/fd", R_OK | X_OK) != 0 || ::unshare(CLONE_FILES) != 0) return false;
  ::DIR* list = ::opendir("/proc/thread-self/fd");
  if (list == nullptr) {
    constexpr int kMost = 1 << 16;
    for (int fd = 0; fd < kMost; ++fd) ::close(fd);
    return true;
  }
  while (const ::dirent* entry = ::readdir(list)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(list)) ::close(fd);
  }
  ::closedir(list);
  return true;
}

struct Root {
  bool known;
  ::dev_t device;
  ::ino_t inode;
};

Root look() noexcept {
  struct ::stat info {};
  return ::stat("/", &info) == 0 ? Root{true, info.st_dev, info.st_ino} : Root{};
}

const Root g_first = look();  // when the library is loaded

}  // namespace

bool take_own_descriptors() noexcept {
  // Nothing of the host's table is copied this way.
  if (::syscall(kCloseRange, 0u, ~0u, kUnshare) != 0 && !copy_and_close()) return false;
  // Output to standard error here must not end in one of the library's files.
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) break;
    if (fd <= 2) continue;
    ::close(fd);
    break;
  }
  return true;
}

bool same_root() noexcept {
  const Root now = look();
  // Where the system does not say, as with a filter that refuses the call, nothing is known to have changed.
  return !g_first.known || !now.known || (now.device == g_first.device && now.inode == g_first.inode);
}

}  // namespace mfu

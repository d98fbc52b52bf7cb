#include "injection/guards/last_thread.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "injection/guards/own_thread.h"

namespace mfu {

bool only_own_threads_left() noexcept {
  struct ::stat tasks {};
  // A folder has a link for each folder in it, and two of its own: so many threads there are, with the main thread,
  // which stays a zombie.
  if (::stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != 2 + own_threads() + 1) return false;
  char path[64], target[8];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/exe", static_cast<int>(::getpid()));
  // Only what has a memory has a program.
  if (::readlink(path, target, sizeof target) >= 0 || errno != ENOENT) return false;
  return ::readlink("/proc/thread-self/exe", target, sizeof target) >= 0;
}

void exit_as_last_thread() noexcept {
  static std::atomic<bool> begun{false};
  if (begun.exchange(true, std::memory_order_relaxed)) return;
  (void)start_own_thread(
      "mfu-exit", [](void*) { std::exit(0); }, nullptr);
}

}  // namespace mfu

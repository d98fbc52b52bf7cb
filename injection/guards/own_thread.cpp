#include "injection/guards/own_thread.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "injection/guards/contain.h"

namespace mfu {
namespace {

struct Start {
  const char* name;
  void (*body)(void*);
  void* argument;
};

std::atomic<unsigned> g_running{0};
::cpu_set_t g_processors;  ///< written before any of the library's threads starts
std::atomic<bool> g_processors_known{false};

/// A host's real-time thread, perhaps alone on its processor, must not share its rank or its place with a thread of the
/// library. False where there is no memory for that.
bool place_beside_host(::pthread_attr_t& attributes) noexcept {
  ::cpu_set_t here, processors;
  // Fails where a machine has more processors than a cpu_set_t: then they stay those of the calling thread.
  if (::sched_getaffinity(0, sizeof here, &here) == 0 &&
      ::sched_getaffinity(::getpid(), sizeof processors, &processors) == 0) {
    if (g_processors_known.load(std::memory_order_acquire)) CPU_OR(&processors, &processors, &g_processors);
    if (!CPU_EQUAL(&here, &processors) &&
        ::pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors) != 0)
      return false;
  }
  const int policy = ::sched_getscheduler(0);
  if (policy != SCHED_FIFO && policy != SCHED_RR) return true;
  const ::sched_param none{};
  return ::pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED) == 0 &&
         ::pthread_attr_setschedpolicy(&attributes, SCHED_OTHER) == 0 &&
         ::pthread_attr_setschedparam(&attributes, &none) == 0;
}

void be_nice() noexcept {
#ifndef MFU_SANITIZED  // instrumented, these threads are ten times as slow, and would not keep up with their host
  constexpr int kNice = 5;
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // of this thread
  if (errno == 0 && now < kNice) (void)::setpriority(PRIO_PROCESS, 0, kNice);
#endif
}

void* enter(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  ::pthread_setname_np(::pthread_self(), start.name);
  be_nice();
  contain(0, [&start] {
    start.body(start.argument);
    return 0;
  });
  g_running.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace

void remember_processors() noexcept {
  CPU_ZERO(&g_processors);
  g_processors_known.store(::sched_getaffinity(0, sizeof g_processors, &g_processors) == 0, std::memory_order_release);
}

bool start_own_thread(const char* name, void (*body)(void*), void* argument) noexcept {
  auto* start = new (std::nothrow) Start{name, body, argument};
  if (start == nullptr) return false;
  // The mask is inherited, so the thread never runs a moment with signals open.
  ::sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  g_running.fetch_add(1, std::memory_order_relaxed);
  const auto create = [&](bool beside) {
    ::pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    ::pthread_attr_setstacksize(&attributes, 512u << 10);
    ::pthread_t thread;
    const int error =
        beside && !place_beside_host(attributes) ? EPERM : ::pthread_create(&thread, &attributes, enter, start);
    ::pthread_attr_destroy(&attributes);
    return error == 0;
  };
  // Where the system refuses a place, as in a sandbox, one like the calling thread's will do.
  const bool runs = create(true) || create(false);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!runs) {
    g_running.fetch_sub(1, std::memory_order_relaxed);
    delete start;
  }
  return runs;
}

bool only_own_threads_left() noexcept {
  struct ::stat tasks {};
  // A folder has a link for each folder in it, and two more: so many threads there are, with the main thread,
  // which stays a zombie.
  if (::stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != 2 + g_running.load(std::memory_order_relaxed) + 1)
    return false;
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

#include "injection/guards/own_thread.h"

#include <signal.h>

#include <atomic>
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

void* enter(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  ::pthread_setname_np(::pthread_self(), start.name);
  contain(0, [&start] {
    start.body(start.argument);
    return 0;
  });
  g_running.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace

bool start_own_thread(const char* name, void (*body)(void*), void* argument) noexcept {
  auto* start = new (std::nothrow) Start{name, body, argument};
  if (start == nullptr) return false;
  ::pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, 512u << 10);
  // The mask is inherited, so the thread never runs a moment with signals open.
  ::sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  ::pthread_t thread;
  g_running.fetch_add(1, std::memory_order_relaxed);
  const int failed = ::pthread_create(&thread, &attributes, enter, start);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (failed != 0) {
    g_running.fetch_sub(1, std::memory_order_relaxed);
    delete start;
  }
  return failed == 0;
}

unsigned own_threads() noexcept { return g_running.load(std::memory_order_relaxed); }

}  // namespace mfu

#include "cuda/host_thread.h"

#include <pthread.h>

#include <new>

namespace mfu {

[[gnu::tls_model("initial-exec")]] constinit thread_local HostThread* detail::t_host_thread = nullptr;

namespace {

using detail::t_host_thread;

void on_thread_exit(void* block) noexcept {
  auto* thread = static_cast<HostThread*>(block);
  t_host_thread = nullptr;
  HostSwitches& switches = host_switches();
  // A fork's child has only the forking thread; the others' destructors never run there, and this one must not
  // touch what no other thread shares any more.
  if (switches.inert.load(std::memory_order_relaxed)) return;
  if (const HostLinks* live = switches.live.load(std::memory_order_acquire);
      live != nullptr && thread->state != nullptr)
    live->attribution->release_thread(*thread->state, ticks_now());
  delete thread;
}

constinit std::atomic<OnEarlyNvtx> g_on_early_nvtx{nullptr};

::pthread_key_t exit_key(bool& usable) noexcept {
  static const struct Key {
    ::pthread_key_t key{};
    bool usable = ::pthread_key_create(&key, on_thread_exit) == 0;
  } k;
  usable = k.usable;
  return k.key;
}

}  // namespace

HostThread* host_thread() noexcept {
  if (t_host_thread != nullptr) return t_host_thread;
  auto* thread = new (std::nothrow) HostThread;
  if (thread == nullptr) return nullptr;
  bool usable = false;
  const ::pthread_key_t key = exit_key(usable);
  if (usable) ::pthread_setspecific(key, thread);
  t_host_thread = thread;
  if (host_switches().live.load(std::memory_order_acquire) == nullptr)
    if (const OnEarlyNvtx hook = g_on_early_nvtx.exchange(nullptr, std::memory_order_acq_rel)) hook();
  return thread;
}

void set_on_early_nvtx(OnEarlyNvtx hook) noexcept { g_on_early_nvtx.store(hook, std::memory_order_release); }

}  // namespace mfu

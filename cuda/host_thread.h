// State per host thread: one pointer in its TLS, everything else behind it.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/attribution/attribution.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"

namespace mfu {

/// Needed by host threads while the library is active. Published once, never freed.
struct HostLinks {
  Attribution* attribution = nullptr;
  const RegionRules* rules = nullptr;
  RuleCache* names = nullptr;
  /// Where CUDA was in use before the library was: ranges that opened earlier may have launched work that was not seen,
  /// so they are no regions. 0: there was no CUDA before.
  Ticks ready = 0;
};

/// A push/pop range that was opened before CUDA started, when there were no rules yet.
struct EarlyRange {
  static constexpr std::size_t kNameBytes = 96;
  DomainId domain{};
  Ticks opened = 0;
  bool has_payload = false;
  double payload = 0;
  char name[kNameBytes] = {};
};

struct HostThread {
  static constexpr std::uint32_t kMaxEarly = 16;  ///< outermost levels; deeper ones are only counted
  ThreadState* state = nullptr;                   ///< nullptr: the thread table was full
  bool adopted = false;                           ///< its early ranges were given to the attribution
  std::uint32_t early_depth = 0;                  ///< counts past kMaxEarly too
  EarlyRange early[kMaxEarly];
  /// One launch in 256, until the host has synchronised its stream: then it is known to have finished.
  struct Probe {
    CorrelationId launch{};
    void* stream = nullptr;
    std::uint32_t context = 0;
    bool armed = false;
  } probe;
  /// The kernel launch that the thread is inside of while a stream of the process is being captured: its node's name
  /// and grid. The name lives as long as the call.
  struct CapturedKernel {
    CorrelationId launch{};
    const char* name = nullptr;
    std::uint64_t grid = 0;
  } captured;
};

/// Called once, on the first NVTX event while nothing is live. Set when the library is loaded.
using OnEarlyNvtx = void (*)();
void set_on_early_nvtx(OnEarlyNvtx hook) noexcept;

/// Process-wide switches that every entry looks at first.
struct HostSwitches {
  std::atomic<const HostLinks*> live{nullptr};  ///< set when active; nullptr while dormant
  std::atomic<bool> inert{false};               ///< for good: every entry returns at once
  std::atomic<bool> closing{false};             ///< inert, but records of launches before that are still taken
};
namespace detail {
// In the header, so that the callbacks reach them without a call. Initial-exec: a load through the thread pointer, and
// no allocation by the dynamic linker on first use; 8 bytes of the surplus that glibc keeps for libraries opened later.
inline constinit HostSwitches g_host_switches;
[[gnu::tls_model("initial-exec")]] extern constinit thread_local HostThread* t_host_thread;
}  // namespace detail

[[nodiscard]] inline HostSwitches& host_switches() noexcept { return detail::g_host_switches; }

/// [any thread] hot. The calling thread's block; nullptr on a thread that has none yet.
[[nodiscard]] inline HostThread* host_thread_if_any() noexcept { return detail::t_host_thread; }
/// [any thread] The calling thread's block; cold the first time. nullptr when there is no memory for one.
[[nodiscard]] HostThread* host_thread() noexcept;
/// [any thread] Gives the thread's early ranges to the attribution, once, with the times at which they opened.
void adopt_early_ranges(HostThread& thread, const HostLinks& live) noexcept;
/// The thread with its early ranges adopted; nullptr as above.
[[nodiscard]] inline HostThread* live_thread(const HostLinks& live) noexcept {
  HostThread* thread = host_thread_if_any();
  if (thread == nullptr) thread = host_thread();
  if (thread != nullptr && !thread->adopted) adopt_early_ranges(*thread, live);
  return thread;
}

}  // namespace mfu

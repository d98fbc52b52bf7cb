#include "cuda/early_ranges.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "core/base/spin_guard.h"
#include "cuda/nvtx_handler.h"

namespace mfu {
namespace {

struct EarlyProcessRange {
  EarlyRange range;
  std::uint32_t generation = 0;
  bool open = false;
  std::uint64_t handle = 0;  ///< once adopted
};
constexpr std::uint32_t kMaxEarlyProcess = 16;
constexpr nvtxRangeId_t kEarly = 1ull << 62;
constinit std::array<EarlyProcessRange, kMaxEarlyProcess> g_early_process{};
constinit std::atomic_flag g_early_lock = ATOMIC_FLAG_INIT;

void keep(EarlyRange& range, const NvtxDomain& domain, const RangeEvent& event) noexcept {
  range.domain = domain.id;
  range.opened = ticks_now();
  range.has_payload = event.has_payload;
  range.payload = event.payload;
  const std::size_t n = std::min(event.name.size(), EarlyRange::kNameBytes - 1);
  std::memcpy(range.name, event.name.data(), n);
  range.name[n] = '\0';
}

}  // namespace

int push_early(HostThread& thread, const NvtxDomain& domain, const RangeEvent& event) noexcept {
  if (thread.early_depth < HostThread::kMaxEarly) keep(thread.early[thread.early_depth], domain, event);
  return static_cast<int>(thread.early_depth++);
}

int pop_early(HostThread& thread, const NvtxDomain& domain) noexcept {
  if (thread.early_depth > HostThread::kMaxEarly) return static_cast<int>(--thread.early_depth);
  for (std::uint32_t i = thread.early_depth; i-- > 0;) {
    if (thread.early[i].domain != domain.id) continue;
    for (std::uint32_t k = i + 1; k < thread.early_depth; ++k) thread.early[k - 1] = thread.early[k];
    return static_cast<int>(--thread.early_depth);
  }
  host_counters().add(Counter::kNvtxPopUnmatched);
  return static_cast<int>(thread.early_depth);
}

void adopt_early_ranges(HostThread& thread, const HostLinks& live) noexcept {
  thread.adopted = true;
  thread.state = live.attribution->acquire_thread(static_cast<std::uint32_t>(::syscall(SYS_gettid)));
  if (thread.state == nullptr) return;
  for (std::uint32_t i = 0; i < thread.early_depth; ++i) {
    if (i >= HostThread::kMaxEarly) {
      live.attribution->push(*thread.state, DomainId::kDefault);  // keeps the pops balanced
      continue;
    }
    const EarlyRange& range = thread.early[i];
    const std::string_view name = RuleCache::cut(range.name);
    const MatchedRange kind = live.names->kind_of(range.domain, nvtx_domain_name(range.domain), name);
    if (kind.rule == RuleId::kNone || range.opened < live.ready || is_of_calls(range.domain))
      live.attribution->push(*thread.state, range.domain, kind.name);
    else
      live.attribution->push_region(*thread.state, range.domain,
                                    live.rules->open(kind.rule, name, range.has_payload ? &range.payload : nullptr),
                                    range.opened);
  }
  thread.early_depth = 0;
}

nvtxRangeId_t start_early(const NvtxDomain& domain, const RangeEvent& event) noexcept {
  const SpinGuard guard(g_early_lock);
  for (std::uint32_t i = 0; guard && i < kMaxEarlyProcess; ++i) {
    EarlyProcessRange& early = g_early_process[i];
    if (early.open) continue;
    early.open = true;
    early.handle = 0;
    ++early.generation;
    keep(early.range, domain, event);
    return kEarly | (static_cast<nvtxRangeId_t>(early.generation) << 16) | i;
  }
  return kUnfollowedRange;
}

std::uint64_t end_early(nvtxRangeId_t id) noexcept {
  const auto index = static_cast<std::uint32_t>(id & 0xFFFF);
  if (index >= kMaxEarlyProcess) return 0;
  const SpinGuard guard(g_early_lock);
  if (!guard) return 0;
  EarlyProcessRange& early = g_early_process[index];
  if (!early.open || (id & ~kEarly) != ((static_cast<nvtxRangeId_t>(early.generation) << 16) | index)) return 0;
  early.open = false;
  return early.handle;
}

void adopt_early_process_ranges(const HostLinks& live) noexcept {
  const SpinGuard guard(g_early_lock);
  if (!guard) return;
  for (EarlyProcessRange& early : g_early_process) {
    if (!early.open) continue;
    const std::string_view name = RuleCache::cut(early.range.name);
    const RuleId rule = live.names->kind_of(early.range.domain, nvtx_domain_name(early.range.domain), name).rule;
    if (rule == RuleId::kNone || early.range.opened < live.ready) continue;
    early.handle = live.attribution->start_process_region(
        nullptr, live.rules->open(rule, name, early.range.has_payload ? &early.range.payload : nullptr),
        early.range.opened);
  }
}

}  // namespace mfu

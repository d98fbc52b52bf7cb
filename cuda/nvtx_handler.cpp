#include "cuda/nvtx_handler.h"

#include <nvtx3/nvToolsExtPayload.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/early_ranges.h"
#include "cuda/host_thread.h"
#include "cuda/nvtx_names.h"

namespace mfu {
namespace {

constinit std::atomic<bool> g_ranges_seen{false};

// --- ranges ---------------------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline MatchedRange kind_of(const HostLinks& live, const NvtxDomain& domain,
                                                   const RangeEvent& event) noexcept {
  if (event.registered != nullptr) {
    const std::uint32_t known = event.registered->kind.load(std::memory_order_relaxed);
    if (known != 0) return MatchedRange::of(known);
    const MatchedRange kind = live.names->kind_of(domain.id, domain.name, event.name);
    event.registered->kind.store(kind.word(), std::memory_order_relaxed);
    return kind;
  }
  return live.names->kind_of(domain.id, domain.name, event.name);
}

// Rare or slow work is kept out of the functions that every range goes through. Events by value: a range
// without a region then keeps its own in registers.
[[gnu::noinline]] int push_before_live(const NvtxDomain& domain, RangeEvent event) noexcept {
  HostThread* thread = host_thread();
  return thread != nullptr ? push_early(*thread, domain, event) : 0;
}

[[gnu::noinline]] int pop_before_live(const NvtxDomain& domain) noexcept {
  HostThread* thread = host_thread();
  return thread != nullptr ? pop_early(*thread, domain) : 0;
}

[[gnu::noinline]] int push_region(const HostLinks& live, ThreadState& state, DomainId domain, RuleId rule,
                                  std::string_view name, bool has_payload, double payload) noexcept {
  return live.attribution->push_region(state, domain, live.rules->open(rule, name, has_payload ? &payload : nullptr),
                                       ticks_now());
}

/// Returns the level of the range, as NVTX says: 0 for the outermost. In each entry, so that what the client gave need
/// not go through memory.
[[gnu::always_inline]] inline int push(const NvtxDomain& domain, const RangeEvent& event) noexcept {
  HostSwitches& switches = host_switches();
  if (switches.inert.load(std::memory_order_relaxed)) return 0;
  if (!g_ranges_seen.load(std::memory_order_relaxed) && !domain.of_calls)
    g_ranges_seen.store(true, std::memory_order_relaxed);
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  if (live == nullptr) return push_before_live(domain, event);
  HostThread* thread = live_thread(*live);
  if (thread == nullptr || thread->state == nullptr) return 0;
  const MatchedRange kind = kind_of(*live, domain, event);
  if (kind.rule != RuleId::kNone && !domain.of_calls) {
    if (kind.without_shape && !event.has_payload)
      return live->attribution->push_region(*thread->state, domain.id, live->rules->region_of(kind.rule), kind.rule,
                                            nullptr, ticks_now());
    return push_region(*live, *thread->state, domain.id, kind.rule, event.name, event.has_payload, event.payload);
  }
  live->attribution->push(*thread->state, domain.id, kind.name);
  return static_cast<int>(thread->state->stack.depth()) - 1;
}

[[gnu::always_inline]] inline int pop(const NvtxDomain& domain) noexcept {
  HostSwitches& switches = host_switches();
  if (switches.inert.load(std::memory_order_relaxed)) return 0;
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  if (live == nullptr) return pop_before_live(domain);
  HostThread* thread = live_thread(*live);
  if (thread == nullptr || thread->state == nullptr) return 0;
  live->attribution->pop(*thread->state, domain.id, [] { return ticks_now(); });
  return static_cast<int>(thread->state->stack.depth());
}

// Start/end ranges have no thread. Those that map to a region get the attribution's handle; all others the same odd
// number, so that ending them needs no table.

nvtxRangeId_t start(const NvtxDomain& domain, const RangeEvent& event) noexcept {
  HostSwitches& switches = host_switches();
  if (domain.of_calls || switches.inert.load(std::memory_order_relaxed)) return kUnfollowedRange;
  if (!g_ranges_seen.load(std::memory_order_relaxed)) g_ranges_seen.store(true, std::memory_order_relaxed);
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  if (live == nullptr) return start_early(domain, event);
  const RuleId rule = kind_of(*live, domain, event).rule;
  if (rule == RuleId::kNone) return kUnfollowedRange;
  HostThread* thread = live_thread(*live);
  const std::uint64_t handle = live->attribution->start_process_region(
      thread != nullptr ? thread->state : nullptr,
      live->rules->open(rule, event.name, event.has_payload ? &event.payload : nullptr), ticks_now());
  return handle != 0 ? handle : kUnfollowedRange;
}

void end(nvtxRangeId_t id) noexcept {
  HostSwitches& switches = host_switches();
  if (id == kUnfollowedRange || switches.inert.load(std::memory_order_relaxed)) return;
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  std::uint64_t handle = id;
  if (is_early(id)) {
    handle = end_early(id);
    if (handle == 0) return;
  }
  if (live != nullptr && !live->attribution->end_process_region(handle, ticks_now()))
    host_counters().add(Counter::kNvtxRangeEndUnknown);
}

// --- the functions NVTX calls ---------------------------------------------------------------------------------------

RangeEvent plain(const char* message) noexcept {
  return {message != nullptr ? RuleCache::cut(message) : std::string_view("")};
}

int NVTX_API push_a(const char* message) { return push(default_domain(), plain(message)); }
int NVTX_API push_w(const wchar_t* message) {
  NameBuffer buffer;
  return push(default_domain(), RangeEvent{narrow(message, buffer)});
}
int NVTX_API push_ex(const nvtxEventAttributes_t* a) {
  NameBuffer buffer;
  return push(default_domain(), read_attributes(a, buffer));
}
int NVTX_API pop_default() { return pop(default_domain()); }
nvtxRangeId_t NVTX_API start_a(const char* message) { return start(default_domain(), plain(message)); }
nvtxRangeId_t NVTX_API start_w(const wchar_t* message) {
  NameBuffer buffer;
  return start(default_domain(), RangeEvent{narrow(message, buffer)});
}
nvtxRangeId_t NVTX_API start_ex(const nvtxEventAttributes_t* a) {
  NameBuffer buffer;
  return start(default_domain(), read_attributes(a, buffer));
}
void NVTX_API end_default(nvtxRangeId_t id) { end(id); }
int NVTX_API domain_push_ex(nvtxDomainHandle_t handle, const nvtxEventAttributes_t* a) {
  const NvtxDomain& domain = domain_of(handle);
  NameBuffer buffer;
  return push(domain, read_attributes(a, buffer));
}
int NVTX_API domain_pop(nvtxDomainHandle_t handle) { return pop(domain_of(handle)); }
nvtxRangeId_t NVTX_API domain_start_ex(nvtxDomainHandle_t handle, const nvtxEventAttributes_t* a) {
  const NvtxDomain& domain = domain_of(handle);
  NameBuffer buffer;
  return start(domain, read_attributes(a, buffer));
}
void NVTX_API domain_end(nvtxDomainHandle_t, nvtxRangeId_t id) { end(id); }
nvtxDomainHandle_t NVTX_API domain_create_a(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(create_domain(name));
}
nvtxDomainHandle_t NVTX_API domain_create_w(const wchar_t* name) {
  NameBuffer buffer;
  return reinterpret_cast<nvtxDomainHandle_t>(create_domain(narrow(name, buffer).data()));
}
nvtxStringHandle_t NVTX_API register_string_a(nvtxDomainHandle_t domain, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(register_text(domain_of(domain), text));
}
nvtxStringHandle_t NVTX_API register_string_w(nvtxDomainHandle_t domain, const wchar_t* text) {
  NameBuffer buffer;
  const char* const utf8 = text != nullptr ? narrow(text, buffer).data() : nullptr;
  return reinterpret_cast<nvtxStringHandle_t>(register_text(domain_of(domain), utf8));
}

template <typename F>
void fill(NvtxFunctionTable table, unsigned size, unsigned index, F function) noexcept {
  // A client older than our headers has a shorter table.
  if (index < size && table[index] != nullptr) *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

// --- the payload extension ------------------------------------------------------------------------------------------

// Ranges whose name and values come as payload of a registered schema: kept balanced, but without a region, since the
// name is inside a layout of the client's own.
int ext_push_payload(nvtxDomainHandle_t handle, const nvtxPayloadData_t*, std::size_t) {
  return push(domain_of(handle), plain(nullptr));
}
int ext_pop_payload(nvtxDomainHandle_t handle, const nvtxPayloadData_t*, std::size_t) { return pop(domain_of(handle)); }
nvtxRangeId_t ext_start_payload(nvtxDomainHandle_t, const nvtxPayloadData_t*, std::size_t) { return kUnfollowedRange; }
void ext_end_payload(nvtxDomainHandle_t, nvtxRangeId_t id, const nvtxPayloadData_t*, std::size_t) { end(id); }
std::uint8_t ext_domain_is_enabled(nvtxDomainHandle_t) { return 1; }

}  // namespace

Counters& host_counters() noexcept {
  static constinit Counters counters;
  return counters;
}

bool nvtx_ranges_seen() noexcept { return g_ranges_seen.load(std::memory_order_relaxed); }

void attach_nvtx(NvtxGetExportTableFunc_t get_export_table) noexcept {
  if (get_export_table == nullptr) return;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(*callbacks) ||
      callbacks->GetModuleFunctionTable == nullptr)
    return;
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) != 0 && table != nullptr) {
    fill(table, size, NVTX_CBID_CORE_RangeStartEx, start_ex);
    fill(table, size, NVTX_CBID_CORE_RangeStartA, start_a);
    fill(table, size, NVTX_CBID_CORE_RangeStartW, start_w);
    fill(table, size, NVTX_CBID_CORE_RangeEnd, end_default);
    fill(table, size, NVTX_CBID_CORE_RangePushEx, push_ex);
    fill(table, size, NVTX_CBID_CORE_RangePushA, push_a);
    fill(table, size, NVTX_CBID_CORE_RangePushW, push_w);
    fill(table, size, NVTX_CBID_CORE_RangePop, pop_default);
  }
  table = nullptr;
  size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 0 && table != nullptr) {
    fill(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, domain_start_ex);
    fill(table, size, NVTX_CBID_CORE2_DomainRangeEnd, domain_end);
    fill(table, size, NVTX_CBID_CORE2_DomainRangePushEx, domain_push_ex);
    fill(table, size, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
    fill(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, register_string_a);
    fill(table, size, NVTX_CBID_CORE2_DomainRegisterStringW, register_string_w);
    fill(table, size, NVTX_CBID_CORE2_DomainCreateA, domain_create_a);
    fill(table, size, NVTX_CBID_CORE2_DomainCreateW, domain_create_w);
  }
}

void attach_nvtx_extension(void* module_info) noexcept {
  auto* info = static_cast<nvtxExtModuleInfo_t*>(module_info);
  if (info == nullptr || info->structSize < sizeof(*info) || info->moduleId != NVTX_EXT_PAYLOAD_MODULEID ||
      info->segments == nullptr)
    return;
  for (std::size_t i = 0; i < info->segmentsCount; ++i) {
    nvtxExtModuleSegment_t& segment = info->segments[i];
    const auto set = [&segment](std::size_t slot, auto function) {
      if (slot < segment.slotCount && segment.functionSlots != nullptr)
        segment.functionSlots[slot] = reinterpret_cast<std::intptr_t>(function);
    };
    set(NVTX3EXT_CBID_nvtxRangePushPayload, ext_push_payload);
    set(NVTX3EXT_CBID_nvtxRangePopPayload, ext_pop_payload);
    set(NVTX3EXT_CBID_nvtxRangeStartPayload, ext_start_payload);
    set(NVTX3EXT_CBID_nvtxRangeEndPayload, ext_end_payload);
    set(NVTX3EXT_CBID_nvtxDomainIsEnabled, ext_domain_is_enabled);
  }
}

}  // namespace mfu

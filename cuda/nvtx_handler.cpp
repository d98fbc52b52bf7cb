#include "cuda/nvtx_handler.h"

#include <nvtx3/nvToolsExtPayload.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <new>

#include "cuda/host_thread.h"

namespace mfu {

namespace {

constinit std::atomic<unsigned> g_modules{0};
constinit std::atomic<bool> g_ranges_seen{false};

// --- domains and registered strings ---------------------------------------------------------------------------------

/// What a client holds as nvtxDomainHandle_t. Never freed: clients keep handles for ever, and pushes race with destroy.
struct Domain {
  DomainId id{};
  bool ignored = false;  ///< NCCL: its ranges are not regions of anybody's model, and there are very many
  char name[64] = {};
};

constexpr std::uint32_t kMaxDomains = 256;
constinit std::array<Domain, kMaxDomains> g_domains{};  // [0] is the default domain
constinit std::atomic<std::uint32_t> g_domain_count{1};
constinit std::atomic_flag g_domain_lock = ATOMIC_FLAG_INIT;

Domain* create_domain(const char* name) noexcept {
  if (name == nullptr) name = "";
  while (g_domain_lock.test_and_set(std::memory_order_acquire)) {
  }
  const std::uint32_t count = g_domain_count.load(std::memory_order_relaxed);
  Domain* found = nullptr;
  for (std::uint32_t i = 1; i < count && found == nullptr; ++i)
    if (std::strncmp(g_domains[i].name, name, sizeof g_domains[i].name - 1) == 0) found = &g_domains[i];
  if (found == nullptr && count < kMaxDomains) {
    found = &g_domains[count];
    found->id = static_cast<DomainId>(count);
    std::strncpy(found->name, name, sizeof found->name - 1);
    found->ignored = std::strcmp(found->name, "NCCL") == 0;
    g_domain_count.store(count + 1, std::memory_order_release);
  }
  g_domain_lock.clear(std::memory_order_release);
  return found != nullptr ? found : &g_domains[0];  // never NULL: that would be the default domain by accident
}

Domain& domain_of(nvtxDomainHandle_t handle) noexcept {
  auto* domain = reinterpret_cast<Domain*>(handle);
  // A handle from another tool, or made before we attached, is none of ours: treat it as the default domain.
  if (domain < g_domains.data() || domain >= g_domains.data() + kMaxDomains) return g_domains[0];
  return *domain;
}

/// What a client holds as nvtxStringHandle_t: the text, and the rule once there are rules. Never freed.
struct RegisteredString {
  std::uint32_t magic = kMagic;
  std::uint32_t length = 0;
  std::atomic<std::uint32_t> rule{0};  ///< 1 + RuleId; 0: not asked yet
  char text[RuleCache::kMaxLength + 1] = {};

  static constexpr std::uint32_t kMagic = 0x4D465553;  // "MFUS"
};
constexpr std::uint32_t kMaxStrings = 16384;  // 4.4 MiB when all are used
constinit std::atomic<std::uint32_t> g_string_count{0};
constinit RegisteredString g_other_string{};

RegisteredString* register_text(const char* text) noexcept {
  if (text == nullptr || g_string_count.fetch_add(1, std::memory_order_relaxed) >= kMaxStrings) return &g_other_string;
  auto* s = new (std::nothrow) RegisteredString;
  if (s == nullptr) return &g_other_string;
  const std::string_view cut = RuleCache::cut(text);
  std::memcpy(s->text, cut.data(), cut.size());
  s->length = static_cast<std::uint32_t>(cut.size());
  return s;
}

/// Wide characters to UTF-8, as far as a name counts.
std::string_view narrow(const wchar_t* text, std::array<char, RuleCache::kMaxLength + 1>& out) noexcept {
  std::size_t n = 0;
  for (; *text != L'\0'; ++text) {
    const auto c = std::bit_cast<std::uint32_t>(*text);
    const std::size_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n + bytes > RuleCache::kMaxLength) break;
    if (bytes == 1) {
      out[n++] = static_cast<char>(c);
      continue;
    }
    out[n++] = static_cast<char>((bytes == 2 ? 0xC0 : bytes == 3 ? 0xE0 : 0xF0) | (c >> (6 * (bytes - 1))));
    for (std::size_t k = bytes - 1; k-- > 0;) out[n++] = static_cast<char>(0x80 | ((c >> (6 * k)) & 0x3F));
  }
  out[n] = '\0';
  return {out.data(), n};
}

// --- ranges ---------------------------------------------------------------------------------------------------------

/// A range's name and payload as one call gave them.
struct RangeEvent {
  std::string_view name;
  RegisteredString* registered = nullptr;
  bool has_payload = false;
  double payload = 0;
};

void early_push(HostThread& thread, const Domain& domain, const RangeEvent& event) noexcept {
  if (thread.early_depth < HostThread::kMaxEarly) {
    EarlyRange& range = thread.early[thread.early_depth];
    range.domain = domain.id;
    range.opened = ticks_now();
    range.has_payload = event.has_payload;
    range.payload = event.payload;
    const std::size_t n = std::min(event.name.size(), EarlyRange::kNameBytes - 1);
    std::memcpy(range.name, event.name.data(), n);
    range.name[n] = '\0';
  }
  ++thread.early_depth;
}

void early_pop(HostThread& thread, const Domain& domain) noexcept {
  if (thread.early_depth == 0) {
    host_counters().add(Counter::kNvtxPopUnmatched);
    return;
  }
  if (thread.early_depth > HostThread::kMaxEarly) {
    --thread.early_depth;
    return;
  }
  for (std::uint32_t i = thread.early_depth; i-- > 0;) {
    if (thread.early[i].domain != domain.id) continue;
    for (std::uint32_t k = i + 1; k < thread.early_depth; ++k) thread.early[k - 1] = thread.early[k];
    --thread.early_depth;
    return;
  }
  host_counters().add(Counter::kNvtxPopUnmatched);
}

[[gnu::always_inline]] inline RuleId rule_of(const HostLinks& live, const Domain& domain,
                                             const RangeEvent& event) noexcept {
  if (event.registered != nullptr) {
    const std::uint32_t known = event.registered->rule.load(std::memory_order_relaxed);
    if (known != 0) return static_cast<RuleId>(known - 1);
    const RuleId rule = live.names->rule_of(domain.id, domain.name, event.name);
    event.registered->rule.store(static_cast<std::uint32_t>(raw(rule)) + 1, std::memory_order_relaxed);
    return rule;
  }
  return live.names->rule_of(domain.id, domain.name, event.name);
}

// What is rare, or slow anyway, is kept out of the functions that every range goes through. Events by value: a range
// without a region then keeps its own in registers.
[[gnu::noinline]] int push_before_live(const Domain& domain, RangeEvent event) noexcept {
  HostThread* thread = host_thread();
  if (thread == nullptr) return 0;
  early_push(*thread, domain, event);
  return static_cast<int>(thread->early_depth) - 1;
}

[[gnu::noinline]] int pop_before_live(const Domain& domain) noexcept {
  HostThread* thread = host_thread();
  if (thread == nullptr) return 0;
  early_pop(*thread, domain);
  return static_cast<int>(thread->early_depth);
}

[[gnu::noinline]] int push_region(const HostLinks& live, ThreadState& state, const Domain& domain, RangeEvent event,
                                  RuleId rule) noexcept {
  live.attribution->push_region(
      state, domain.id, live.rules->open(rule, event.name, event.has_payload ? &event.payload : nullptr), ticks_now());
  return static_cast<int>(state.stack.depth()) - 1;
}

/// Returns the level of the range, as NVTX says: 0 for the outermost. In each entry, so that what the client gave need
/// not go through memory.
[[gnu::always_inline]] inline int push(const Domain& domain, const RangeEvent& event) noexcept {
  HostSwitches& switches = host_switches();
  if (domain.ignored || switches.inert.load(std::memory_order_relaxed)) return 0;
  if (!g_ranges_seen.load(std::memory_order_relaxed)) g_ranges_seen.store(true, std::memory_order_relaxed);
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  if (live == nullptr) return push_before_live(domain, event);
  HostThread* thread = live_thread(*live);
  if (thread == nullptr || thread->state == nullptr) return 0;
  const RuleId rule = rule_of(*live, domain, event);
  if (rule != RuleId::kNone) return push_region(*live, *thread->state, domain, event, rule);
  live->attribution->push(*thread->state, domain.id);
  return static_cast<int>(thread->state->stack.depth()) - 1;
}

[[gnu::always_inline]] inline int pop(const Domain& domain) noexcept {
  HostSwitches& switches = host_switches();
  if (domain.ignored || switches.inert.load(std::memory_order_relaxed)) return 0;
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  if (live == nullptr) return pop_before_live(domain);
  HostThread* thread = live_thread(*live);
  if (thread == nullptr || thread->state == nullptr) return 0;
  live->attribution->pop(*thread->state, domain.id, [] { return ticks_now(); });
  return static_cast<int>(thread->state->stack.depth());
}

// Start/end ranges have no thread. Those that map to a region get the attribution's handle; all others the same odd
// number, so that ending them needs no table.
constexpr nvtxRangeId_t kUnfollowed = 1ull << 63;

// Started before CUDA was: kept by name until it starts.
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

nvtxRangeId_t start(const Domain& domain, const RangeEvent& event) noexcept {
  HostSwitches& switches = host_switches();
  if (domain.ignored || switches.inert.load(std::memory_order_relaxed)) return kUnfollowed;
  if (!g_ranges_seen.load(std::memory_order_relaxed)) g_ranges_seen.store(true, std::memory_order_relaxed);
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  if (live == nullptr) {
    nvtxRangeId_t id = kUnfollowed;
    while (g_early_lock.test_and_set(std::memory_order_acquire)) {
    }
    for (std::uint32_t i = 0; i < kMaxEarlyProcess; ++i) {
      EarlyProcessRange& early = g_early_process[i];
      if (early.open) continue;
      early.open = true;
      early.handle = 0;
      ++early.generation;
      early.range.domain = domain.id;
      early.range.opened = ticks_now();
      early.range.has_payload = event.has_payload;
      early.range.payload = event.payload;
      const std::size_t n = std::min(event.name.size(), EarlyRange::kNameBytes - 1);
      std::memcpy(early.range.name, event.name.data(), n);
      early.range.name[n] = '\0';
      id = kEarly | (static_cast<nvtxRangeId_t>(early.generation) << 16) | i;
      break;
    }
    g_early_lock.clear(std::memory_order_release);
    return id;
  }
  const RuleId rule = rule_of(*live, domain, event);
  if (rule == RuleId::kNone) return kUnfollowed;
  HostThread* thread = live_thread(*live);
  const std::uint64_t handle = live->attribution->start_process_region(
      thread != nullptr ? thread->state : nullptr,
      live->rules->open(rule, event.name, event.has_payload ? &event.payload : nullptr), ticks_now());
  return handle != 0 ? handle : kUnfollowed;
}

void end(nvtxRangeId_t id) noexcept {
  HostSwitches& switches = host_switches();
  if (id == kUnfollowed || switches.inert.load(std::memory_order_relaxed)) return;
  const HostLinks* live = switches.live.load(std::memory_order_acquire);
  std::uint64_t handle = id;
  if ((id & kEarly) != 0) {
    const auto index = static_cast<std::uint32_t>(id & 0xFFFF);
    if (index >= kMaxEarlyProcess) return;
    while (g_early_lock.test_and_set(std::memory_order_acquire)) {
    }
    EarlyProcessRange& early = g_early_process[index];
    handle = 0;
    if (early.open && (id & ~kEarly) == ((static_cast<nvtxRangeId_t>(early.generation) << 16) | index)) {
      early.open = false;
      handle = early.handle;
    }
    g_early_lock.clear(std::memory_order_release);
    if (handle == 0) return;
  }
  if (live != nullptr && !live->attribution->end_process_region(handle, ticks_now()))
    host_counters().add(Counter::kNvtxRangeEndUnknown);
}

// --- the functions NVTX calls ---------------------------------------------------------------------------------------

/// Reads as much of the attributes as the client's version of the struct has.
RangeEvent read(const nvtxEventAttributes_t* a, std::array<char, RuleCache::kMaxLength + 1>& buffer) noexcept {
  RangeEvent event;
  event.name = "";
  if (a == nullptr || a->size < offsetof(nvtxEventAttributes_t, message) + sizeof a->message) return event;
  switch (a->payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      event.payload = static_cast<double>(a->payload.ullValue);
      event.has_payload = true;
      break;
    case NVTX_PAYLOAD_TYPE_INT64:
      event.payload = static_cast<double>(a->payload.llValue);
      event.has_payload = true;
      break;
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      event.payload = a->payload.dValue;
      event.has_payload = true;
      break;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      event.payload = a->payload.uiValue;
      event.has_payload = true;
      break;
    case NVTX_PAYLOAD_TYPE_INT32:
      event.payload = a->payload.iValue;
      event.has_payload = true;
      break;
    case NVTX_PAYLOAD_TYPE_FLOAT:
      event.payload = static_cast<double>(a->payload.fValue);
      event.has_payload = true;
      break;
    default:
      break;
  }
  switch (a->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      if (a->message.ascii != nullptr) event.name = RuleCache::cut(a->message.ascii);
      break;
    case NVTX_MESSAGE_TYPE_UNICODE:
      if (a->message.unicode != nullptr) event.name = narrow(a->message.unicode, buffer);
      break;
    case NVTX_MESSAGE_TYPE_REGISTERED: {
      auto* s = reinterpret_cast<RegisteredString*>(a->message.registered);
      if (s == nullptr || s->magic != RegisteredString::kMagic) break;
      event.name = {s->text, s->length};
      event.registered = s;
      break;
    }
    default:
      break;
  }
  return event;
}

RangeEvent plain(const char* message) noexcept {
  RangeEvent event;
  event.name = message != nullptr ? RuleCache::cut(message) : std::string_view("");
  return event;
}

using NameBuffer = std::array<char, RuleCache::kMaxLength + 1>;

int NVTX_API push_a(const char* message) { return push(g_domains[0], plain(message)); }
int NVTX_API push_w(const wchar_t* message) {
  NameBuffer buffer;
  RangeEvent event;
  event.name = message != nullptr ? narrow(message, buffer) : std::string_view("");
  return push(g_domains[0], event);
}
int NVTX_API push_ex(const nvtxEventAttributes_t* a) {
  NameBuffer buffer;
  return push(g_domains[0], read(a, buffer));
}
int NVTX_API pop_default() { return pop(g_domains[0]); }
nvtxRangeId_t NVTX_API start_a(const char* message) { return start(g_domains[0], plain(message)); }
nvtxRangeId_t NVTX_API start_w(const wchar_t* message) {
  NameBuffer buffer;
  RangeEvent event;
  event.name = message != nullptr ? narrow(message, buffer) : std::string_view("");
  return start(g_domains[0], event);
}
nvtxRangeId_t NVTX_API start_ex(const nvtxEventAttributes_t* a) {
  NameBuffer buffer;
  return start(g_domains[0], read(a, buffer));
}
void NVTX_API end_default(nvtxRangeId_t id) { end(id); }
int NVTX_API domain_push_ex(nvtxDomainHandle_t handle, const nvtxEventAttributes_t* a) {
  const Domain& domain = domain_of(handle);
  if (domain.ignored) return 0;
  NameBuffer buffer;
  return push(domain, read(a, buffer));
}
int NVTX_API domain_pop(nvtxDomainHandle_t handle) { return pop(domain_of(handle)); }
nvtxRangeId_t NVTX_API domain_start_ex(nvtxDomainHandle_t handle, const nvtxEventAttributes_t* a) {
  const Domain& domain = domain_of(handle);
  if (domain.ignored) return kUnfollowed;
  NameBuffer buffer;
  return start(domain, read(a, buffer));
}
void NVTX_API domain_end(nvtxDomainHandle_t, nvtxRangeId_t id) { end(id); }
nvtxDomainHandle_t NVTX_API domain_create_a(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(create_domain(name));
}
nvtxDomainHandle_t NVTX_API domain_create_w(const wchar_t* name) {
  NameBuffer buffer;
  return reinterpret_cast<nvtxDomainHandle_t>(create_domain(name != nullptr ? narrow(name, buffer).data() : nullptr));
}
nvtxStringHandle_t NVTX_API register_string_a(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(register_text(text));
}
nvtxStringHandle_t NVTX_API register_string_w(nvtxDomainHandle_t, const wchar_t* text) {
  NameBuffer buffer;
  return reinterpret_cast<nvtxStringHandle_t>(register_text(text != nullptr ? narrow(text, buffer).data() : nullptr));
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
  const Domain& domain = domain_of(handle);
  RangeEvent event;
  event.name = "";
  return domain.ignored ? 0 : push(domain, event);
}
int ext_pop_payload(nvtxDomainHandle_t handle, const nvtxPayloadData_t*, std::size_t) { return pop(domain_of(handle)); }
nvtxRangeId_t ext_start_payload(nvtxDomainHandle_t, const nvtxPayloadData_t*, std::size_t) { return kUnfollowed; }
void ext_end_payload(nvtxDomainHandle_t, nvtxRangeId_t id, const nvtxPayloadData_t*, std::size_t) { end(id); }
std::uint8_t ext_domain_is_enabled(nvtxDomainHandle_t handle) { return domain_of(handle).ignored ? 0 : 1; }

}  // namespace

Counters& host_counters() noexcept {
  static constinit Counters counters;
  return counters;
}

const char* nvtx_domain_name(DomainId domain) noexcept {
  return raw(domain) < kMaxDomains ? g_domains[raw(domain)].name : "";
}

unsigned nvtx_modules_attached() noexcept { return g_modules.load(std::memory_order_relaxed); }
bool nvtx_ranges_seen() noexcept { return g_ranges_seen.load(std::memory_order_relaxed); }

void adopt_early_process_ranges(const HostLinks& live) noexcept {
  while (g_early_lock.test_and_set(std::memory_order_acquire)) {
  }
  for (EarlyProcessRange& early : g_early_process) {
    if (!early.open) continue;
    const std::string_view name = RuleCache::cut(early.range.name);
    const RuleId rule = live.names->rule_of(early.range.domain, nvtx_domain_name(early.range.domain), name);
    if (rule == RuleId::kNone || early.range.opened < live.ready) continue;
    early.handle = live.attribution->start_process_region(
        nullptr, live.rules->open(rule, name, early.range.has_payload ? &early.range.payload : nullptr),
        early.range.opened);
  }
  g_early_lock.clear(std::memory_order_release);
}

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
  g_modules.fetch_add(1, std::memory_order_relaxed);
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

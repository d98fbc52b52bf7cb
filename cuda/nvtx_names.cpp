#include "cuda/nvtx_names.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <new>

#include "core/base/spin_guard.h"
#include "cuda/host_thread.h"

namespace mfu {
namespace {

using detail::g_nvtx_domains;

constinit std::atomic<std::uint32_t> g_domain_count{1};
constinit std::atomic_flag g_domain_lock = ATOMIC_FLAG_INIT;
constinit std::atomic<std::uint32_t> g_string_count{0};
constinit RegisteredString g_other_string{};
using SharedStrings = std::array<std::atomic<RegisteredString*>, RuleCache::kCapacity>;
constinit SharedStrings g_plain_strings{};   ///< by the number of their name
constinit SharedStrings g_region_strings{};  ///< by what they open

RegisteredString* make_string(std::string_view text, MatchedRange kind = MatchedRange::of(0)) noexcept {
  auto* s = new (std::nothrow) RegisteredString;
  if (s == nullptr) return nullptr;
  std::memcpy(s->text, text.data(), text.size());
  s->length = static_cast<std::uint32_t>(text.size());
  s->kind.store(kind.word(), std::memory_order_relaxed);
  return s;
}

/// The string at `place`, made of `text` if there is none yet; nullptr: no memory.
RegisteredString* string_at(std::atomic<RegisteredString*>& place, std::string_view text, MatchedRange kind) noexcept {
  RegisteredString* known = place.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  RegisteredString* const made = make_string(text, kind);
  if (made == nullptr || place.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
  delete made;
  return known;
}

/// The string of all that are no regions and of this name but for its digits, or that open regions of the same shape.
RegisteredString* find_shared(const HostLinks& live, const NvtxDomain& domain, std::string_view text) noexcept {
  constexpr std::size_t kTries = 64;
  const MatchedRange kind = live.names->kind_of(domain.id, domain.name, text);
  if (kind.rule == RuleId::kNone) return string_at(g_plain_strings[kind.name % g_plain_strings.size()], text, kind);
  const RegionOpening wanted = live.rules->open(kind.rule, text, nullptr);
  std::size_t at = raw(wanted.region) + 31u * wanted.shape.given;
  for (const std::int64_t value : wanted.shape.value) at = at * 1'000'003 + static_cast<std::size_t>(value);
  for (std::size_t i = 0; i < kTries; ++i) {
    RegisteredString* const known = string_at(g_region_strings[(at + i) % g_region_strings.size()], text, kind);
    if (known == nullptr) return nullptr;
    const RuleId rule = MatchedRange::of(known->kind.load(std::memory_order_relaxed)).rule;
    const RegionOpening opened = live.rules->open(rule, {known->text, known->length}, nullptr);
    if (rule == kind.rule && opened.region == wanted.region && opened.shape.given == wanted.shape.given &&
        opened.shape.value == wanted.shape.value)
      return known;
  }
  return nullptr;
}

}  // namespace

NvtxDomain* create_domain(const char* name) noexcept {
  if (name == nullptr) name = "";
  const SpinGuard guard(g_domain_lock);
  if (!guard) return &g_nvtx_domains[0];
  const std::uint32_t count = g_domain_count.load(std::memory_order_relaxed);
  NvtxDomain* found = nullptr;
  for (std::uint32_t i = 1; i < count && found == nullptr; ++i)
    if (std::strncmp(g_nvtx_domains[i].name, name, sizeof g_nvtx_domains[i].name - 1) == 0) found = &g_nvtx_domains[i];
  if (found == nullptr && count < kMaxNvtxDomains) {
    found = &g_nvtx_domains[count];
    found->id = static_cast<DomainId>(count);
    std::strncpy(found->name, name, sizeof found->name - 1);
    found->of_calls = std::strcmp(found->name, "NCCL") == 0;
    g_domain_count.store(count + 1, std::memory_order_release);
  }
  return found != nullptr ? found : &g_nvtx_domains[0];
}

RegisteredString* register_text(const NvtxDomain& domain, const char* text) noexcept {
  if (text == nullptr) return &g_other_string;
  RegisteredString* own = nullptr;
  if (g_string_count.fetch_add(1, std::memory_order_relaxed) < kMaxRegisteredStrings) {
    own = make_string(RuleCache::cut(text));
  } else {
    g_string_count.store(kMaxRegisteredStrings, std::memory_order_relaxed);
    const HostLinks* live = host_switches().live.load(std::memory_order_acquire);
    if (live != nullptr) own = find_shared(*live, domain, RuleCache::cut(text));
  }
  return own != nullptr ? own : &g_other_string;
}

std::string_view narrow(const wchar_t* text, NameBuffer& out) noexcept {
  std::size_t n = 0;
  for (; text != nullptr && *text != L'\0'; ++text) {
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

RangeEvent read_attributes(const nvtxEventAttributes_t* a, NameBuffer& buffer) noexcept {
  RangeEvent event;
  event.name = "";
  if (a == nullptr || a->size < offsetof(nvtxEventAttributes_t, message) + sizeof a->message) return event;
  event.has_payload = true;
  switch (a->payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      event.payload = static_cast<double>(a->payload.ullValue);
      break;
    case NVTX_PAYLOAD_TYPE_INT64:
      event.payload = static_cast<double>(a->payload.llValue);
      break;
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      event.payload = a->payload.dValue;
      break;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      event.payload = a->payload.uiValue;
      break;
    case NVTX_PAYLOAD_TYPE_INT32:
      event.payload = a->payload.iValue;
      break;
    case NVTX_PAYLOAD_TYPE_FLOAT:
      event.payload = static_cast<double>(a->payload.fValue);
      break;
    default:
      event.has_payload = false;
      break;
  }
  switch (a->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      if (a->message.ascii != nullptr) event.name = RuleCache::cut(a->message.ascii);
      break;
    case NVTX_MESSAGE_TYPE_UNICODE:
      event.name = narrow(a->message.unicode, buffer);
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

const char* nvtx_domain_name(DomainId domain) noexcept {
  return raw(domain) < kMaxNvtxDomains ? g_nvtx_domains[raw(domain)].name : "";
}

}  // namespace mfu

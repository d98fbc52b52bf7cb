// The objects that NVTX clients hold: domains and registered strings; and the names of ranges, as UTF-8.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "core/base/ids.h"
#include "core/ranges/rule_cache.h"

namespace mfu {

/// A client's nvtxDomainHandle_t. Never freed: clients keep handles for ever, and pushes race with destroy.
struct NvtxDomain {
  DomainId id{};
  bool of_calls = false;  ///< NCCL: its ranges are its calls, which name idle time, and no regions of a model
  char name[64] = {};
};
inline constexpr std::uint32_t kMaxNvtxDomains = 256;
namespace detail {
inline constinit std::array<NvtxDomain, kMaxNvtxDomains> g_nvtx_domains{};  // [0] is the default domain
}
[[nodiscard]] inline const NvtxDomain& default_domain() noexcept { return detail::g_nvtx_domains[0]; }
[[nodiscard]] inline bool is_of_calls(DomainId domain) noexcept {
  return raw(domain) < kMaxNvtxDomains && detail::g_nvtx_domains[raw(domain)].of_calls;
}

/// [any thread] The domain of that name: the same for equal ones. Past the last free one, and without a name, the
/// default domain; never NULL, which would be the default domain by accident.
[[nodiscard]] NvtxDomain* create_domain(const char* name) noexcept;

/// [any thread] hot. A handle from another tool, or made before we attached, is unknown: the default domain.
[[nodiscard]] inline const NvtxDomain& domain_of(nvtxDomainHandle_t handle) noexcept {
  const auto* domain = reinterpret_cast<const NvtxDomain*>(handle);
  const auto& all = detail::g_nvtx_domains;
  return domain < all.data() || domain >= all.data() + kMaxNvtxDomains ? all[0] : *domain;
}

/// By its id, for rules that name a domain.
[[nodiscard]] const char* nvtx_domain_name(DomainId domain) noexcept;

/// A client's nvtxStringHandle_t: the text, and its kind once there are rules. Never freed.
struct RegisteredString {
  std::uint32_t magic = kMagic;
  std::uint32_t length = 0;
  std::atomic<std::uint32_t> kind{0};  ///< MatchedRange::word; 0: not asked yet
  char text[RuleCache::kMaxLength + 1] = {};

  static constexpr std::uint32_t kMagic = 0x4D465553;  // "MFUS"
};
/// Each with its own text, 4.4 MiB. XLA registers more than that while it compiles one model.
inline constexpr std::uint32_t kMaxRegisteredStrings = 16384;

/// [any thread] Past the last one, strings are shared: by all that open regions of the same shape, and by all that are
/// no regions and have the same number (MatchedRange); at most twice as many again. For NULL, and where none is to be
/// had: one without text.
[[nodiscard]] RegisteredString* register_text(const NvtxDomain& domain, const char* text) noexcept;

/// A range's name and payload as one call gave them.
struct RangeEvent {
  std::string_view name;
  RegisteredString* registered = nullptr;
  bool has_payload = false;
  double payload = 0;
};

/// Room for a name that is not UTF-8 as the client gave it.
using NameBuffer = std::array<char, RuleCache::kMaxLength + 1>;

/// Wide characters (UTF-32) as UTF-8, as far as a name counts; of nullptr nothing. Good as long as `out`, where it ends
/// with a zero.
[[nodiscard]] std::string_view narrow(const wchar_t* text, NameBuffer& out) noexcept;

/// Reads as much of the attributes as the client's version of the struct has. The name is good as long as `buffer` and
/// the target of the attributes.
[[nodiscard]] RangeEvent read_attributes(const nvtxEventAttributes_t* attributes, NameBuffer& buffer) noexcept;

}  // namespace mfu

// Range name > rule, fast: the answers of RegionRules are kept here.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/base/ids.h"
#include "core/base/zeroed_array.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/unmatched_names.h"

namespace mfu {

/// The answer of the rules to the name of a range.
struct MatchedRange {
  RuleId rule = RuleId::kNone;
  std::uint16_t name = 0;      ///< RuleCache::name_of knows it, of a range that is no region; 0: none
  bool without_shape = false;  ///< of a region: RegionRules::gives_shape says so

  [[nodiscard]] static constexpr MatchedRange of(std::uint32_t word) noexcept {
    return {static_cast<RuleId>(word & 0xFFFFu), static_cast<std::uint16_t>(word >> 16 & 0x7FFFu), word >> 31 != 0};
  }
  /// Not 0 where there is a name.
  [[nodiscard]] constexpr std::uint32_t word() const noexcept {
    return raw(rule) | std::uint32_t{name} << 16 | std::uint32_t{without_shape} << 31;
  }
};

/// A direct-mapped cache over name hashes. [any thread] hot: no lock, no allocation; a miss asks the rules
/// (microseconds). Names that differ in their digits only (`ProfilerStep#17`) share one entry when no rule can tell
/// them apart, so a counter in a name does not miss for ever.
class RuleCache {
 public:
  static constexpr std::size_t kMaxLength = 255;  ///< bytes of a name that count; the rest is ignored
  static constexpr std::uint32_t kCapacity = 1u << 14;

  explicit RuleCache(const RegionRules& rules) noexcept : rules_(rules) {}

  /// Of a range `name` (at most kMaxLength bytes are read) in `domain`.
  [[nodiscard, gnu::always_inline]] MatchedRange kind_of(DomainId domain, const char* domain_name,
                                                         std::string_view name) noexcept {
    const std::uint64_t hash = hash_of(name, raw(domain));
    std::uint64_t word = cache_[hash & (kCapacity - 1)].load(std::memory_order_relaxed);
    if (!is_of(word, hash)) word = miss(domain, domain_name, name, hash);
    return {rule_in(word), static_cast<std::uint16_t>((hash & (kCapacity - 1)) + 1), (word & kWithoutShape) != 0};
  }

  /// The name of a range that is no region, with `#` for digits; of those that share a number, the one that came first.
  [[nodiscard]] std::string_view name_of(std::uint16_t number) const noexcept {
    if (number == 0 || names_[number - 1u].ready.load(std::memory_order_acquire) != Name::kReady) return {};
    return names_[number - 1u].text.data();
  }

  /// The names met so far that are no regions.
  [[nodiscard]] const UnmatchedNames& unmatched() const noexcept { return unmatched_; }

  /// A name as the client passed it, cut to what counts.
  [[nodiscard]] static std::string_view cut(const char* text) noexcept { return {text, ::strnlen(text, kMaxLength)}; }

 private:
  struct Name {
    enum : std::uint8_t { kEmpty, kTaken, kReady };
    std::atomic<std::uint8_t> ready;
    std::array<char, 63> text;
  };
  void keep_name(std::string_view name, std::uint64_t hash) noexcept;
  [[nodiscard]] static std::uint64_t hash_of(std::string_view name, std::uint64_t seed) noexcept;
  std::uint64_t miss(DomainId domain, const char* domain_name, std::string_view name, std::uint64_t hash) noexcept;
  RuleId ask(std::string_view domain_name, std::string_view name) noexcept;
  /// A word of the cache. Low 16 bits: rule + 2, so that "no rule" (0xFFFF + 2 = 1) is distinct from an empty slot.
  /// Then a flag, then the hash.
  static constexpr std::uint64_t kRule = 0xFFFF, kWithoutShape = 0x10000, kHash = ~(kRule | kWithoutShape);
  [[nodiscard]] std::uint64_t pack(std::uint64_t hash, RuleId rule, std::string_view name) const noexcept {
    const bool shape = rule == RuleId::kNone || rules_.gives_shape(rule, name);
    return (hash & kHash) | (shape ? 0 : kWithoutShape) | static_cast<std::uint16_t>(raw(rule) + 2);
  }
  static bool is_of(std::uint64_t word, std::uint64_t hash) noexcept {
    return ((word ^ hash) & kHash) == 0 && (word & kRule) != 0;
  }
  static RuleId rule_in(std::uint64_t word) noexcept {
    return static_cast<RuleId>(static_cast<std::uint16_t>((word & kRule) - 2));
  }

  const RegionRules& rules_;
  ZeroedArray<std::atomic<std::uint64_t>> cache_{kCapacity};
  ZeroedArray<Name> names_{kCapacity};  ///< 1 MiB, of which pages are touched that hold names
  UnmatchedNames unmatched_;
};

inline std::uint64_t RuleCache::hash_of(std::string_view name, std::uint64_t seed) noexcept {
  // Multiply-and-fold, 16 bytes at a time; the last 16 overlap those before, so no byte loop is needed.
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  const auto read8 = [](const char* p) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    return word;
  };
  const auto read4 = [](const char* p) {
    std::uint32_t word = 0;
    std::memcpy(&word, p, 4);
    return std::uint64_t{word};
  };
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ull;    // 2^64 / golden ratio
  constexpr std::uint64_t kOther = 0xD6E8FEB86659FD93ull;  // any odd number with as many ones as zeros
  const char* p = name.data();
  std::size_t left = name.size();
  std::uint64_t h = seed * kOther;
  std::uint64_t a = 0, b = 0;
  if (left >= 8) {
    for (; left > 16; left -= 16, p += 16) h = fold(read8(p) ^ kMix, read8(p + 8) ^ h);
    const char* end = name.data() + name.size();
    a = read8(left >= 8 ? p : end - 8);
    b = read8(end - 8);
  } else if (left >= 4) {
    a = read4(p);
    b = read4(p + left - 4);
  } else if (left != 0) {
    a = (static_cast<std::uint64_t>(static_cast<unsigned char>(p[0])) << 16) |
        (static_cast<std::uint64_t>(static_cast<unsigned char>(p[left / 2])) << 8) |
        static_cast<unsigned char>(p[left - 1]);
  }
  return fold(kOther ^ name.size(), fold(a ^ kMix, b ^ h ^ kOther));
}

}  // namespace mfu

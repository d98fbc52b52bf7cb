#include "core/ranges/rule_cache.h"

#include <array>

namespace mfu {

RuleId RuleCache::ask(std::string_view domain_name, std::string_view name) noexcept {
  const RuleId rule = rules_.match(domain_name, name);
  if (rule == RuleId::kNone)
    unmatched_.add(domain_name, name);
  else
    unmatched_.matched(rules_.is_of_config(rule));
  return rule;
}

void RuleCache::keep_name(std::string_view name, std::uint64_t hash) noexcept {
  Name& kept = names_[hash & (kCapacity - 1)];
  if (std::uint8_t empty = Name::kEmpty; !kept.ready.compare_exchange_strong(empty, Name::kTaken)) return;
  std::size_t length = 0;
  for (const char c : name) {
    const char shown = c >= '0' && c <= '9' ? '#' : c;
    if (shown == '#' && length != 0 && kept.text[length - 1] == '#') continue;
    if (length + 1 == kept.text.size()) break;
    kept.text[length++] = shown;
  }
  kept.ready.store(Name::kReady, std::memory_order_release);
}

RuleId RuleCache::miss(DomainId domain, std::string_view domain_name, std::string_view name,
                       std::uint64_t hash) noexcept {
  std::atomic<std::uint64_t>& exact = cache_[hash & (kCapacity - 1)];
  if (!rules_.digits_do_not_matter()) {
    const RuleId rule = ask(domain_name, name);
    if (rule == RuleId::kNone) keep_name(name, hash);
    exact.store(pack(hash, rule), std::memory_order_relaxed);
    return rule;
  }
  // The same name with every run of digits written as one NUL, which no real name holds.
  std::array<char, kMaxLength> collapsed;
  std::size_t length = 0;
  bool in_digits = false;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      collapsed[length++] = c;
    else if (!in_digits)
      collapsed[length++] = '\0';
    in_digits = digit;
  }
  const std::uint64_t shared = hash_of({collapsed.data(), length}, ~static_cast<std::uint64_t>(raw(domain)));
  std::atomic<std::uint64_t>& slot = cache_[shared & (kCapacity - 1)];
  const std::uint64_t word = slot.load(std::memory_order_relaxed);
  RuleId rule;
  if ((word & ~0xFFFFull) == (shared & ~0xFFFFull) && (word & 0xFFFFull) != 0) {
    rule = unpack(word);
  } else {
    rule = ask(domain_name, name);
    slot.store(pack(shared, rule), std::memory_order_relaxed);
  }
  if (rule == RuleId::kNone) keep_name(name, hash);
  exact.store(pack(hash, rule), std::memory_order_relaxed);
  return rule;
}

}  // namespace mfu

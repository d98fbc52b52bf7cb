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

std::uint64_t RuleCache::miss(DomainId domain, const char* domain_name, std::string_view name,
                              std::uint64_t hash) noexcept {
  std::atomic<std::uint64_t>& exact = cache_[hash & (kCapacity - 1)];
  const auto keep = [&](RuleId rule) {
    if (rule == RuleId::kNone) keep_name(name, hash);
    const std::uint64_t found = pack(hash, rule, name);
    exact.store(found, std::memory_order_relaxed);
    return found;
  };
  if (!rules_.digits_do_not_matter()) return keep(ask(domain_name, name));
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
  if (is_of(word, shared)) {
    rule = rule_in(word);
  } else {
    rule = ask(domain_name, name);
    slot.store(pack(shared, rule, name), std::memory_order_relaxed);
  }
  return keep(rule);
}

}  // namespace mfu

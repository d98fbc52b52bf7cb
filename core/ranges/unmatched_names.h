// Names of ranges that no rule matched, so that a person can write the missing rule.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/ranges/region_rules.h"

namespace mfu {

/// The first few such names and whether any rule matched at all. [any thread] add and matched: no lock, no allocation;
/// both are called when a name is met for the first time, not for every range.
class UnmatchedNames {
 public:
  static constexpr std::size_t kKept = 8;     ///< names
  static constexpr std::size_t kLength = 96;  ///< bytes kept of each

  /// Ranges that libraries and frameworks open by themselves (NCCL, CUB, XLA's compiler, ...) are left out: no rule is
  /// missing for those.
  void add(std::string_view domain, std::string_view name) noexcept;
  void matched(bool rule_of_config) noexcept {
    any_matched_.store(true, std::memory_order_relaxed);
    if (rule_of_config) own_matched_.store(true, std::memory_order_relaxed);
  }

  /// Without duplicates, in the order met.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool any_matched() const noexcept { return any_matched_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool own_matched() const noexcept { return own_matched_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    std::atomic<bool> ready{false};  ///< pairs with names(): set after the text
    std::size_t length = 0;
    std::array<char, kLength> text{};
  };
  std::array<Slot, kKept> slots_;
  std::atomic<std::size_t> taken_{0};
  std::atomic<bool> any_matched_{false}, own_matched_{false};
};

/// One line when ranges come and no rule matches them, or none of the config's own: the names seen, the rules that
/// match none, and a rule that would. Empty: nothing to say.
[[nodiscard]] std::string unmatched_notice(const UnmatchedNames& seen, const std::vector<RegionRule>& rules);

/// One line when rules of the config wait for ranges and none came at all. Empty: nothing to say.
[[nodiscard]] std::string no_ranges_notice(bool any_seen, const std::vector<RegionRule>& rules);

/// The rule for a range of that name, as an entry of the config's `regions`:
/// `{"region": "forward", "match": "forward.*"}`.
[[nodiscard]] std::string proposed_rule(std::string_view name);

}  // namespace mfu

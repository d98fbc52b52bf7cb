// Models that keep the keys and values of earlier tokens themselves, and whose arguments do not say so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "core/program/program_fact.h"

namespace mfu {

/// Where what begins at `begin` ends; nothing: it is under way.
[[nodiscard]] std::optional<std::size_t> end_of(const std::deque<ProgramFact>& facts, std::size_t begin);

/// Finds the passes that fill such a cache. [one thread]
class OwnCaches {
 public:
  static constexpr std::size_t kMostLooks = 32;  ///< passes: until then it is waited for signs of a cache

  /// The pass that `end` ends read what earlier ones of its sequences kept: so do those right before it with one token,
  /// and the one with several before these fills the cache. They get kCache.
  void note(const ProgramFact& end, std::deque<ProgramFact>& facts);
  /// Whether the first of `facts`, a pass with its end at `end`, fills a cache is known when the one or two behind it
  /// have ended. \return they have not
  [[nodiscard]] bool wait_for_more(const std::deque<ProgramFact>& facts, std::size_t end);

 private:
  std::set<std::uint64_t> keep_;  ///< modules that have one
  std::size_t looked_ = 0;        ///< passes
};

}  // namespace mfu

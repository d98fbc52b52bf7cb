// How many query-key pairs an attention core multiplies, and how many cached entries it reads: closed forms, exact.
#pragma once

#include <cstdint>

#include "core/base/count.h"

namespace mfu {

/// Which pairs are counted. Encoders and cross attention have no mask: the three agree there.
enum class AttentionMode : std::uint8_t {
  kCausal,        ///< the keys that the mask lets each query see (default)
  kFull,          ///< every key of the pass for every query; windows and mask ignored
  kFullWindowed,  ///< as kFull, but at most `window` keys on sliding layers
};

/// `passes` forward passes over one sequence that feed `fed` tokens each, the first after `past` cached ones.
/// `grows`: each pass finds the tokens of the one before in the cache; otherwise every pass starts at `past`.
struct PassSeries {
  std::int64_t past = 0;
  std::int64_t fed = 0;
  std::int64_t passes = 1;
  bool grows = true;
};

/// The mask of one layer. Zero: no limit.
struct Mask {
  bool causal = true;
  std::int64_t window = 0;  ///< causal: keys a query sees, itself included; else: keys to each side of it
  std::int64_t chunk = 0;   ///< a query sees the keys of the same chunk only
  std::int64_t block = 0;  ///< without causality, by blocks of so many tokens: the first, the last, the query's own and
                           ///< its neighbours, and `random` others; the first and the last see all (BigBird)
  std::int64_t random = 0;
};

/// Query-key pairs of the whole series in one layer and head.
/// Causal, no window: n*p + n*(n+1)/2 for n new tokens on p cached ones; with a window W the rows beyond the window
/// count W each; bidirectional: n*(p+n), with W keys to each side n*(2W+1) - W*(W+1) where n > W.
[[nodiscard]] Count attention_pairs(const PassSeries& series, const Mask& mask, AttentionMode mode) noexcept;

/// Cached entries that some query of each pass sees, the new ones included, summed over the passes:
/// min(p+n, n+W-1) per pass with a window W, p+n without.
[[nodiscard]] Count entries_seen(const PassSeries& series, const Mask& mask) noexcept;

/// Pairs of queries and compressed entries, one per `rate` tokens that end no later than the query, at most `most` of
/// them (0: all). kFull and kFullWindowed: every entry that is there at the end of the pass.
[[nodiscard]] Count compressed_pairs(const PassSeries& series, std::int64_t rate, std::int64_t most,
                                     AttentionMode mode) noexcept;

}  // namespace mfu

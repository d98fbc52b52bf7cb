#include "core/model/attention_pairs.h"

#include <utility>

namespace mfu {
namespace {

/// 0 + 1 + ... + n.
Count triangle(Count n) noexcept { return (n * (n + 1)).divided_by(2); }

/// Visible pairs of the query rows [past, past + rows) under a causal mask.
Count causal_pairs(std::int64_t past, Count rows, const Mask& mask) noexcept {
  if (mask.chunk > 0) {
    // Row q sees (q mod chunk) + 1 keys; sum over [0, x) is whole chunks plus the rest.
    const auto below = [chunk = mask.chunk](Count x) {
      const Count whole = x.divided_by(chunk);
      return whole * triangle(chunk) + triangle(x - whole * chunk);
    };
    return below(rows + past) - below(past);
  }
  if (mask.window > 0) {
    // The first rows still see fewer keys than the window holds.
    Count growing = past < mask.window ? mask.window - past : 0;
    if (rows < growing) growing = rows;
    return growing * past + triangle(growing) + (rows - growing) * mask.window;
  }
  return rows * past + triangle(rows);
}

/// Pairs of one pass without causality over `n` tokens, all of them new.
Count bidirectional_pairs(std::int64_t n, const Mask& mask, AttentionMode mode) noexcept {
  const Count all = Count(n) * n;
  if (mode == AttentionMode::kFull) return all;
  if (mask.block > 0) {
    // Sequences of few blocks are counted, and computed, in full (arXiv:2007.14062 and its published code).
    if (!(Count(mask.block) * (5 + 2 * mask.random) < Count(n))) return all;
    const std::int64_t blocks = (n + mask.block - 1) / mask.block;
    return (Count(2) * blocks + 2 * (4 + mask.random) + Count(blocks - 4) * (5 + mask.random)) * mask.block *
           mask.block;
  }
  if (mask.window <= 0 || mask.window >= n) return all;
  const Count reach = Count(2) * mask.window + 1;
  if (mode == AttentionMode::kFullWindowed) return reach < Count(n) ? reach * n : all;
  return reach * n - Count(mask.window) * (Count(mask.window) + 1);
}

/// Sum over passes i of min(past + (i+1)*fed, limit), the keys present at the end of each pass, capped.
Count capped_context_sum(std::int64_t past, std::int64_t fed, std::int64_t passes, Count limit) noexcept {
  Count under = 0;  // passes whose context is still below the limit
  if (fed > 0) {
    if (Count(past) < limit) under = (limit - past).divided_by(fed);
    if (Count(passes) < under) under = passes;
  } else {
    return (Count(past) < limit ? Count(past) : limit) * passes;
  }
  return under * past + triangle(under) * fed + (Count(passes) - under) * limit;
}

/// Sum over i in [0, n) of floor((a*i + b) / m), by the Euclid-like reduction; at most ~128 rounds.
Count floor_sum(Count n, Count m, Count a, Count b) noexcept {
  // All values below 2^64 here (counts of tokens), so the products stay below 2^128 and are checked anyway.
  Count sum;
  for (int round = 0; round < 200; ++round) {
    if (!a.fits() || !b.fits() || !m.fits() || !n.fits() || m.is_zero()) break;
    const std::uint64_t modulus = m.u64();
    const std::uint64_t a_whole = a.u64() / modulus;
    const std::uint64_t b_whole = b.u64() / modulus;
    const Count n_minus = n.is_zero() ? Count(0) : n - 1;
    sum += (n * n_minus).divided_by(2) * static_cast<std::int64_t>(a_whole);
    sum += n * static_cast<std::int64_t>(b_whole);
    a = static_cast<std::int64_t>(a.u64() % modulus);
    b = static_cast<std::int64_t>(b.u64() % modulus);
    const Count top = a * n + b;
    if (top < m) return sum;
    n = top.divided_by(m.u64() > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(m.u64()));
    b = top - n * m;
    std::swap(m, a);
  }
  return Count(-1);  // overflowed
}

}  // namespace

Count attention_pairs(const PassSeries& s, const Mask& mask, AttentionMode mode) noexcept {
  if (s.fed <= 0 || s.passes <= 0) return 0;
  if (!s.grows && s.passes > 1) return attention_pairs({s.past, s.fed, 1, true}, mask, mode) * s.passes;
  const Count rows = Count(s.fed) * s.passes;
  if (!mask.causal && s.past == 0 && (s.passes == 1 || !s.grows))
    return bidirectional_pairs(s.fed, mask, mode) * s.passes;
  if (!mask.causal) return Count(s.fed) * capped_context_sum(s.past, s.fed, s.passes, rows + s.past);
  if (mode == AttentionMode::kCausal) return causal_pairs(s.past, rows, mask);
  Count limit = rows + s.past;
  if (mode == AttentionMode::kFullWindowed) {
    if (mask.window > 0 && Count(mask.window) < limit) limit = mask.window;
    if (mask.chunk > 0 && Count(mask.chunk) < limit) limit = mask.chunk;
  }
  return Count(s.fed) * capped_context_sum(s.past, s.fed, s.passes, limit);
}

Count compressed_pairs(const PassSeries& s, std::int64_t rate, std::int64_t most, AttentionMode mode) noexcept {
  if (s.fed <= 0 || s.passes <= 0 || rate <= 0) return 0;
  if (!s.grows && s.passes > 1) return compressed_pairs({s.past, s.fed, 1, true}, rate, most, mode) * s.passes;
  const Count rows = Count(s.fed) * s.passes;
  const auto capped_sum = [rate, most](Count first, Count n, std::int64_t step) {
    // Sum over j in [0, n) of min((first + j * step) / rate, most).
    Count under = n;
    if (most > 0) {
      const Count limit = Count(most) * rate;  // below it, fewer than `most`
      under = first < limit ? (limit - first + (step - 1)).divided_by(step) : Count(0);
      if (n < under) under = n;
    }
    Count sum = floor_sum(under, rate, step, first);
    if (most > 0) sum += (n - under) * most;
    return sum;
  };
  if (mode == AttentionMode::kCausal) return capped_sum(Count(s.past) + 1, rows, 1);
  return Count(s.fed) * capped_sum(Count(s.past) + s.fed, s.passes, s.fed);
}

Count entries_seen(const PassSeries& s, const Mask& mask) noexcept {
  if (s.fed <= 0 || s.passes <= 0) return 0;
  if (!s.grows && s.passes > 1) return entries_seen({s.past, s.fed, 1, true}, mask) * s.passes;
  const Count end = Count(s.past) + Count(s.fed) * s.passes;
  if (mask.chunk > 0) {
    // From the start of the first row's chunk to the end of the pass: fed + (past_i mod chunk), summed over passes.
    const Count starts = Count(s.passes) * s.past + Count(s.fed) * triangle(s.passes - 1);
    const Count chunk_starts = floor_sum(s.passes, mask.chunk, s.fed, s.past) * mask.chunk;
    return Count(s.fed) * s.passes + (starts - chunk_starts);
  }
  Count limit = end;
  if (mask.window > 0) {
    const Count reach = Count(s.fed) + (mask.window - 1);
    if (reach < limit) limit = reach;
  }
  return capped_context_sum(s.past, s.fed, s.passes, limit);
}

}  // namespace mfu

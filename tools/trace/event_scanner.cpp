#include "tools/trace/event_scanner.h"

#include <bit>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace mfu {
namespace {

/// One bit per byte of a 64-byte block.
struct BlockMasks {
  std::uint64_t quotes = 0;
  std::uint64_t backslashes = 0;
  std::uint64_t opens = 0;   ///< `{` and `[`
  std::uint64_t closes = 0;  ///< `}` and `]`
};

#if defined(__SSE2__)

BlockMasks classify(const char* block) noexcept {
  BlockMasks masks;
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i fold = _mm_set1_epi8(0x20);  // `[` | 0x20 == `{`, `]` | 0x20 == `}`, and no other byte joins them
  const __m128i open = _mm_set1_epi8('{');
  const __m128i close = _mm_set1_epi8('}');
  for (int i = 0; i < 4; ++i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + i);
    const __m128i folded = _mm_or_si128(bytes, fold);
    const auto bits = [&](__m128i equal) {
      return static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(equal))) << (16 * i);
    };
    masks.quotes |= bits(_mm_cmpeq_epi8(bytes, quote));
    masks.backslashes |= bits(_mm_cmpeq_epi8(bytes, backslash));
    masks.opens |= bits(_mm_cmpeq_epi8(folded, open));
    masks.closes |= bits(_mm_cmpeq_epi8(folded, close));
  }
  return masks;
}

#elif defined(__aarch64__)

BlockMasks classify(const char* block) noexcept {
  BlockMasks masks;
  constexpr std::uint8_t kWeights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t weights = vld1q_u8(kWeights);
  // Bytes that are equal are all ones: one bit of each, then added up half by half.
  const auto bits = [&weights](uint8x16_t equal) {
    const uint8x16_t weighted = vandq_u8(equal, weights);
    return static_cast<std::uint64_t>(vaddv_u8(vget_low_u8(weighted))) |
           static_cast<std::uint64_t>(vaddv_u8(vget_high_u8(weighted))) << 8;
  };
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(block) + 16 * i);
    const uint8x16_t folded = vorrq_u8(bytes, vdupq_n_u8(0x20));  // `[` | 0x20 == `{`, `]` | 0x20 == `}`
    masks.quotes |= bits(vceqq_u8(bytes, vdupq_n_u8('"'))) << (16 * i);
    masks.backslashes |= bits(vceqq_u8(bytes, vdupq_n_u8('\\'))) << (16 * i);
    masks.opens |= bits(vceqq_u8(folded, vdupq_n_u8('{'))) << (16 * i);
    masks.closes |= bits(vceqq_u8(folded, vdupq_n_u8('}'))) << (16 * i);
  }
  return masks;
}

#else

BlockMasks classify(const char* block) noexcept {
  BlockMasks masks;
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const char c = block[i];
    if (c == '"') masks.quotes |= bit;
    if (c == '\\') masks.backslashes |= bit;
    if (c == '{' || c == '[') masks.opens |= bit;
    if (c == '}' || c == ']') masks.closes |= bit;
  }
  return masks;
}

#endif

/// Bit i of the result is the parity of the bits 0..i: ones from each opening quote up to its closing one.
std::uint64_t prefix_parity(std::uint64_t bits) noexcept {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

/// Bytes that a backslash escapes. `carry` is 1 when the block's first byte is escaped, and is left so for the next.
std::uint64_t escaped_bytes(std::uint64_t backslashes, std::uint64_t& carry) noexcept {
  std::uint64_t escaped = carry;
  carry = 0;
  backslashes &= ~escaped;
  while (backslashes != 0) {  // rare: a name with an escape, a path
    const int at = std::countr_zero(backslashes);
    backslashes &= backslashes - 1;
    if (at == 63) {
      carry = 1;
      break;
    }
    const std::uint64_t next = std::uint64_t{1} << (at + 1);
    escaped |= next;
    backslashes &= ~next;
  }
  return escaped;
}

}  // namespace

EventScanner::Found EventScanner::scan(std::string_view piece) noexcept {
  Found found;
  const std::size_t whole = piece.size() / 64 * 64;
  for (std::size_t base = 0; base < whole; base += 64) {
    BlockMasks masks = classify(piece.data() + base);
    if ((masks.backslashes | escape_carry_) != 0) masks.quotes &= ~escaped_bytes(masks.backslashes, escape_carry_);
    const std::uint64_t strings = prefix_parity(masks.quotes) ^ in_string_;
    in_string_ = (strings >> 63) != 0 ? ~std::uint64_t{0} : 0;
    const std::uint64_t opens = masks.opens & ~strings;
    const std::uint64_t closes = masks.closes & ~strings;
    const int close_count = std::popcount(closes);
    if (depth_ > close_count) {  // no bracket of this block can end an element
      depth_ += std::popcount(opens) - close_count;
      continue;
    }
    for (std::uint64_t brackets = opens | closes; brackets != 0; brackets &= brackets - 1) {
      const int at = std::countr_zero(brackets);
      if (bracket((opens >> at & 1) != 0, base + static_cast<std::size_t>(at), found)) return found;
    }
  }
  for (std::size_t at = whole; at < piece.size(); ++at) {
    const char c = piece[at];
    if (escape_carry_ != 0) {
      escape_carry_ = 0;
    } else if (c == '\\') {
      escape_carry_ = 1;
    } else if (c == '"') {
      in_string_ = ~in_string_;
    } else if (in_string_ == 0) {
      const char folded = static_cast<char>(c | 0x20);
      if ((folded == '{' || folded == '}') && bracket(folded == '{', at, found)) return found;
    }
  }
  return found;
}

bool EventScanner::bracket(bool open, std::size_t at, Found& found) noexcept {
  if (open) {
    ++depth_;
    return false;
  }
  --depth_;
  if (depth_ == 0) found.last_end = at + 1;
  if (depth_ < 0) found.array_end = at + 1;
  return depth_ < 0;
}

}  // namespace mfu

// Pieces of the screen of `mfu top`: styled text, bars, histories, in Unicode or in ASCII.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/rows/region_summary.h"

namespace mfu {

enum class Style : std::uint8_t {
  kPlain,
  kBold,
  kDim,
  kHeader,
  kSelected,
  kWarning,
  kMfu,  ///< the six parts of the waterfall, in its order
  kMatmul,
  kOther,
  kComm,
  kMemcpy,
  kIdle,
};

struct Span {
  std::string text;  ///< printable, no control character
  Style style = Style::kPlain;
  Style behind = Style::kPlain;  ///< colour behind the text, where it is one of the six parts
};
using ScreenLine = std::vector<Span>;

enum class Glyphs : std::uint8_t {
  kAscii,    ///< a letter per part of a bar, which needs no colour; digits for a history
  kLetters,  ///< the same bars, braille histories
  kBlocks,   ///< bars of blocks in the part's colour, with edges on eighths of a column; braille histories
};

struct BarPart {
  char letter;
  std::string_view word;
  Style style;
};
/// The waterfall from left to right: the useful part, then the losses.
inline constexpr std::array<BarPart, 6> kBarParts{{{'#', "MFU", Style::kMfu},
                                                   {'=', "matmul", Style::kMatmul},
                                                   {'o', "other", Style::kOther},
                                                   {'c', "comm", Style::kComm},
                                                   {'y', "copy", Style::kMemcpy},
                                                   {'.', "idle", Style::kIdle}}};
/// The six shares of a bar; they sum to at most 1.
using BarShares = std::array<double, kBarParts.size()>;

/// Of a row with MFU: it and what was lost. Where FLOP or peak are unknown, matmul has all of its time. None where what
/// ran was not measured.
[[nodiscard]] std::optional<BarShares> bar_shares(const RegionSummary& row);

/// The same of a row as a bar; `not timed` where its times are missing.
[[nodiscard]] ScreenLine bar_of(const RegionSummary& row, std::size_t width, Glyphs glyphs);
/// `width` columns; each edge is rounded by itself: parts never add up to more than there is. Blank without shares.
[[nodiscard]] ScreenLine bar(const std::optional<BarShares>& shares, std::size_t width, Glyphs glyphs);

/// How many values of the past a column of a history shows: two in braille where they would not fit otherwise.
[[nodiscard]] constexpr std::size_t values_per_column(std::size_t values, std::size_t width, Glyphs glyphs) noexcept {
  return glyphs != Glyphs::kAscii && values > width ? 2 : 1;
}
/// Values 0..1 of the past, oldest first, as `height` lines of `width` columns: the newest ones. `top` is the value of
/// the upper edge. Unknown values are gaps.
[[nodiscard]] std::vector<std::string> history_lines(const std::vector<std::optional<double>>& values,
                                                     std::size_t width, std::size_t height, double top, Glyphs glyphs);

/// `text` without control characters and broken UTF-8, at most `width` columns; cut ones end in `~`.
[[nodiscard]] std::string fit(std::string_view text, std::size_t width);
/// fit() to exactly `width` columns.
[[nodiscard]] std::string right(std::string_view text, std::size_t width);
[[nodiscard]] std::string left(std::string_view text, std::size_t width);
/// Words with `gap` spaces between them, in as many lines as it takes.
[[nodiscard]] std::vector<std::string> flow(const std::vector<std::string>& words, std::size_t width,
                                            std::size_t gap = 2);

}  // namespace mfu

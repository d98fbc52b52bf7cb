// The screen of `mfu top` as text with styles: no terminal is needed to make it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/top/snapshot.h"

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
};
using ScreenLine = std::vector<Span>;

struct TopView {
  enum class Mode : std::uint8_t { kTable, kDetail, kHelp };
  Mode mode = Mode::kTable;
  std::string sort = "rank";
  std::string filter;
  bool editing_filter = false;
  std::size_t selected = 0;  ///< index among the rows shown
  std::size_t scroll = 0;    ///< first row shown; kept so that the selected one is
};

/// The whole screen: at most `height` lines of at most `width` columns. Clamps selected and scroll of `view`.
[[nodiscard]] std::vector<ScreenLine> render(const TopSnapshot& snapshot, TopView& view, int width, int height);

/// Everything, for a file or a pipe: as many lines as it takes, plain.
[[nodiscard]] std::string render_plain(const TopSnapshot& snapshot, const TopView& view, int width);

/// `text` without control characters and broken UTF-8, at most `width` columns; cut ones end in `~`.
[[nodiscard]] std::string fit(std::string_view text, std::size_t width);
/// Columns that `text` takes (valid UTF-8; every character counts as one).
[[nodiscard]] std::size_t columns(std::string_view text) noexcept;

}  // namespace mfu

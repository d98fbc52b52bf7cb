// The screen of `mfu top` as text with styles: no terminal is needed to make it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/top/glyphs.h"
#include "tools/top/snapshot.h"

namespace mfu {

struct TopView {
  enum class Mode : std::uint8_t { kTable, kHosts, kDetail, kHelp };
  Mode mode = Mode::kTable;
  Glyphs glyphs = Glyphs::kAscii;
  std::string sort = "rank";
  std::string filter;
  bool editing_filter = false;
  std::size_t selected = 0;  ///< index among the rows shown
  std::size_t scroll = 0;    ///< first row shown; kept so that the selected one is

  // Where the last render put things, for the mouse.
  int header_line = -1;                                  ///< of the table; -1: none
  std::vector<std::pair<int, std::string>> header_keys;  ///< end column of each heading, and its sort key (or empty)
};

/// The whole screen: at most `height` lines of at most `width` columns. Clamps selected and scroll of `view`.
[[nodiscard]] std::vector<ScreenLine> render(const TopSnapshot& snapshot, TopView& view, int width, int height);

/// Everything, for a file or a pipe: as many lines as it takes, plain.
[[nodiscard]] std::string render_plain(const TopSnapshot& snapshot, const TopView& view, int width);

/// What a click at this place of the last render means: the index of the row that is there.
[[nodiscard]] std::optional<std::size_t> row_at(const TopView& view, int line);
/// The sort key of the heading there; empty: none.
[[nodiscard]] std::string heading_at(const TopView& view, int line, int column);

}  // namespace mfu

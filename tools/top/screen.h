// The screen of `mfu top` as text with styles: no terminal is needed to make it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/top/glyphs.h"
#include "tools/top/snapshot.h"

namespace mfu {

struct TopView {
  enum class Mode : std::uint8_t { kTable, kHosts, kDetail, kHelp };
  Mode mode = Mode::kTable;
  Mode before_help = Mode::kTable;
  Glyphs glyphs = Glyphs::kAscii;
  std::string sort = "rank";
  bool reversed = false;  ///< the worst comes last
  std::string filter;
  bool editing_filter = false;
  std::size_t selected = 0;  ///< index among the rows shown
  /// The row that was selected in the last render, and where: it stays selected when the order changes below it.
  struct Followed {
    std::string path;
    std::optional<std::uint32_t> device;
    std::size_t at = 0;
  };
  std::optional<Followed> followed;
  std::size_t scroll = 0;  ///< first row shown; kept so that the selected one is
  /// Back to the first row, whichever that is.
  void to_first() {
    selected = scroll = 0;
    followed.reset();
  }
  std::size_t detail_scroll = 0;  ///< lines of the detail above the screen; its first line stays

  // Where the last render put things, for the mouse.
  int header_line = -1;                                  ///< of the table; -1: none
  std::vector<std::pair<int, std::string>> header_keys;  ///< end column of each heading, and its sort key (or empty)
};

/// The whole screen: at most `height` lines of at most `width` columns. Clamps selected and the scrolls of `view`.
[[nodiscard]] std::vector<ScreenLine> render(const TopSnapshot& snapshot, TopView& view, int width, int height);

/// Everything, for a file or a pipe: as many lines as it takes, plain.
[[nodiscard]] std::string render_plain(const TopSnapshot& snapshot, const TopView& view, int width);

/// The index of the row that a click at this place of the last render means.
[[nodiscard]] std::optional<std::size_t> row_at(const TopView& view, int line);
/// The sort key of the heading there; empty: none.
[[nodiscard]] std::string heading_at(const TopView& view, int line, int column);

}  // namespace mfu

// The terminal that `mfu top` draws on: ncurses, and nothing of it beyond this file.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "tools/top/screen.h"

namespace mfu {

/// Colours for a dark or a light background, or none.
enum class Theme : std::uint8_t { kDark, kLight, kNone };
inline constexpr std::array<std::string_view, 3> kThemeNames{"dark", "light", "none"};

/// Takes the terminal over for its lifetime, and gives it back as it was. At most one at a time.
class Terminal {
 public:
  /// Error: no terminal, or one that ncurses does not know. \param mouse whether clicks are wanted: then the terminal's
  /// own selection of text needs its modifier key (Shift, as a rule)
  [[nodiscard]] static Result<void> open(Theme theme, bool mouse);
  static void close() noexcept;

  static void draw(const std::vector<ScreenLine>& lines);
  /// \return columns, lines of the terminal now.
  [[nodiscard]] static std::pair<int, int> size() noexcept;
  /// Takes effect with the next draw.
  static void set_theme(Theme theme) noexcept;
  /// The theme that was asked for, or kNone where the terminal has no colours or NO_COLOR is set.
  [[nodiscard]] static Theme theme() noexcept;
  /// Blocks and braille can be shown: the locale's characters are UTF-8.
  [[nodiscard]] static bool has_unicode() noexcept;

  enum class Key {
    kNone,
    kUp,
    kDown,
    kPageUp,
    kPageDown,
    kHome,
    kEnd,
    kEnter,
    kEscape,
    kBackspace,
    kResize,
    kText,
    kClick,
    kDoubleClick,
    kWheelUp,
    kWheelDown
  };
  struct Press {
    Key key = Key::kNone;
    char text = '\0';          ///< of kText
    int column = 0, line = 0;  ///< of the mouse
  };
  /// Waits for a key, `timeout_ms` at most.
  [[nodiscard]] static Press wait(int timeout_ms);
};

}  // namespace mfu

// The terminal that `mfu top` draws on: ncurses, and nothing of it beyond this file.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/top/screen.h"

namespace mfu {

/// Takes the terminal over for its lifetime, and gives it back as it was. At most one at a time.
class Terminal {
 public:
  /// Colours where the terminal has them and NO_COLOR is not set. Error: no terminal, or one that ncurses does not
  /// know.
  [[nodiscard]] static Result<void> open();
  static void close() noexcept;

  static void draw(const std::vector<ScreenLine>& lines);
  /// \return columns, lines of the terminal now.
  [[nodiscard]] static std::pair<int, int> size() noexcept;

  enum class Key { kNone, kUp, kDown, kPageUp, kPageDown, kHome, kEnd, kEnter, kEscape, kBackspace, kResize, kText };
  struct Press {
    Key key = Key::kNone;
    char text = '\0';  ///< of kText
  };
  /// Waits for a key, `timeout_ms` at most.
  [[nodiscard]] static Press wait(int timeout_ms);
};

}  // namespace mfu

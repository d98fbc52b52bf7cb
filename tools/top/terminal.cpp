#include "tools/top/terminal.h"

#include <clocale>
#include <cstdlib>

#define NCURSES_NOMACROS
#include <ncurses.h>
#undef OK

namespace mfu {

namespace {

::SCREEN* g_screen = nullptr;
bool g_colours = false;

::attr_t attributes(Style style) {
  switch (style) {
    case Style::kPlain:
      return A_NORMAL;
    case Style::kBold:
      return A_BOLD;
    case Style::kDim:
      return A_DIM;
    case Style::kHeader:
    case Style::kSelected:
      return A_REVERSE;
    case Style::kWarning:
      return g_colours ? static_cast<::attr_t>(COLOR_PAIR(1)) | A_BOLD : A_BOLD;
    default:
      return g_colours ? static_cast<::attr_t>(COLOR_PAIR(2 + static_cast<int>(style) - static_cast<int>(Style::kMfu)))
                       : A_NORMAL;
  }
}

}  // namespace

Result<void> Terminal::open() {
  std::setlocale(LC_ALL, "");
  const char* type = std::getenv("TERM");
  g_screen = ::newterm(nullptr, stdout, stdin);
  if (g_screen == nullptr)
    return Error{std::string("TERM=") + (type != nullptr ? type : "(unset)") +
                 ": not a terminal that ncurses knows; `mfu top --once` needs none"};
  ::set_term(g_screen);
  ::cbreak();
  ::noecho();
  ::keypad(stdscr, TRUE);
  ::set_escdelay(25);
  ::curs_set(0);
  const char* no_color = std::getenv("NO_COLOR");
  g_colours = (no_color == nullptr || *no_color == '\0') && ::has_colors();
  if (g_colours) {
    ::start_color();
    ::use_default_colors();
    ::init_pair(1, COLOR_YELLOW, -1);
    // The parts of the waterfall, in the order of Style: what was asked for, then what it was lost to.
    constexpr short kForeground[] = {COLOR_BLACK, COLOR_BLACK, COLOR_WHITE, COLOR_WHITE, COLOR_BLACK, -1};
    constexpr short kBackground[] = {COLOR_GREEN, COLOR_CYAN, COLOR_BLUE, COLOR_RED, COLOR_YELLOW, -1};
    for (short i = 0; i < 6; ++i) ::init_pair(static_cast<short>(2 + i), kForeground[i], kBackground[i]);
  }
  return {};
}

void Terminal::close() noexcept {
  if (g_screen == nullptr) return;
  ::endwin();
  ::delscreen(g_screen);
  g_screen = nullptr;
}

std::pair<int, int> Terminal::size() noexcept { return {COLS, LINES}; }

void Terminal::draw(const std::vector<ScreenLine>& lines) {
  ::werase(stdscr);
  for (std::size_t y = 0; y < lines.size() && y < static_cast<std::size_t>(LINES); ++y) {
    ::wmove(stdscr, static_cast<int>(y), 0);
    for (const Span& span : lines[y]) {
      const auto style = attributes(span.style);
      ::wattrset(stdscr, static_cast<int>(style));
      // The last cell of the screen cannot be written without scrolling: an error there is none.
      (void)::waddnstr(stdscr, span.text.data(), static_cast<int>(span.text.size()));
    }
  }
  ::wattrset(stdscr, A_NORMAL);
  ::wrefresh(stdscr);
}

Terminal::Press Terminal::wait(int timeout_ms) {
  ::wtimeout(stdscr, timeout_ms);
  const int key = ::wgetch(stdscr);
  switch (key) {
    case ERR:
      return {Key::kNone};
    case KEY_UP:
      return {Key::kUp};
    case KEY_DOWN:
      return {Key::kDown};
    case KEY_PPAGE:
      return {Key::kPageUp};
    case KEY_NPAGE:
      return {Key::kPageDown};
    case KEY_HOME:
      return {Key::kHome};
    case KEY_END:
      return {Key::kEnd};
    case KEY_ENTER:
    case '\n':
    case '\r':
      return {Key::kEnter};
    case KEY_BACKSPACE:
    case 127:
    case 8:
      return {Key::kBackspace};
    case 27:
      return {Key::kEscape};
    case KEY_RESIZE:
      return {Key::kResize};
    default:
      return key >= 0x20 && key < 0x100 ? Press{Key::kText, static_cast<char>(key)} : Press{};
  }
}

}  // namespace mfu

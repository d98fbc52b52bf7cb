#include "tools/top/terminal.h"

#include <langinfo.h>

#include <clocale>
#include <cstdlib>
#include <cstring>

#define NCURSES_NOMACROS
#include <ncurses.h>
#undef OK

namespace mfu {
namespace {

constexpr int kParts = 6;  // Style::kMfu to Style::kIdle
constexpr short kWarningPair = 1;
constexpr short kFirstPair = 2;  // then one per part and what is behind it

::SCREEN* g_screen = nullptr;
bool g_has_colours = false;
Theme g_theme = Theme::kDark;

/// The page's colours (Okabe and Ito) of the 256-colour cube, for dark and for light backgrounds; then the eight of
/// small terminals. The warning's colour is the last one.
struct Palette {
  std::array<short, kParts> part;
  short warning;
};
constexpr Palette kDark256{{36, 74, 214, 166, 175, 240}, 220};
constexpr Palette kLight256{{29, 74, 172, 166, 132, 250}, 130};
constexpr Palette kEight{{COLOR_GREEN, COLOR_CYAN, COLOR_YELLOW, COLOR_RED, COLOR_MAGENTA, COLOR_BLUE}, COLOR_YELLOW};

int part_of(Style style) {
  const int part = static_cast<int>(style) - static_cast<int>(Style::kMfu);
  return part >= 0 && part < kParts ? part : -1;
}

/// Pairs: part in front, nothing or another part behind it.
short pair_of(int front, int behind) { return static_cast<short>(kFirstPair + front * (kParts + 1) + behind + 1); }

void make_pairs() {
  if (!g_has_colours) return;
  const Palette& palette = COLORS < 256 ? kEight : g_theme == Theme::kLight ? kLight256 : kDark256;
  ::init_pair(kWarningPair, palette.warning, -1);
  for (int front = 0; front < kParts; ++front)
    for (int behind = -1; behind < kParts; ++behind)
      ::init_pair(pair_of(front, behind), palette.part[static_cast<std::size_t>(front)],
                  behind < 0 ? static_cast<short>(-1) : palette.part[static_cast<std::size_t>(behind)]);
}

::attr_t attributes(const Span& span) {
  const bool colours = Terminal::theme() != Theme::kNone;
  if (const int part = part_of(span.style); part >= 0)
    return colours ? static_cast<::attr_t>(COLOR_PAIR(pair_of(part, part_of(span.behind)))) : A_NORMAL;
  switch (span.style) {
    case Style::kBold:
      return A_BOLD;
    case Style::kDim:
      return A_DIM;
    case Style::kHeader:
    case Style::kSelected:
      return A_REVERSE;
    case Style::kWarning:
      return colours ? static_cast<::attr_t>(COLOR_PAIR(kWarningPair)) | A_BOLD : A_BOLD;
    default:
      return A_NORMAL;
  }
}

constexpr std::pair<int, Terminal::Key> kKeys[] = {
    {KEY_UP, Terminal::Key::kUp},         {KEY_DOWN, Terminal::Key::kDown},
    {KEY_PPAGE, Terminal::Key::kPageUp},  {KEY_NPAGE, Terminal::Key::kPageDown},
    {KEY_HOME, Terminal::Key::kHome},     {KEY_END, Terminal::Key::kEnd},
    {KEY_ENTER, Terminal::Key::kEnter},   {'\n', Terminal::Key::kEnter},
    {'\r', Terminal::Key::kEnter},        {127, Terminal::Key::kBackspace},
    {8, Terminal::Key::kBackspace},       {27, Terminal::Key::kEscape},
    {KEY_RESIZE, Terminal::Key::kResize}, {KEY_BACKSPACE, Terminal::Key::kBackspace},
};

}  // namespace

Result<void> Terminal::open(Theme theme, bool mouse) {
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
  if (mouse) {
    ::mousemask(BUTTON1_PRESSED | BUTTON1_CLICKED | BUTTON1_DOUBLE_CLICKED | BUTTON4_PRESSED | BUTTON5_PRESSED,
                nullptr);
    ::mouseinterval(0);  // a press is a click: nothing waits for its end
  }
  const char* no_color = std::getenv("NO_COLOR");
  g_has_colours = (no_color == nullptr || *no_color == '\0') && ::has_colors();
  if (g_has_colours) {
    ::start_color();
    ::use_default_colors();
  }
  set_theme(theme);
  return {};
}

void Terminal::close() noexcept {
  if (g_screen == nullptr) return;
  ::mousemask(0, nullptr);
  ::endwin();
  ::delscreen(g_screen);
  g_screen = nullptr;
}

void Terminal::set_theme(Theme theme) noexcept {
  g_theme = theme;
  make_pairs();
}

Theme Terminal::theme() noexcept { return g_has_colours ? g_theme : Theme::kNone; }

bool Terminal::has_unicode() noexcept { return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0; }

std::pair<int, int> Terminal::size() noexcept { return {COLS, LINES}; }

void Terminal::draw(const std::vector<ScreenLine>& lines) {
  ::werase(stdscr);
  for (std::size_t y = 0; y < lines.size() && y < static_cast<std::size_t>(LINES); ++y) {
    ::wmove(stdscr, static_cast<int>(y), 0);
    for (const Span& span : lines[y]) {
      const ::attr_t attribute = attributes(span);
      ::wattrset(stdscr, static_cast<int>(attribute));
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
  if (key == KEY_MOUSE) {
    ::MEVENT event{};
    if (::getmouse(&event) == ERR) return {};
    const Key what = (event.bstate & BUTTON4_PRESSED) != 0                       ? Key::kWheelUp
                     : (event.bstate & BUTTON5_PRESSED) != 0                     ? Key::kWheelDown
                     : (event.bstate & BUTTON1_DOUBLE_CLICKED) != 0              ? Key::kDoubleClick
                     : (event.bstate & (BUTTON1_PRESSED | BUTTON1_CLICKED)) != 0 ? Key::kClick
                                                                                 : Key::kNone;
    return {what, '\0', event.x, event.y};
  }
  for (const auto& [code, meaning] : kKeys)
    if (key == code) return {meaning};
  return key >= 0x20 && key < 0x100 ? Press{Key::kText, static_cast<char>(key)} : Press{};
}

}  // namespace mfu

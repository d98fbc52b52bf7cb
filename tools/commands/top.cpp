// `mfu top`: every rank of a job, live.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/say.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/job/cost.h"
#include "tools/job/live_job.h"
#include "tools/replay/late_count.h"
#include "tools/run_dir/find_run_dir.h"
#include "tools/top/local_gpus.h"
#include "tools/top/screen.h"
#include "tools/top/terminal.h"
#include "tools/trace/trace_input.h"

namespace mfu {
namespace {

constexpr int kPlainWidth = 120;

struct TopOptions {
  std::vector<std::string> directories;
  bool once = false, json = false, ascii = false, no_mouse = false;
  std::string sort = "rank", filter, theme = "dark", config;
  double refresh_s = 1;
  std::optional<double> gpu_hour;
};

int plain_width() {
  ::winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int given = columns != nullptr ? std::atoi(columns) : 0;
  return given > 0 ? given : kPlainWidth;
}

void sort_by_next(TopView& view, int step) {
  const auto at = std::find(kSortKeys.begin(), kSortKeys.end(), view.sort) - kSortKeys.begin();
  const auto count = static_cast<std::ptrdiff_t>(kSortKeys.size());
  view.sort = kSortKeys[static_cast<std::size_t>((at + step + count) % count)];
  view.reversed = false;
  view.to_first();
}

/// Enter, or a second click: the detail of the selected row.
void open_selected(TopView& view, const TopSnapshot& snapshot) {
  if (view.mode != TopView::Mode::kHosts) {
    view.mode = view.mode == TopView::Mode::kDetail ? TopView::Mode::kTable : TopView::Mode::kDetail;
    view.detail_scroll = 0;
    return;
  }
  if (view.selected < snapshot.hosts.size()) view.filter = "host=" + snapshot.hosts[view.selected].name;
  view.mode = TopView::Mode::kTable;
  view.to_first();
}

void handle_mouse(const Terminal::Press& press, TopView& view, const TopSnapshot& snapshot) {
  using Key = Terminal::Key;
  constexpr std::size_t kWheelRows = 3;
  std::size_t& moved = view.mode == TopView::Mode::kDetail ? view.detail_scroll : view.selected;
  if (press.key == Key::kWheelUp) moved -= std::min(moved, kWheelRows);
  if (press.key == Key::kWheelDown) moved += kWheelRows;
  if (press.key != Key::kClick && press.key != Key::kDoubleClick) return;
  if (view.mode == TopView::Mode::kDetail) {
    view.mode = TopView::Mode::kTable;
    return;
  }
  if (const std::string key = heading_at(view, press.line, press.column); !key.empty()) {
    view.reversed = view.sort == key && !view.reversed;
    view.sort = key;
    view.to_first();
  } else if (const auto row = row_at(view, press.line)) {
    if (press.key == Key::kDoubleClick || *row == view.selected)
      open_selected(view, snapshot);
    else
      view.selected = *row;
  }
}

void edit_filter(const Terminal::Press& press, TopView& view) {
  using Key = Terminal::Key;
  if (press.key == Key::kEnter) view.editing_filter = false;
  if (press.key == Key::kEscape) {
    view.editing_filter = false;
    view.filter.clear();
  }
  if (press.key == Key::kBackspace && !view.filter.empty()) view.filter.pop_back();
  if (press.key == Key::kText) view.filter += press.text;
}

void move_up(std::size_t& at, std::size_t rows) { at -= std::min(at, rows); }

/// In the detail, what moves far scrolls it: the rows are other ranks.
std::size_t& far_of(TopView& view) { return view.mode == TopView::Mode::kDetail ? view.detail_scroll : view.selected; }

constexpr std::size_t kToTheEnd = std::size_t{1} << 30;

void handle_letter(char letter, TopView& view) {
  using Mode = TopView::Mode;
  switch (letter) {
    case 'k':
      move_up(view.selected, 1);
      break;
    case 'j':
      ++view.selected;
      break;
    case 'g':
      far_of(view) = 0;
      break;
    case 'G':
      far_of(view) += kToTheEnd;
      break;
    case 's':
      sort_by_next(view, 1);
      break;
    case 'S':
      sort_by_next(view, -1);
      break;
    case 'r':
      view.reversed = !view.reversed;
      view.to_first();
      break;
    case '/':
      view.editing_filter = true;
      view.mode = Mode::kTable;
      break;
    case 'o':
      if (view.mode == Mode::kHosts && view.filter.starts_with("host=")) view.filter.clear();
      view.mode = view.mode == Mode::kHosts ? Mode::kTable : Mode::kHosts;
      view.to_first();
      break;
    case 't':
      Terminal::set_theme(static_cast<Theme>((static_cast<std::size_t>(Terminal::theme()) + 1) % kThemeNames.size()));
      break;
    case 'h':
    case '?':
      view.before_help = view.mode;
      view.mode = Mode::kHelp;
      break;
    default:
      break;
  }
}

/// \return false: quit.
bool handle(const Terminal::Press& press, TopView& view, const TopSnapshot& snapshot, std::size_t page) {
  using Key = Terminal::Key;
  if (view.editing_filter) {
    edit_filter(press, view);
    return true;
  }
  if (press.key == Key::kText && press.text == 'q') return false;
  if (view.mode == TopView::Mode::kHelp) {
    if (press.key != Key::kNone && press.key != Key::kResize) view.mode = view.before_help;
    return true;
  }
  switch (press.key) {
    case Key::kUp:
      move_up(view.selected, 1);
      break;
    case Key::kDown:
      ++view.selected;
      break;
    case Key::kPageUp:
      move_up(far_of(view), page);
      break;
    case Key::kPageDown:
      far_of(view) += page;
      break;
    case Key::kHome:
      far_of(view) = 0;
      break;
    case Key::kEnd:
      far_of(view) += kToTheEnd;
      break;
    case Key::kEnter:
      open_selected(view, snapshot);
      break;
    case Key::kEscape:
      if (view.mode == TopView::Mode::kTable) view.filter.clear();
      view.mode = TopView::Mode::kTable;
      break;
    case Key::kClick:
    case Key::kDoubleClick:
    case Key::kWheelUp:
    case Key::kWheelDown:
      handle_mouse(press, view, snapshot);
      break;
    case Key::kText:
      handle_letter(press.text, view);
      break;
    default:
      break;
  }
  return true;
}

/// Gives the rows of one process the work that `config` implies.
std::function<void(RunLine&)> counted_late(const Config& config) {
  return [late = std::make_shared<LateCount>(config)](RunLine& line) {
    if (auto* run = std::get_if<RunInfo>(&line.what)) late->start(*run);
    if (auto* window = std::get_if<WindowLine>(&line.what)) late->count(window->region);
    if (auto* end = std::get_if<EndLine>(&line.what))
      for (RegionSummary& row : end->whole.regions) late->count(row, true);
  };
}

/// All of it where that takes less than a second: then the life of the job is known too.
RunFile::From where_from(const std::vector<std::string>& directories) {
  constexpr std::uint64_t kSoonRead = 64 << 20;
  std::uint64_t bytes = 0;
  for (const std::string& directory : directories)
    if (const auto files = list_run_files(directory))
      for (const std::string& file : *files) {
        std::error_code none;
        const std::uintmax_t size = std::filesystem::file_size(file, none);
        bytes += none ? 0 : size;
      }
  return bytes <= kSoonRead ? RunFile::From::kBeginning : RunFile::From::kTail;
}

int top(const TopOptions& o) {
  if (const std::string problem = filter_problem(o.filter); !problem.empty())
    return say_error("top", problem, kUsageError);
  auto directories = find_run_dirs(o.directories);
  if (!directories) return say_error("top", directories.error().message);
  const RunFile::From from = where_from(*directories);
  LiveJob job(std::move(*directories), from);
  Result<Config> config = o.config.empty() ? Config{} : trace_config({.config = o.config});
  if (!config) return say_error("top", config.error().message);
  const Result<std::optional<double>> price = gpu_hour(o.gpu_hour);
  if (!price) return say_error("top", price.error().message, kUsageError);
  job.set_price(*price);
  if (config->model) job.change_lines_by([&config] { return counted_late(*config); });
  if (const auto done = job.refresh(time_of(CLOCK_MONOTONIC), time_of(CLOCK_REALTIME)); !done)
    return say_error("top", done.error().message);
  TopView view;
  view.sort = o.sort;
  view.filter = o.filter;
  LocalGpus gpus;
  TopSnapshot snapshot = take_snapshot(job, gpus.look());
  if (o.once || o.json || ::isatty(STDOUT_FILENO) == 0 || ::isatty(STDIN_FILENO) == 0) {
    const std::string text =
        o.json ? snapshot_json(snapshot, view.sort, view.filter) + "\n" : render_plain(snapshot, view, plain_width());
    say("{}", Lines{text});
    return 0;
  }

  const auto theme = std::find(kThemeNames.begin(), kThemeNames.end(), o.theme) - kThemeNames.begin();
  if (const auto opened = Terminal::open(static_cast<Theme>(theme), !o.no_mouse); !opened)
    return say_error("top", opened.error().message);
  Result<void> outcome;
  const auto interval = static_cast<DurationNs>(o.refresh_s * static_cast<double>(kNsPerSecond));
  TimeNs next = time_of(CLOCK_MONOTONIC) + interval;
  bool stale_screen = true;
  while (true) {
    const auto [width, height] = Terminal::size();
    // Blocks differ by their colours alone.
    view.glyphs = o.ascii || !Terminal::has_unicode() ? Glyphs::kAscii
                  : Terminal::theme() == Theme::kNone ? Glyphs::kLetters
                                                      : Glyphs::kBlocks;
    if (stale_screen) Terminal::draw(render(snapshot, view, width, height));
    stale_screen = false;
    const DurationNs left = next - time_of(CLOCK_MONOTONIC);
    const auto press = Terminal::wait(static_cast<int>(std::clamp<DurationNs>(left / 1'000'000 + 1, 0, 60'000)));
    if (press.key != Terminal::Key::kNone) {
      if (!handle(press, view, snapshot, static_cast<std::size_t>(std::max(1, height - 10)))) break;
      stale_screen = true;
    }
    const TimeNs now = time_of(CLOCK_MONOTONIC);
    if (now < next) continue;
    next = now + interval;
    const auto changed = job.refresh(now, time_of(CLOCK_REALTIME));
    if (!changed) {
      // The directory went away: nothing more will come, and what was shown is no longer true.
      outcome = changed.error();
      break;
    }
    GpusNow now_here = gpus.look();
    if (*changed || !now_here.empty()) {
      snapshot = take_snapshot(job, std::move(now_here));
      stale_screen = true;
    }
  }
  Terminal::close();
  return outcome ? 0 : say_error("top", outcome.error().message);
}

}  // namespace

void add_top(CommandLine& line) {
  auto options = std::make_shared<TopOptions>();
  Command sub = line.command("top", "Every rank of a job in the terminal, live");
  sub.option("dir", options->directories,
             "run directories, or files of one; default: MFU_RUN_DIR, else the newest in ./mfu-runs");
  sub.option("-c,--config", options->config, "the model of a run that had none: config.json, folder or model id");
  sub.flag("--once", options->once, "print the table once as plain text (as it does where there is no terminal)");
  sub.flag("--json", options->json, "print everything once as JSON");
  sub.option("-s,--sort", options->sort, "rank, mfu, mbu, step, busy, comm, clock, dropped, cost or late",
             {.one_of = {kSortKeys.begin(), kSortKeys.end()}});
  sub.option("-f,--filter", options->filter, "words that a row must match: node03 'mfu<35' stale (quote < and >)");
  sub.option("--theme", options->theme, "colours for a dark or a light background, or none (as NO_COLOR); t changes it",
             {.one_of = {kThemeNames.begin(), kThemeNames.end()}});
  sub.flag("--ascii", options->ascii, "letters instead of blocks and braille");
  sub.flag("--no-mouse", options->no_mouse, "leave the mouse to the terminal");
  add_price_option(sub, options->gpu_hour);
  sub.option("--refresh", options->refresh_s, "seconds between looks; default: 1", {.between = {0.1, 3600.0}});
  sub.footer({"mfu top", "mfu top runs/today --sort mfu", "mfu top --filter 'mfu<35' runs/today",
              "mfu top --once runs/today", "mfu top --json runs/today"},
             "0; 1 when there is no run directory to read");
  sub.action([options] { return top(*options); });
}

}  // namespace mfu

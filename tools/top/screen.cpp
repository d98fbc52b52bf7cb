#include "tools/top/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "tools/top/detail.h"

namespace mfu {
namespace {

constexpr std::size_t kCommClass = static_cast<std::size_t>(TimeClass::kComm);

std::string gpu_of(const TopRow& row) { return row.device ? std::to_string(*row.device) : "-"; }

/// `!`: the others wait for it. `*`: it differs from the others.
std::string mark_of(const TopRow& row) { return row.lost_share > 0 ? "!" : row.odd ? "*" : " "; }

std::string host_of(const Rank& rank) { return rank.run ? rank.run->host : rank.path.substr(rank.path.rfind('/') + 1); }

/// Takes off what is beyond `width` columns.
void clip(ScreenLine& line, std::size_t width) {
  std::size_t used = 0;
  for (Span& span : line) {
    const std::size_t room = width - used;
    if (columns(span.text) > room) span.text = fit(span.text, room);
    used += columns(span.text);
  }
}

// --- the table

/// A column of the table. Width 0: not shown.
struct Column {
  const char* head;
  const char* sort;  ///< the key that a click sorts by; empty: none
  std::size_t width;
  bool to_the_right;
};

enum : std::size_t {
  kRank,
  kHost,
  kGpu,
  kRegion,
  kStep,
  kMfu,
  kMbu,
  kBusy,
  kComm,
  kClock,
  kMem,
  kPower,
  kDrop,
  kCost,
  kHistoryColumn,
  kBarColumn,
  kColumns
};
using Columns = std::array<Column, kColumns>;

Columns columns_for(const TopSnapshot& s, std::size_t width) {
  Columns c{{{"RANK", "rank", 6, true},
             {"HOST", "", 0, false},
             {"GPU", "", 3, true},
             {"REGION", "", 10, false},
             {"STEP", "step", 7, true},
             {"MFU%", "mfu", 7, true},
             {"MBU%", "mbu", 7, true},
             {"BUSY%", "busy", 5, true},
             {"COMM%", "comm", 5, true},
             {"CLK%", "clock", 4, true},
             {"MEM", "", 0, true},
             {"POWER", "", 0, true},
             {"DROP", "dropped", 0, true},
             {"COST%", "cost", 0, true},
             {"HISTORY", "", 0, false},
             {"WATERFALL", "", 0, false}}};
  const auto used = [&c] {
    std::size_t sum = 0;
    for (const Column& column : c) sum += column.width != 0 ? column.width + 1 : 0;
    return sum;
  };
  if (width >= 90) c[kHost].width = 10;
  if (width >= 100) {
    c[kDrop].width = 5;
    c[kCost].width = 5;
    c[kHost].width = 12;
  }
  const bool local = std::any_of(s.rows.begin(), s.rows.end(), [](const TopRow& row) { return row.gpu != nullptr; });
  if (local && width >= 100) {
    c[kMem].width = 7;
    c[kPower].width = 5;
  }
  if (width >= 130 && s.has_history) c[kHistoryColumn].width = 10;
  if (width >= 160) {
    c[kHost].width = 20;
    c[kRegion].width = 16;
    if (s.has_history) c[kHistoryColumn].width = 20;
  }
  constexpr std::size_t kLeastBar = 7, kMostBar = 100;
  if (const std::size_t without = used(); width >= without + kLeastBar)
    c[kBarColumn].width = std::min(width - without, kMostBar);
  return c;
}

ScreenLine header_line(const Columns& columns_, TopView* view) {
  std::string text;
  if (view != nullptr) view->header_keys.clear();
  for (const Column& c : columns_) {
    if (c.width == 0) continue;
    text += (text.empty() ? "" : " ") + (c.to_the_right ? right(c.head, c.width) : left(c.head, c.width));
    if (view != nullptr) view->header_keys.emplace_back(static_cast<int>(columns(text)), c.sort);
  }
  return {{text, Style::kHeader}};
}

/// Windows of the row's region, oldest first: MFU, MBU where memory is the limit, or the share of time that it is busy.
std::vector<std::optional<double>> history_of(const TopRow& row) {
  std::vector<std::optional<double>> values;
  if (row.history == nullptr) return values;
  for (const HistoryPoint& point : *row.history) {
    const float value = value_of(point, row.history_of);
    values.push_back(value >= 0 ? std::optional<double>(value) : std::nullopt);
  }
  return values;
}

std::string memory_text(const GpuNow& gpu) {
  return gpu.memory_used ? fmt::format("{:.1f} G", static_cast<double>(*gpu.memory_used) / 1e9) : "-";
}

ScreenLine row_line(const TopRow& row, const Columns& c, bool selected, Glyphs glyphs, double history_top) {
  const Rank& rank = *row.rank;
  const bool live = rank.state == RankState::kLive || rank.state == RankState::kEnded;
  const Style style = selected                                  ? Style::kSelected
                      : rank.state == RankState::kStale         ? Style::kDim
                      : row.lost_share > 0 || (live && row.odd) ? Style::kWarning
                      : rank.state == RankState::kLive          ? Style::kPlain
                                                                : Style::kDim;
  const RegionSummary* r = row.region;
  const WindowSummary* shown = rank.shown();
  const GpuNow* gpu = row.gpu;
  std::array<std::string, kColumns> cells;
  cells[kRank] = mark_of(row) + right(rank.run ? std::to_string(rank.run->rank) : "?", c[kRank].width - 1);
  cells[kHost] = host_of(rank);
  cells[kGpu] = gpu_of(row);
  cells[kRegion] = live && r != nullptr ? r->region : state_text(rank);
  cells[kStep] = duration_text(row.step_s());
  cells[kMfu] = r != nullptr ? percent_text(r->mfu, r->mfu_lower, "") : "-";
  cells[kMbu] = r != nullptr ? percent_text(r->mbu, r->mbu_lower, "") : "-";
  cells[kBusy] = percent_text(row.busy(), "");
  cells[kComm] = percent_text(row.comm(), "");
  cells[kClock] = row.clock() ? fmt::format("{:.0f}", 100 * *row.clock()) : "-";
  cells[kMem] = gpu != nullptr ? memory_text(*gpu) : "-";
  cells[kPower] = gpu != nullptr && gpu->power_w ? fmt::format("{:.0f} W", *gpu->power_w) : "-";
  cells[kDrop] = shown != nullptr ? std::to_string(rank.dropped_records()) : "-";
  cells[kCost] = shown != nullptr ? fmt::format("{:.2f}", 100 * shown->self.overhead) : "-";
  if (c[kHistoryColumn].width != 0)
    cells[kHistoryColumn] = history_lines(history_of(row), c[kHistoryColumn].width, 1, history_top, glyphs).front();
  std::string text;
  for (std::size_t i = 0; i < kBarColumn; ++i)
    if (c[i].width != 0)
      text +=
          (text.empty() ? "" : " ") + (c[i].to_the_right ? right(cells[i], c[i].width) : left(cells[i], c[i].width));
  ScreenLine line{{text, style}};
  if (const std::size_t width = c[kBarColumn].width; width != 0) {
    line.push_back({" ", Style::kPlain});
    const Glyphs drawn = live ? glyphs : Glyphs::kAscii;
    ScreenLine parts = r != nullptr ? bar_of(*r, width, drawn) : bar(std::nullopt, width, drawn);
    if (!live)
      for (Span& span : parts) span.style = Style::kDim;
    line.insert(line.end(), parts.begin(), parts.end());
  }
  return line;
}

// --- hosts

ScreenLine hosts_header(std::size_t bar_width) {
  return {{" " + left("HOST", 20) + right("RANKS", 7) + right("GPUS", 6) + right("MFU%", 8) + right("LOWEST", 8) +
               right("HIGHEST", 9) + right("BUSY%", 7) + "  " + left("MARKED", 12) +
               (bar_width != 0 ? left("WATERFALL", bar_width) : ""),
           Style::kHeader}};
}

ScreenLine host_line(const TopHost& host, std::size_t bar_width, bool selected, Glyphs glyphs) {
  const std::string marked = host.late != 0    ? fmt::format("! {} late", host.late)
                             : host.odd != 0   ? fmt::format("* {} differ", host.odd)
                             : host.quiet != 0 ? fmt::format("{} stale", host.quiet)
                                               : "";
  ScreenLine line{{" " + left(host.name, 20) + right(std::to_string(host.ranks), 7) +
                       right(std::to_string(host.totals.devices), 6) +
                       right(percent_text(host.totals.mfu, host.totals.mfu_lower, ""), 8) +
                       right(percent_text(host.lowest, ""), 8) + right(percent_text(host.highest, ""), 9) +
                       right(percent_text(host.totals.busy, ""), 7) + "  " + left(marked, 12),
                   selected                                 ? Style::kSelected
                   : host.late + host.odd + host.quiet != 0 ? Style::kWarning
                                                            : Style::kPlain}};
  if (bar_width != 0) {
    ScreenLine parts = bar(totals_shares(host.totals), bar_width, glyphs);
    line.insert(line.end(), parts.begin(), parts.end());
  }
  return line;
}

// --- the lines above the table

void add(std::vector<ScreenLine>& lines, const std::vector<std::string>& texts, Style style, std::size_t width) {
  for (const std::string& text : texts) lines.push_back({{fit(text, width), style}});
}

/// The job's MFU (or busy time) over its windows: `height` lines with the scale at their left.
std::vector<ScreenLine> job_history(const TopSnapshot& s, std::size_t width, std::size_t height, Glyphs glyphs) {
  const std::string what = s.job_history_of == HistoryOf::kMfu ? "MFU" : "busy";
  const double top = s.history_top;
  const std::size_t gutter = 12;
  std::vector<ScreenLine> lines;
  if (width < gutter + 10) return lines;
  const auto drawn = history_lines(s.job_history, width - gutter, height, top, glyphs);
  const std::size_t windows = std::min(
      s.job_history.size(), (width - gutter) * values_per_column(s.job_history.size(), width - gutter, glyphs));
  const std::string span = "last " + duration_text(static_cast<double>(windows) * seconds(s.history_interval_ns));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::string label = height == 1             ? fmt::format("{} 0-{:.0f} %", what, 100 * top)
                              : i == 0                ? fmt::format("{} {:.0f} %", what, 100 * top)
                              : i + 1 == drawn.size() ? "0 %"
                              : i == height / 2       ? span
                                                      : "";
    lines.push_back({{left(label, gutter), Style::kDim},
                     {drawn[i], s.job_history_of == HistoryOf::kMfu ? Style::kMfu : Style::kMatmul}});
  }
  return lines;
}

/// Which job, and how many ranks are in which state.
void add_title(std::vector<ScreenLine>& lines, const TopSnapshot& s, std::size_t width) {
  const JobTotals& t = s.totals;
  std::string ranks = fmt::format("{} live", t.live);
  for (const auto& [count, state] : {std::pair(t.starting, "starting"), std::pair(t.stale, "stale"),
                                     std::pair(t.ended, "ended"), std::pair(t.unreadable, "unreadable")})
    if (count != 0) ranks += fmt::format(", {} {}", count, state);
  if (t.world_size != 0)
    ranks += fmt::format(" of {} rank{} on {} host{}", t.world_size, t.world_size == 1 ? "" : "s", t.hosts,
                         t.hosts == 1 ? "" : "s");
  std::vector<std::string> words;
  words.reserve(4);
  words.push_back("mfu top " + s.title);
  words.push_back(std::move(ranks));
  if (t.devices != 0) words.push_back(fmt::format("{} x {}", t.devices, s.gpu_name));
  if (s.silent_s > 60 && t.live == 0) words.push_back(fmt::format("last line {} ago", duration_text(s.silent_s)));
  bool first = true;
  for (const std::string& line : flow(words, width)) {
    lines.push_back({{fit(line, width), first ? Style::kBold : Style::kPlain}});
    first = false;
  }
}

/// The figures of the whole job, as words.
std::vector<std::string> job_figures(const TopSnapshot& s) {
  const JobTotals& t = s.totals;
  const auto word = [](const char* what, const std::optional<double>& ratio,
                       const std::optional<double>& lower = std::nullopt) {
    return fmt::format("{} {}", what, percent_text(ratio, lower));
  };
  std::vector<std::string> figures{t.whole_run ? "job, whole run:" : "job:", word("MFU", t.mfu, t.mfu_lower),
                                   word("HFU", t.hfu)};
  if (t.hfu_of_seen) figures.back() += fmt::format(" (of {:.0f} % seen)", std::floor(100 * *t.seen + 1e-9));
  if (t.mbu || t.mbu_lower) figures.push_back(word("MBU", t.mbu, t.mbu_lower));
  if (!t.suspect.empty()) figures.push_back("suspect: " + t.suspect.substr(0, t.suspect.find(':')));
  figures.push_back(word("busy", t.busy));
  if (t.classes_known) figures.push_back(word("comm", t.time_share[kCommClass]));
  if (t.clock_ratio) figures.push_back(fmt::format("clock {:.0f} %", 100 * *t.clock_ratio));
  if (t.flop_per_s > 0) figures.push_back(scaled_text(t.flop_per_s, "FLOP/s"));
  if (t.tokens_per_s > 0) figures.push_back(scaled_text(t.tokens_per_s, "tok/s"));
  if (s.power_w > 0) figures.push_back(fmt::format("{:.0f} W here", s.power_w));
  if (s.cost && s.cost->per_million_tokens)
    figures.push_back(fmt::format("{:.3g} per million tokens", *s.cost->per_million_tokens));
  if (s.cost) figures.push_back(fmt::format("{:.3g} an hour, idle {:.3g}", s.cost->per_hour, s.cost->idle_per_hour));
  figures.push_back(fmt::format("dropped {}", t.dropped_records));
  if (t.overhead) figures.push_back(fmt::format("cost {:.2f} %", 100 * *t.overhead));
  if (t.with_mfu < t.counted) figures.push_back(fmt::format("MFU of {} of {} ranks", t.with_mfu, t.counted));
  return figures;
}

/// The waterfall of the job, and what its parts are.
void add_bar(std::vector<ScreenLine>& lines, const JobTotals& t, const BarShares& parts, std::size_t width,
             Glyphs glyphs) {
  ScreenLine full{{"[", Style::kPlain}};
  for (Span& span : bar(parts, width - 2, glyphs)) full.push_back(std::move(span));
  full.push_back({"]", Style::kPlain});
  lines.push_back(std::move(full));
  ScreenLine legend;
  std::size_t used = 0;
  for (std::size_t i = 0; i < kBarParts.size(); ++i) {
    if (i == 0 && !t.lost) continue;
    const std::string text = fmt::format(" {} {:.1f}", kBarParts[i].word, 100 * parts[i]);
    const std::size_t gap = legend.empty() ? 0 : 2;
    if (used + gap + 1 + text.size() > width) break;
    if (gap != 0) legend.push_back({"  ", Style::kPlain});
    legend.push_back({glyphs == Glyphs::kBlocks ? "█" : std::string(1, kBarParts[i].letter), kBarParts[i].style});
    legend.push_back({text, Style::kPlain});
    used += gap + 1 + text.size();
  }
  lines.push_back(std::move(legend));
}

void add_problems(std::vector<ScreenLine>& lines, const TopSnapshot& s, std::size_t width, bool all_problems) {
  constexpr std::size_t kShownStragglers = 3;
  if (s.hang) add(lines, wrapped(s.hang->text(), width), Style::kWarning, all_problems ? std::string::npos : width);
  for (std::size_t i = 0; i < s.stragglers.size() && (all_problems || i < kShownStragglers); ++i) {
    std::vector<std::string> said;
    if (all_problems)
      said.push_back(straggler_text(s.stragglers[i]));
    else
      said = wrapped(straggler_text(s.stragglers[i]), width);
    add(lines, said, Style::kWarning, all_problems ? std::string::npos : width);
  }
  if (s.stragglers.size() > kShownStragglers && !all_problems)
    lines.push_back({{fit(fmt::format("and {} more: sort by late", s.stragglers.size() - kShownStragglers), width),
                      Style::kWarning}});
  if (all_problems) {
    for (const std::string& problem : s.problems) lines.push_back({{fit(problem, problem.size()), Style::kWarning}});
  } else if (!s.problems.empty()) {
    const std::string more =
        s.problems.size() > 1 ? fmt::format(" (and {} more: --once says all)", s.problems.size() - 1) : "";
    const std::size_t room = width > more.size() ? width - more.size() : 0;
    lines.push_back({{fit(s.problems.front(), room) + fit(more, width), Style::kWarning}});
  }
}

std::vector<ScreenLine> head(const TopSnapshot& s, std::size_t width, std::size_t history_height, bool all_problems,
                             Glyphs glyphs) {
  const JobTotals& t = s.totals;
  std::vector<ScreenLine> lines;
  add_title(lines, s, width);
  if (t.counted == 0) {
    const char* why =
        s.rows.empty() ? "no run here yet: *.jsonl files come when a program with the library in it uses CUDA"
        : t.stale != 0 ? "no rank is live: hung, killed, or its disk is full; figures are of their last windows"
                       : "no window yet: one comes every MFU_INTERVAL seconds";
    lines.push_back({{fit(why, width), Style::kDim}});
  } else {
    for (const std::string& line : flow(job_figures(s), width)) lines.push_back({{fit(line, width), Style::kBold}});
    if (const auto parts = totals_shares(t)) add_bar(lines, t, *parts, width, glyphs);
    if (!s.life.empty()) add(lines, wrapped(s.life, width), Style::kDim, width);
    constexpr std::size_t kWorthDrawing = 2;
    if (history_height != 0 && s.job_history.size() >= kWorthDrawing)
      for (ScreenLine& line : job_history(s, width, history_height, glyphs)) lines.push_back(std::move(line));
  }
  add_problems(lines, s, width, all_problems);
  return lines;
}

std::size_t history_height(std::size_t height) { return height >= 45 ? 6 : height >= 36 ? 4 : height >= 30 ? 3 : 1; }

/// Keeps the selected one of `count` rows in sight, `room` of which fit.
void scroll_to_selected(TopView& view, std::size_t count, std::size_t room) {
  view.selected = count == 0 ? 0 : std::min(view.selected, count - 1);
  if (view.selected < view.scroll) view.scroll = view.selected;
  if (room != 0 && view.selected >= view.scroll + room) view.scroll = view.selected - room + 1;
  if (view.scroll + room > count) view.scroll = count > room ? count - room : 0;
}

/// Keeps the same rank selected where the rows' order has changed. In the table the first place stays the first place:
/// who looks at the worst ranks wants to go on looking at the worst ones.
void follow_selected(TopView& view, const std::vector<TopRow>& rows) {
  const bool moved = !view.followed || view.followed->at != view.selected;
  if (!moved && (view.selected != 0 || view.mode == TopView::Mode::kDetail)) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const TopRow& row) {
      return row.rank->path == view.followed->path && row.device == view.followed->device;
    });
    if (same != rows.end()) view.selected = static_cast<std::size_t>(same - rows.begin());
  }
  view.selected = rows.empty() ? 0 : std::min(view.selected, rows.size() - 1);
  view.followed.reset();
  if (!rows.empty()) view.followed = {rows[view.selected].rank->path, rows[view.selected].device, view.selected};
}

/// Moves the detail's lines up, under its first one, which says whose they are. \return for the status line.
std::string scroll_detail(TopView& view, std::vector<ScreenLine>& lines, std::size_t room) {
  const std::size_t most = lines.size() > room ? lines.size() - room : 0;
  view.detail_scroll = std::min(view.detail_scroll, most);
  if (most == 0) return "";
  lines.erase(lines.begin() + 1, lines.begin() + 1 + static_cast<std::ptrdiff_t>(view.detail_scroll));
  return fmt::format("page: {}  ", view.detail_scroll == most
                                       ? fmt::format("up ({} more)", most)
                                       : fmt::format("down ({} more)", most - view.detail_scroll));
}

}  // namespace

std::vector<ScreenLine> render(const TopSnapshot& snapshot, TopView& view, int width_in, int height_in) {
  const auto width = static_cast<std::size_t>(std::max(20, width_in));
  const auto height = static_cast<std::size_t>(std::max(3, height_in));
  const auto rows = select_rows(snapshot.rows, view.sort, view.filter, view.reversed);
  std::vector<ScreenLine> lines;
  std::string status;
  view.header_line = -1;
  if (view.mode == TopView::Mode::kTable || view.mode == TopView::Mode::kDetail) follow_selected(view, rows);
  if (view.mode == TopView::Mode::kHelp) {
    lines = help_lines(width);
    status = "any key: back";
  } else if (view.mode == TopView::Mode::kDetail && !rows.empty()) {
    lines = detail_lines(rows[view.selected], history_of(rows[view.selected]), snapshot.history_top, width,
                         height >= 36 ? 4 : 2, view.glyphs);
    status = "enter: back  up/down: other ranks  " + scroll_detail(view, lines, height - 1) + "q: quit";
  } else {
    const bool hosts = view.mode == TopView::Mode::kHosts;
    lines = head(snapshot, width, history_height(height), false, view.glyphs);
    if (lines.size() + 4 > height) lines.resize(height > 4 ? height - 4 : 0);
    const Columns c = columns_for(snapshot, width);
    const std::size_t bar_width = width > 90 ? width - 80 : 0;
    view.header_line = static_cast<int>(lines.size());
    lines.push_back(hosts ? hosts_header(bar_width) : header_line(c, &view));
    if (hosts) view.header_keys.clear();
    const std::size_t room = height - 1 - std::min(height - 1, lines.size());
    const std::size_t count = hosts ? snapshot.hosts.size() : rows.size();
    scroll_to_selected(view, count, room);
    for (std::size_t i = view.scroll; i < count && i < view.scroll + room; ++i)
      lines.push_back(hosts ? host_line(snapshot.hosts[i], bar_width, i == view.selected, view.glyphs)
                            : row_line(rows[i], c, i == view.selected, view.glyphs, snapshot.history_top));
    if (!hosts && rows.empty() && !snapshot.rows.empty())
      lines.push_back({{fit("no row matches the filter; Esc takes it away", width), Style::kWarning}});
    if (view.editing_filter)
      status = "filter: " + view.filter + "_  " + filter_problem(view.filter);
    else if (const std::string problem = filter_problem(view.filter); !problem.empty())
      status = problem + "  (Esc takes it away)";
    else if (hosts)
      status = fmt::format("{}/{} hosts  enter: its ranks  o: all ranks  q quit  h help",
                           count == 0 ? 0 : view.selected + 1, count);
    else
      status = fmt::format("{}/{}  sort: {}{}{}  q quit  s sort  / filter  o hosts  enter detail  h help",
                           rows.empty() ? 0 : view.selected + 1, rows.size(), view.sort,
                           view.reversed ? " reversed" : "", view.filter.empty() ? "" : "  filter: " + view.filter);
  }
  if (lines.size() > height - 1) lines.resize(height - 1);
  for (ScreenLine& line : lines) clip(line, width);
  while (lines.size() < height - 1) lines.emplace_back();
  lines.push_back({{left(status, width), Style::kHeader}});
  return lines;
}

std::string render_plain(const TopSnapshot& snapshot, const TopView& view, int width_in) {
  const auto width = static_cast<std::size_t>(std::max(40, width_in));
  std::vector<ScreenLine> lines = head(snapshot, width, 0, true, Glyphs::kAscii);
  const auto rows = select_rows(snapshot.rows, view.sort, view.filter, view.reversed);
  if (!rows.empty()) {
    const Columns c = columns_for(snapshot, width);
    lines.push_back(header_line(c, nullptr));
    for (const TopRow& row : rows) lines.push_back(row_line(row, c, false, Glyphs::kAscii, snapshot.history_top));
  } else if (!snapshot.rows.empty()) {
    lines.push_back({{"no row matches the filter", Style::kPlain}});
  }
  std::string text;
  for (const ScreenLine& line : lines) {
    std::string one;
    for (const Span& span : line) one += span.text;
    one.erase(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  }
  return text;
}

std::optional<std::size_t> row_at(const TopView& view, int line) {
  if (view.header_line < 0 || line <= view.header_line) return std::nullopt;
  return view.scroll + static_cast<std::size_t>(line - view.header_line - 1);
}

std::string heading_at(const TopView& view, int line, int column) {
  if (view.header_line < 0 || line != view.header_line) return "";
  for (const auto& [end, key] : view.header_keys)
    if (column <= end) return key;
  return "";
}

}  // namespace mfu

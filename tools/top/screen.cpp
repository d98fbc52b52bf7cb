#include "tools/top/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/number_text.h"

namespace mfu {

namespace {

constexpr std::size_t kCommClass = static_cast<std::size_t>(TimeClass::kComm);

struct Part {
  char glyph;
  std::string_view word;
  Style style;
};
// The waterfall from left to right: what was asked for, then what it was lost to.
constexpr std::array<Part, 6> kParts{{{'#', "MFU", Style::kMfu},
                                      {'=', "matmul", Style::kMatmul},
                                      {'o', "other", Style::kOther},
                                      {'c', "comm", Style::kComm},
                                      {'y', "copy", Style::kMemcpy},
                                      {'.', "idle", Style::kIdle}}};

/// A figure above 100 % is no result: it stands in the suspect remark alone.
std::optional<double> result(const std::optional<double>& ratio) { return ratio && *ratio > 1 ? std::nullopt : ratio; }
std::string percent_of(const std::optional<double>& ratio) { return ratio ? fmt::format("{:.1f}", 100 * *ratio) : "-"; }

/// The six shares of a bar; they sum to at most 1. Where FLOP or peak are unknown, matmul has all of its time.
std::optional<std::array<double, 6>> shares(const std::optional<double>& mfu,
                                            const std::optional<std::array<double, kTimeClasses>>& lost) {
  if (!mfu || !lost) return std::nullopt;
  std::array<double, 6> all{*mfu};
  for (std::size_t c = 0; c < kTimeClasses; ++c) all[c + 1] = (*lost)[c];
  return all;
}

std::optional<std::array<double, 6>> shares(const RegionSummary& r) {
  if (auto all = shares(r.mfu, r.lost)) return all;
  if (!r.classes_known || r.elapsed_ns <= 0) return std::nullopt;
  std::array<double, 6> all{};
  for (std::size_t c = 0; c < kTimeClasses; ++c)
    all[c + 1] = static_cast<double>(r.time_ns[c]) / static_cast<double>(r.elapsed_ns);
  return all;
}

/// `width` columns; each edge is rounded by itself, so that parts never add up to more than there is.
ScreenLine bar(const std::optional<std::array<double, 6>>& parts, std::size_t width) {
  ScreenLine line;
  if (!parts) return {{std::string(width, ' '), Style::kPlain}};
  double reached = 0;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    reached += std::max(0.0, (*parts)[i]);
    const auto edge = std::min(width, static_cast<std::size_t>(std::lround(reached * static_cast<double>(width))));
    if (edge > filled) line.push_back({std::string(edge - filled, kParts[i].glyph), kParts[i].style});
    filled = std::max(filled, edge);
  }
  if (filled < width) line.push_back({std::string(width - filled, ' '), Style::kPlain});
  return line;
}

std::string right(std::string_view text, std::size_t width) {
  const std::string cut = fit(text, width);
  return std::string(width - std::min(width, columns(cut)), ' ') + cut;
}

std::string left(std::string_view text, std::size_t width) {
  const std::string cut = fit(text, width);
  return cut + std::string(width - std::min(width, columns(cut)), ' ');
}

/// Words two spaces apart, in as many lines as it takes.
std::vector<std::string> flow(const std::vector<std::string>& words, std::size_t width) {
  std::vector<std::string> lines{""};
  for (const std::string& word : words) {
    if (word.empty()) continue;
    if (!lines.back().empty() && columns(lines.back()) + 2 + columns(word) > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += "  ";
    lines.back() += word;
  }
  return lines;
}

std::string gpu_of(const TopRow& row) { return row.device ? std::to_string(*row.device) : "-"; }

std::string who(const Rank& rank, std::optional<std::uint32_t> device) {
  std::string text = fmt::format("rank {} ({}", rank.run->rank, rank.run->host);
  if (device) text += fmt::format(" gpu {}", *device);
  return text + ")";
}

std::string straggler_text(const Straggler& s) {
  std::string text = fmt::format("straggler: {} ", who(*s.rank, s.device));
  text += s.cost_mfu ? fmt::format("costs {:.1f} points of MFU", 100 * *s.cost_mfu)
                     : fmt::format("keeps the others waiting {:.1f} % of the time", 100 * s.lost_share);
  text += fmt::format(": last in {} by {}", s.region, duration_text(s.lead_s));
  return text;
}

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

struct Widths {
  std::size_t rank = 5, host = 0, gpu = 3, region = 10, bar = 0;
};

constexpr std::size_t kFigures = 8 + 6 * 4 + 5 + 6 + 6;  // step, MFU MBU busy comm, clock, dropped, cost

Widths widths_for(std::size_t width) {
  Widths w;
  if (width >= 100) w.host = 12;
  if (width >= 140) {
    w.host = 20;
    w.region = 20;
  }
  const std::size_t used = 1 + w.rank + 1 + (w.host != 0 ? w.host + 1 : 0) + w.gpu + 1 + w.region + kFigures + 1;
  w.bar = width > used ? std::min<std::size_t>(width - used, 100) : 0;
  return w;
}

ScreenLine header_line(const Widths& w) {
  std::string text = " " + right("RANK", w.rank) + " ";
  if (w.host != 0) text += left("HOST", w.host) + " ";
  text += right("GPU", w.gpu) + " " + left("REGION", w.region);
  for (const char* word : {"MFU%", "MBU%", "BUSY%", "COMM%"}) {
    if (std::string_view(word) == "MFU%") text += right("STEP", 8);
    text += right(word, 6);
  }
  text += right("CLK%", 5) + right("DROP", 6) + right("COST%", 6);
  if (w.bar != 0) text += " " + left("WATERFALL", w.bar);
  return {{text, Style::kHeader}};
}

ScreenLine row_line(const TopRow& row, const Widths& w, bool selected) {
  const Rank& rank = *row.rank;
  const bool live = rank.state == RankState::kLive || rank.state == RankState::kEnded;
  const Style style = selected                          ? Style::kSelected
                      : rank.state == RankState::kStale ? Style::kWarning
                      : row.lost_share > 0              ? Style::kWarning
                      : rank.state == RankState::kLive  ? Style::kPlain
                                                        : Style::kDim;
  std::string text =
      (row.lost_share > 0 ? "!" : " ") + right(rank.run ? std::to_string(rank.run->rank) : "?", w.rank) + " ";
  if (w.host != 0) text += left(rank.run ? rank.run->host : rank.path.substr(rank.path.rfind('/') + 1), w.host) + " ";
  text += right(gpu_of(row), w.gpu) + " ";
  text += left(live && row.region != nullptr ? row.region->region : state_text(rank), w.region);
  const RegionSummary* r = row.region;
  text += right(duration_text(row.step_s()), 8);
  text += right(r != nullptr ? percent_of(result(r->mfu)) : "-", 6) + right(r != nullptr ? percent_of(r->mbu) : "-", 6);
  text += right(percent_of(row.busy()), 6) + right(percent_of(row.comm()), 6);
  text += right(row.clock() ? fmt::format("{:.0f}", 100 * *row.clock()) : "-", 5);
  const WindowSummary* shown = rank.shown();
  text += right(shown != nullptr ? std::to_string(rank.dropped_records()) : "-", 6);
  text += right(shown != nullptr ? fmt::format("{:.2f}", 100 * shown->self.overhead) : "-", 6);
  ScreenLine line{{text, style}};
  if (w.bar != 0) {
    line.push_back({" ", Style::kPlain});
    ScreenLine parts = r != nullptr ? bar(shares(*r), w.bar) : bar(std::nullopt, w.bar);
    if (!live)
      for (Span& span : parts) span.style = Style::kDim;
    line.insert(line.end(), parts.begin(), parts.end());
  }
  return line;
}

std::vector<ScreenLine> head(const TopSnapshot& s, std::size_t width, bool all_problems) {
  const JobTotals& t = s.totals;
  std::vector<ScreenLine> lines;
  std::string ranks = fmt::format("{} live", t.live);
  if (t.starting != 0) ranks += fmt::format(", {} starting", t.starting);
  if (t.stale != 0) ranks += fmt::format(", {} stale", t.stale);
  if (t.ended != 0) ranks += fmt::format(", {} ended", t.ended);
  if (t.unreadable != 0) ranks += fmt::format(", {} unreadable", t.unreadable);
  if (t.world_size != 0)
    ranks += fmt::format(" of {} rank{} on {} host{}", t.world_size, t.world_size == 1 ? "" : "s", t.hosts,
                         t.hosts == 1 ? "" : "s");
  std::vector<std::string> words{"mfu top " + s.title, ranks};
  if (t.devices != 0) words.push_back(fmt::format("{} x {}", t.devices, s.gpu_name));
  if (s.silent_s > 60 && t.live == 0) words.push_back(fmt::format("last line {} ago", duration_text(s.silent_s)));
  bool first = true;
  for (std::string& line : flow(words, width)) {
    lines.push_back({{fit(line, width), first ? Style::kBold : Style::kPlain}});
    first = false;
  }
  if (t.counted == 0) {
    const char* why =
        s.rows.empty() ? "no run here yet: *.jsonl files come when a program with the library in it uses CUDA"
        : t.stale != 0 ? "no rank is live: hung, killed, or its disk is full; figures are of their last windows"
                       : "no window yet: one comes every interval (10 s unless MFU_INTERVAL says otherwise)";
    lines.push_back({{fit(why, width), Style::kDim}});
  } else {
    const auto word = [](const char* what, const std::optional<double>& ratio) {
      return ratio ? fmt::format("{} {:.1f} %", what, 100 * *ratio) : fmt::format("{} -", what);
    };
    std::vector<std::string> figures{t.whole_run ? "job, whole run:" : "job:", word("MFU", result(t.mfu)),
                                     word("HFU", result(t.hfu))};
    if (t.mbu) figures.push_back(word("MBU", t.mbu));
    figures.push_back(word("busy", t.busy));
    if (t.classes_known) figures.push_back(word("comm", t.time_share[kCommClass]));
    if (t.clock_ratio) figures.push_back(fmt::format("clock {:.0f} %", 100 * *t.clock_ratio));
    if (t.flop_per_s > 0) figures.push_back(scaled_text(t.flop_per_s, "FLOP/s"));
    if (t.tokens_per_s > 0) figures.push_back(scaled_text(t.tokens_per_s, "tok/s"));
    figures.push_back(fmt::format("dropped {}", t.dropped_records));
    if (t.overhead) figures.push_back(fmt::format("cost {:.2f} %", 100 * *t.overhead));
    if (t.with_mfu < t.counted) figures.push_back(fmt::format("MFU of {} of {} ranks", t.with_mfu, t.counted));
    for (std::string& line : flow(figures, width)) lines.push_back({{fit(line, width), Style::kBold}});

    auto parts = shares(t.mfu, t.lost);
    if (!parts && t.classes_known) {
      parts.emplace();
      for (std::size_t c = 0; c < kTimeClasses; ++c) (*parts)[c + 1] = t.time_share[c];
    }
    if (parts) {
      ScreenLine full{{"[", Style::kPlain}};
      for (Span& span : bar(parts, width - 2)) full.push_back(std::move(span));
      full.push_back({"]", Style::kPlain});
      lines.push_back(std::move(full));
      ScreenLine legend;
      std::size_t used = 0;
      for (std::size_t i = 0; i < kParts.size(); ++i) {
        if (i == 0 && !t.lost) continue;
        const std::string text = fmt::format(" {} {:.1f}", kParts[i].word, 100 * (*parts)[i]);
        const std::size_t gap = legend.empty() ? 0 : 2;
        if (used + gap + 1 + text.size() > width) break;
        if (gap != 0) legend.push_back({"  ", Style::kPlain});
        legend.push_back({std::string(1, kParts[i].glyph), kParts[i].style});
        legend.push_back({text, Style::kPlain});
        used += gap + 1 + text.size();
      }
      lines.push_back(std::move(legend));
    }
  }
  constexpr std::size_t kShownStragglers = 3;
  for (std::size_t i = 0; i < s.stragglers.size() && (all_problems || i < kShownStragglers); ++i)
    lines.push_back({{fit(straggler_text(s.stragglers[i]), width), Style::kWarning}});
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
  return lines;
}

// --- one rank

std::vector<ScreenLine> detail(const TopRow& row, std::size_t width) {
  const Rank& rank = *row.rank;
  std::vector<ScreenLine> lines;
  const auto say = [&](std::string_view text, Style style = Style::kPlain) {
    lines.push_back({{fit(text, width), style}});
  };
  const auto say_flow = [&](const std::vector<std::string>& words) {
    for (const std::string& line : flow(words, width)) say(line);
  };
  if (!rank.run) {
    say(rank.path, Style::kBold);
    for (const std::string& problem : rank.problems) say(problem, Style::kWarning);
    return lines;
  }
  const RunInfo& run = *rank.run;
  say(fmt::format("rank {} of {}  host {}  pid {}  {}", run.rank, run.world_size, run.host, run.pid, state_text(rank)),
      Style::kBold);
  say_flow({rank.path, "library " + run.version, run.level.empty() ? "" : "CUPTI " + run.level,
            run.convention.empty() ? "" : "FLOP counted: " + run.convention});
  for (const DeviceInfo& d : run.devices)
    say_flow({fmt::format("gpu {}: {}", d.device, d.name), d.uuid,
              d.peak_flop_per_s ? fmt::format("peak {} {}{} ({})", scaled_text(d.peak_flop_per_s, "FLOP/s"), d.dtype,
                                              d.sparse ? " sparse" : "", d.peak_source)
                                : "peak unknown: MFU_PEAK_TFLOPS sets it",
              d.peak_bytes_per_s ? scaled_text(d.peak_bytes_per_s, "B/s") : ""});
  const WindowSummary* shown = rank.shown();
  if (shown != nullptr) {
    say("");
    const std::size_t name_width = width >= 120 ? 24 : 12;
    const std::size_t bar_at = 1 + name_width + 4 + 8 + 8 + 8 + 8 + 7 + 7 + 7 + 2;
    say(" " + left("REGION", name_width) + right("GPU", 4) + right("COUNT", 8) + right("P50", 8) + right("P99", 8) +
            right("COLL", 8) + right("MFU%", 7) + right("HFU%", 7) + right("MBU%", 7) +
            (width > bar_at + 8 ? "  WATERFALL" : ""),
        Style::kHeader);
    for (const RegionSummary& r : shown->regions) {
      const bool timed = r.latency.count != 0;
      ScreenLine line{
          {" " + left(r.region, name_width) + right(r.device ? std::to_string(*r.device) : "-", 4) +
               right(r.region == "total" ? "-" : std::to_string(r.instances), 8) +
               right(timed ? duration_text(seconds(r.latency.p50_ns)) : "-", 8) +
               right(timed ? duration_text(seconds(r.latency.p99_ns)) : "-", 8) +
               right(r.comm_kernels != 0 ? duration_text(seconds(r.comm_sum_ns) / static_cast<double>(r.comm_kernels))
                                         : "-",
                     8) +
               right(percent_of(result(r.mfu)), 7) + right(percent_of(result(r.hfu)), 7) + right(percent_of(r.mbu), 7),
           Style::kPlain}};
      if (width > bar_at + 8) {
        line.push_back({"  ", Style::kPlain});
        for (Span& span : bar(shares(r), std::min<std::size_t>(width - bar_at, 80))) line.push_back(std::move(span));
      }
      lines.push_back(std::move(line));
      if (!r.suspect.empty()) say("   suspect: " + r.suspect, Style::kWarning);
    }
    if (row.region != nullptr && !row.region->top_kernels.empty()) {
      say("");
      say(fmt::format(" {:>7} {:>9} {:<9} KERNEL of {}", "TIME%", "COUNT", "CLASS", row.region->region),
          Style::kHeader);
      for (const TopKernel& k : row.region->top_kernels)
        say(fmt::format(" {:>7} {:>9} {:<9} {}",
                        row.region->kernel_sum_ns > 0
                            ? fmt::format("{:.1f}", 100.0 * static_cast<double>(k.sum_ns) /
                                                        static_cast<double>(row.region->kernel_sum_ns))
                            : "-",
                        k.count, name(k.kernel_class), k.name));
    }
    std::vector<std::string> counters;
    for (const auto& [counter, count] : shown->counters) counters.push_back(fmt::format("{}={}", counter, count));
    say("");
    counters.insert(
        counters.begin(),
        fmt::format("library: {:.2f} s of CPU, {}, {:.2f} % of the host's time", shown->self.cpu_s,
                    scaled_text(static_cast<double>(shown->self.rss_bytes), "B"), 100 * shown->self.overhead));
    say_flow(counters);
  }
  for (const RunEvent& event : rank.events) say(event.kind + ": " + event.message, Style::kDim);
  for (const std::string& problem : rank.problems) say(problem, Style::kWarning);
  return lines;
}

std::vector<ScreenLine> help(std::size_t width) {
  std::vector<ScreenLine> lines;
  for (const char* text : {"mfu top: one row per rank and GPU, newest window; keys:", "",
                           "  q          quit                       up/down j/k   select a row",
                           "  enter      the rank in detail, back   page, g, G    move far",
                           "  s, S       sort by the next, previous key: what is worst comes first",
                           "  /          filter: words of host, region, GPU or state; KEY<VALUE, > or =",
                           "             as in  /node03 mfu<35   (ratios in %, step in ms)", "  h, ?       this page",
                           "", "  REGION     where most of the window went; STEP its median instance",
                           "  MFU% MBU%  of that region            BUSY%   kernels run",
                           "  COMM%      exposed communication     CLK%    clock over the peak's clock",
                           "  DROP       records that CUPTI or the library lost, so far",
                           "  COST%      the library's share of the host's time",
                           "  !          others wait for this rank in collectives: it comes last", "",
                           "  Job figures are sums over the ranks that are live: FLOP / (peak x time),",
                           "  time outside every region included."})
    lines.push_back({{fit(text, width), Style::kPlain}});
  return lines;
}

}  // namespace

std::vector<ScreenLine> render(const TopSnapshot& snapshot, TopView& view, int width_in, int height_in) {
  const auto width = static_cast<std::size_t>(std::max(20, width_in));
  const auto height = static_cast<std::size_t>(std::max(3, height_in));
  const auto rows = select_rows(snapshot.rows, view.sort, view.filter);
  view.selected = rows.empty() ? 0 : std::min(view.selected, rows.size() - 1);
  std::vector<ScreenLine> lines;
  std::string status;
  if (view.mode == TopView::Mode::kHelp) {
    lines = help(width);
    status = "any key: back";
  } else if (view.mode == TopView::Mode::kDetail && !rows.empty()) {
    lines = detail(rows[view.selected], width);
    status = "enter: back  up/down: other ranks  q: quit";
  } else {
    lines = head(snapshot, width, false);
    if (lines.size() + 4 > height) lines.resize(height > 4 ? height - 4 : 0);
    const Widths w = widths_for(width);
    lines.push_back(header_line(w));
    const std::size_t room = height - 1 - std::min(height - 1, lines.size());
    if (view.selected < view.scroll) view.scroll = view.selected;
    if (room != 0 && view.selected >= view.scroll + room) view.scroll = view.selected - room + 1;
    if (view.scroll + room > rows.size()) view.scroll = rows.size() > room ? rows.size() - room : 0;
    for (std::size_t i = view.scroll; i < rows.size() && i < view.scroll + room; ++i)
      lines.push_back(row_line(rows[i], w, i == view.selected));
    if (view.editing_filter)
      status = "filter: " + view.filter + "_";
    else if (const std::string problem = filter_problem(view.filter); !problem.empty())
      status = problem;
    else
      status = fmt::format("{}/{}  sort: {}{}  q quit  s sort  / filter  enter detail  h help",
                           rows.empty() ? 0 : view.selected + 1, rows.size(), view.sort,
                           view.filter.empty() ? "" : "  filter: " + view.filter);
  }
  if (lines.size() > height - 1) lines.resize(height - 1);
  for (ScreenLine& line : lines) clip(line, width);
  while (lines.size() < height - 1) lines.emplace_back();
  lines.push_back({{left(status, width), Style::kHeader}});
  return lines;
}

std::string render_plain(const TopSnapshot& snapshot, const TopView& view, int width_in) {
  const auto width = static_cast<std::size_t>(std::max(40, width_in));
  std::vector<ScreenLine> lines = head(snapshot, width, true);
  const auto rows = select_rows(snapshot.rows, view.sort, view.filter);
  if (!rows.empty()) {
    const Widths w = widths_for(width);
    lines.push_back(header_line(w));
    for (const TopRow& row : rows) lines.push_back(row_line(row, w, false));
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

std::size_t columns(std::string_view text) noexcept {
  std::size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return n;
}

std::string fit(std::string_view text, std::size_t width) {
  // Names come from programs: no control character of theirs may reach a terminal.
  std::string clean;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    bool whole = length != 0 && i + length <= text.size();
    for (std::size_t k = 1; whole && k < length; ++k)
      whole = (static_cast<unsigned char>(text[i + k]) & 0xC0U) == 0x80U;
    const bool c1 = whole && length == 2 && lead == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (!whole || c1 || lead < 0x20 || lead == 0x7F) {
      clean += '?';
      i += whole ? length : 1;
      continue;
    }
    clean += text.substr(i, length);
    i += length;
  }
  if (columns(clean) <= width) return clean;
  if (width == 0) return "";
  std::string cut;
  std::size_t n = 0;
  for (std::size_t i = 0; i < clean.size();) {
    std::size_t next = i + 1;
    while (next < clean.size() && (static_cast<unsigned char>(clean[next]) & 0xC0U) == 0x80U) ++next;
    if (++n == width) break;
    cut += clean.substr(i, next - i);
    i = next;
  }
  return cut + "~";
}

}  // namespace mfu

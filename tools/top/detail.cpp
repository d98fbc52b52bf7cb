#include "tools/top/detail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/rows/idle_causes.h"
#include "core/rows/layers.h"

namespace mfu {
namespace {

/// The region's matmuls: each one's share of its time, rate, and the share that the peak would save. Those
/// that took no time are left out. Empty without any.
std::vector<ScreenLine> component_table(const RegionSummary& r, std::size_t width) {
  std::vector<ScreenLine> lines;
  const double elapsed_s = seconds(r.elapsed_ns);
  if (r.components.empty() || !(elapsed_s > 0)) return lines;
  const auto say = [&](const std::string& text, Style style) { lines.push_back({{fit(text, width), style}}); };
  say("", Style::kPlain);
  say(fmt::format(" {:>7} {:>7} {:>14} {:>7} {:<7} {:>8} MATMUL of {}", "TIME%", "LOSS%", "RATE", "PEAK%", "BOUND",
                  "CALLS", r.region),
      Style::kHeader);
  for (const Component& c : r.components) {
    if (c.time_ns <= 0) continue;
    const double share = seconds(c.time_ns) / elapsed_s;
    const bool below = c.of_peak && *c.of_peak <= 1;
    say(fmt::format(" {:>7.1f} {:>7} {:>14} {:>7} {:<7} {:>8} {}{}{}", 100 * share,
                    below ? fmt::format("{:.1f}", 100 * share * (1 - *c.of_peak)) : "-",
                    c.flop_per_s ? scaled_text(c.flop_per_s, "FLOP/s") : "-", percent_text(c.of_peak, ""),
                    c.bound == Bound::kUnknown ? "-" : std::string(word(c.bound)), c.calls, c.name,
                    c.pass.empty() ? "" : " ", c.pass),
        Style::kPlain);
  }
  return lines;
}

/// Whole percents of the matmul time whose FLOP are known, downwards.
std::string seen_figure(const RegionSummary& r) {
  return r.executed && r.executed->matmul_ns > 0
             ? fmt::format("{:.0f}", std::floor(100 * r.executed->coverage() + 1e-9))
             : "-";
}

/// The detail of one rank, block by block.
class Detail {
 public:
  Detail(const TopRow& row, std::size_t width, Glyphs glyphs) : row_(row), width_(width), glyphs_(glyphs) {}

  void say(std::string_view text, Style style = Style::kPlain) { lines_.push_back({{fit(text, width_), style}}); }
  void say_flow(const std::vector<std::string>& words) {
    for (const std::string& line : flow(words, width_)) say(line);
  }
  std::vector<ScreenLine> take() { return std::move(lines_); }

  /// Who it is: host, library, devices and their peaks.
  void add_process(const Rank& rank, const RunInfo& run) {
    say(fmt::format("rank {} of {}  host {}  pid {}  {}", run.rank, run.world_size, run.host, run.pid,
                    state_text(rank)),
        Style::kBold);
    say_flow({rank.path, "library " + run.version, run.level.empty() ? "" : "CUPTI " + run.level,
              run.convention.empty() ? "" : "FLOP counted: " + run.convention});
    for (const DeviceInfo& d : run.devices)
      say_flow({fmt::format("gpu {}: {}", d.device, d.name), d.uuid,
                d.peak_flop_per_s ? fmt::format("peak {} {}{} ({})", scaled_text(d.peak_flop_per_s, "FLOP/s"), d.dtype,
                                                d.sparse ? " sparse" : "", d.peak_source)
                                  : "peak unknown: MFU_PEAK_TFLOPS sets it",
                d.peak_bytes_per_s ? scaled_text(d.peak_bytes_per_s, "B/s") : ""});
  }

  /// The GPU as the driver reports it now.
  void add_gpu(const GpuNow& now) {
    std::vector<std::string> words{"now:"};
    if (now.memory_used && now.memory_total)
      words.push_back(fmt::format("memory {:.1f} of {:.1f} GB", static_cast<double>(*now.memory_used) / 1e9,
                                  static_cast<double>(*now.memory_total) / 1e9));
    if (now.power_w)
      words.push_back(now.power_limit_w ? fmt::format("power {:.0f} of {:.0f} W", *now.power_w, *now.power_limit_w)
                                        : fmt::format("power {:.0f} W", *now.power_w));
    if (now.temperature_c) words.push_back(fmt::format("{} °C", *now.temperature_c));
    if (now.clock_mhz) words.push_back(fmt::format("SM clock {} MHz", *now.clock_mhz));
    if (words.size() > 1) say_flow(words);
  }

  void add_history(const Rank& rank, const std::vector<std::optional<double>>& history, double top,
                   std::size_t height) {
    say("");
    const char* what = row_.history_of == HistoryOf::kMfu ? "MFU" : row_.history_of == HistoryOf::kMbu ? "MBU" : "busy";
    say(fmt::format("{} of {}, 0 to {:.0f} %, last {} windows ({})", what, row_.region->region, 100 * top,
                    history.size(), duration_text(static_cast<double>(history.size()) * seconds(rank.interval_ns))),
        Style::kDim);
    for (const std::string& line : history_lines(history, width_, height, top, glyphs_))
      lines_.push_back({{line, row_.history_of == HistoryOf::kMfu ? Style::kMfu : Style::kMatmul}});
  }

  /// Each region of the window, with its waterfall.
  void add_regions(const WindowSummary& shown) {
    say("");
    const std::size_t name_width = width_ >= 120 ? 24 : 12;
    const std::size_t bar_at = 1 + name_width + 4 + 8 + 8 + 8 + 8 + 8 + 8 + 6 + 8 + 2;
    say(" " + left("REGION", name_width) + right("GPU", 4) + right("COUNT", 8) + right("P50", 8) + right("P99", 8) +
            right("COLL", 8) + right("MFU%", 8) + right("HFU%", 8) + right("SEEN%", 6) + right("MBU%", 8) +
            (width_ > bar_at + 8 ? "  WATERFALL" : ""),
        Style::kHeader);
    for (const RegionSummary& r : shown.regions) {
      if (layer_name(r.region)) continue;
      const bool timed = r.latency.count != 0;
      ScreenLine line{
          {" " + left(r.region, name_width) + right(r.device ? std::to_string(*r.device) : "-", 4) +
               right(r.region == "total" ? "-" : std::to_string(r.instances), 8) +
               right(timed ? duration_text(seconds(r.latency.p50_ns)) : "-", 8) +
               right(timed ? duration_text(seconds(r.latency.p99_ns)) : "-", 8) +
               right(r.comm_kernels != 0 ? duration_text(seconds(r.comm_sum_ns) / static_cast<double>(r.comm_kernels))
                                         : "-",
                     8) +
               right(percent_text(r.mfu, r.mfu_lower, ""), 8) + right(percent_text(r.hfu, ""), 8) +
               right(seen_figure(r), 6) + right(percent_text(r.mbu, r.mbu_lower, ""), 8),
           Style::kPlain}};
      if (width_ > bar_at + 8) {
        line.push_back({"  ", Style::kPlain});
        for (Span& span : bar_of(r, std::min<std::size_t>(width_ - bar_at, 80), glyphs_))
          line.push_back(std::move(span));
      }
      lines_.push_back(std::move(line));
      for (const std::string& part : wrapped(r.suspect.empty() ? "" : "suspect: " + r.suspect, width_ - 3))
        say("   " + part, Style::kWarning);
    }
    for (const std::string& layers : layer_lines(shown.regions)) say(" " + layers);
  }

  /// How long the gaps of idle time were, and where they were.
  void add_idle(const RegionSummary& region) {
    const DurationNs idle = region.time_ns[static_cast<std::size_t>(TimeClass::kIdle)];
    if (!region.idle_gaps || idle <= 0) return;
    const IdleGaps& gaps = *region.idle_gaps;
    const auto part = [idle](DurationNs ns, const char* what) {
      return fmt::format("{} {:.0f} %", what, 100.0 * static_cast<double>(ns) / static_cast<double>(idle));
    };
    say("");
    say_flow({fmt::format(" IDLE of {}: {}", region.region, duration_text(seconds(idle))),
              part(gaps.under_20us, "gaps < 20 µs") + part(gaps.under_1ms, ", < 1 ms") + part(gaps.longer, ", longer"),
              part(gaps.before, "before the first kernel") + part(gaps.inside, ", inside") +
                  part(gaps.after, ", behind the last")});
  }

  /// Components, findings and kernels of the region that took most of the window.
  void add_region(const RegionSummary& region) {
    add_idle(region);
    for (ScreenLine& line : component_table(region, width_)) lines_.push_back(std::move(line));
    for (const Finding& finding : region.findings) say("   " + finding.text, Style::kWarning);
    if (const std::string causes = idle_text(region, width_ * 2); !causes.empty())
      for (const std::string& line : wrapped("idle: " + causes, width_ - 3)) say("   " + line);
    if (region.top_kernels.empty()) return;
    say("");
    say(fmt::format(" {:>7} {:>9} {:<9} KERNEL of {}", "TIME%", "COUNT", "CLASS", region.region), Style::kHeader);
    for (const TopKernel& k : region.top_kernels)
      say(fmt::format(" {:>7} {:>9} {:<9} {}",
                      region.kernel_sum_ns > 0 ? fmt::format("{:.1f}", 100.0 * static_cast<double>(k.sum_ns) /
                                                                           static_cast<double>(region.kernel_sum_ns))
                                               : "-",
                      k.count, name(k.kernel_class), k.name));
  }

  void add_counters(const WindowSummary& shown) {
    std::vector<std::string> counters;
    for (const auto& [counter, count] : shown.counters) counters.push_back(fmt::format("{}={}", counter, count));
    say("");
    counters.insert(
        counters.begin(),
        fmt::format("library: {:.2f} s of CPU, {}, {:.2f} % of the host's time", shown.self.cpu_s,
                    scaled_text(static_cast<double>(shown.self.rss_bytes), "B"), 100 * shown.self.overhead));
    say_flow(counters);
  }

 private:
  const TopRow& row_;
  std::size_t width_;
  Glyphs glyphs_;
  std::vector<ScreenLine> lines_;
};

}  // namespace

std::vector<ScreenLine> detail_lines(const TopRow& row, const std::vector<std::optional<double>>& history,
                                     double history_top, std::size_t width, std::size_t history_height, Glyphs glyphs) {
  const Rank& rank = *row.rank;
  Detail detail(row, width, glyphs);
  if (!rank.run) {
    detail.say(rank.path, Style::kBold);
    for (const std::string& problem : rank.problems) detail.say(problem, Style::kWarning);
    return detail.take();
  }
  detail.add_process(rank, *rank.run);
  if (row.gpu != nullptr) detail.add_gpu(*row.gpu);
  if (row.odd) detail.say("differs from the other ranks in " + row.odd_in, Style::kWarning);
  if (history.size() > 1 && row.region != nullptr) detail.add_history(rank, history, history_top, history_height);
  if (const WindowSummary* shown = rank.shown(); shown != nullptr) {
    detail.add_regions(*shown);
    if (row.region != nullptr) detail.add_region(*row.region);
    detail.add_counters(*shown);
  }
  for (const RunEvent& event : rank.events) detail.say(event.kind + ": " + event.message, Style::kDim);
  for (const std::string& problem : rank.problems) detail.say(problem, Style::kWarning);
  return detail.take();
}

std::vector<ScreenLine> help_lines(std::size_t width) {
  std::vector<ScreenLine> lines;
  for (const char* text :
       {"mfu top: one row per rank and GPU, newest window; keys:",
        "  q          quit                       up/down j/k   select a row",
        "  enter      the rank in detail, back   page, g, G    move far; scroll the detail",
        "  s, S, r    sort by the next, previous key, worst first; r: worst last",
        "  /          filter: words of host, region, GPU or state; KEY<VALUE, <= > >= = !=",
        "             as in  /node03 mfu<35 step>20ms   (ratios in %); Esc: no filter",
        "  o          hosts, one row each; enter there: its ranks",
        "  t          colours: dark, light, none     mouse: click, wheel, headings",
        "  REGION     where most of the window went; STEP its median instance",
        "  MFU% MBU%  of that region            BUSY%   kernels run",
        "  COMM%      exposed communication     CLK%    clock over the peak's clock",
        "  MEM POWER  of this machine's GPUs, now", "  DROP       records that CUPTI or the library lost, so far",
        "  COST%      the library's share of the host's time",
        "  !          others wait for this rank in collectives: it comes last",
        "  *          its MFU, MBU or step time is not like the other ranks'",
        "  HISTORY    the row's MFU, window by window, newest at the right",
        "  Job figures are sums over the ranks that are live: FLOP / (peak x time),",
        "  time outside every region included; the history is the mean of the ranks."})
    lines.push_back({{fit(text, width), Style::kPlain}});
  return lines;
}

}  // namespace mfu

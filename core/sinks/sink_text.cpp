#include "core/sinks/sink_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/base/counters.h"
#include "core/base/environment.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/rows/idle_causes.h"
#include "core/rows/layers.h"
#include "core/rows/metrics.h"
#include "core/sinks/component_text.h"

namespace mfu {
namespace {

std::string label(const RegionSummary& r, bool show_device) {
  const std::string region = printable(r.region);  // a config is a stranger's file
  return show_device && r.device ? fmt::format("{}@gpu{}", region, *r.device) : region;
}

/// ` p99=...`, shown from 20 instances on and only if p99 exceeds the mean by 10 %.
std::string slow_ones(const RegionSummary& r) {
  constexpr std::uint64_t kEnough = 20;
  if (r.latency.count < kEnough) return "";
  const double mean = seconds(r.elapsed_ns) / static_cast<double>(std::max<std::uint64_t>(1, r.instances));
  return seconds(r.latency.p99_ns) > 1.1 * mean ? fmt::format("p99={}", duration_text(seconds(r.latency.p99_ns))) : "";
}

constexpr std::array<std::string_view, kTimeClasses> kClassWords{"matmul", "other", "comm", "copy", "idle"};

/// The waterfall, largest class first, in percent of elapsed; shares below 0.05 % are left out, and words that do not
/// fit into `room` columns.
std::string waterfall(const RegionSummary& r, std::size_t room = 200) {
  if (r.untimed != 0) return why_no_times(r);
  if (!r.classes_known || r.elapsed_ns == 0) return "";
  std::array<std::pair<double, std::string_view>, kTimeClasses> parts;
  static constexpr std::array<std::string_view, kTimeClasses> kLost{"gemm-loss", "other", "comm", "copy", "idle"};
  const bool lost = r.lost && is_possible(r.mfu.value_or(0)) && std::ranges::all_of(*r.lost, is_possible);
  for (std::size_t c = 0; c < kTimeClasses; ++c)
    parts[c] = {lost ? (*r.lost)[c] : static_cast<double>(r.time_ns[c]) / static_cast<double>(r.elapsed_ns),
                lost ? kLost[c] : kClassWords[c]};
  // Of kernels in graphs that are one record each, classes are unknown.
  if (r.graph_sum_ns > 0) parts[static_cast<std::size_t>(TimeClass::kOther)].second = lost ? "kernel-loss" : "kernels";
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [share, what] : parts) {
    if (std::fabs(share) < 0.0005) continue;
    const std::string part = fmt::format("{}{} {:.1f}", text.empty() ? "" : " ", what, share * 100);
    if (text.size() + part.size() > room) break;
    text += part;
  }
  return text;
}

/// The waterfall with what the host did behind its idle time, as far as there is room.
std::string with_causes(std::string parts, const RegionSummary& r, std::size_t room) {
  constexpr std::size_t kBraces = 3;
  const std::size_t at = parts.find("idle ");
  if (at == std::string::npos || room <= parts.size() + kBraces) return parts;
  const std::string causes = idle_text(r, room - parts.size() - kBraces);
  if (causes.empty()) return parts;
  return parts.insert(std::min(parts.find(' ', at + 5), parts.size()), " (" + causes + ")");
}

/// The batches that took most of the time, smallest first; nothing where there is one only: the region's line says it.
std::string batch_lines(const RegionSummary& r) {
  constexpr std::size_t kShown = 8;
  if (r.by_batch.size() < 2) return "";
  std::vector<const BatchLatency*> shown;
  for (const BatchLatency& b : r.by_batch) shown.push_back(&b);
  std::stable_sort(shown.begin(), shown.end(), [](auto* a, auto* b) { return a->elapsed_ns > b->elapsed_ns; });
  shown.resize(std::min(kShown, shown.size()));
  std::stable_sort(shown.begin(), shown.end(), [](auto* a, auto* b) { return a->batch_min < b->batch_min; });
  std::string text;
  for (const BatchLatency* b : shown) {
    const bool decode = b->unit == BatchUnit::kSequences;
    text +=
        fmt::format("  {} {:<11} n={} p50={} p99={} max={}{}", decode ? "batch" : "tokens", batch_range(*b),
                    b->instances, duration_text(seconds(b->latency.p50_ns)), duration_text(seconds(b->latency.p99_ns)),
                    duration_text(seconds(b->latency.max_ns)), decode ? " per token" : "");
    if (b->mfu) text += " MFU=" + percent(b->mfu);
    if (b->mbu) text += " MBU=" + percent(b->mbu);
    if (b->tokens != 0 && b->elapsed_ns > 0)
      text += " tok/s=" + compact_text(static_cast<double>(b->tokens) / seconds(b->elapsed_ns));
    text += "\n";
  }
  if (shown.size() < r.by_batch.size())
    text += fmt::format("  and {} shorter ones\n", r.by_batch.size() - shown.size());
  return text;
}

std::string single_instances(const RegionSummary& r) {
  std::string text = batch_lines(r);
  if (const LatencySummary& gap = r.prefill_to_decode; gap.count != 0)
    text += fmt::format("  from prefill to decode p50={} p99={} max={}; {} of {} came after a prefill\n",
                        duration_text(seconds(gap.p50_ns)), duration_text(seconds(gap.p99_ns)),
                        duration_text(seconds(gap.max_ns)), r.after_prefill.value_or(0), r.instances);
  if (r.slowest.empty()) return text;
  text += fmt::format("  slowest (median {}):", duration_text(seconds(r.latency.p50_ns)));
  for (const SlowInstance& s : r.slowest)
    text += (&s == r.slowest.data() ? " " : ", ") + slow_instance(s, r.classes_known);
  return text + "\n";
}

}  // namespace

std::string batch_range(const BatchLatency& b) {
  return b.batch_min == b.batch_max ? fmt::format("{}", b.batch_min) : fmt::format("{}-{}", b.batch_min, b.batch_max);
}

std::string slow_instance(const SlowInstance& s, bool classes_known) {
  std::string text = fmt::format("#{} {}", s.nth, duration_text(seconds(s.elapsed_ns)));
  if (classes_known)
    text +=
        fmt::format(" ({} +{})", kClassWords[static_cast<std::size_t>(s.lost_to)], duration_text(seconds(s.excess_ns)));
  return text;
}

std::string origin(const RegionSummary& r) {
  if (r.named_by != NamedBy::kDetector || !r.detected) return "";
  return r.detected->confidence == "high" ? " (detected)" : fmt::format(" (inferred, {})", r.detected->confidence);
}

std::string percent(const std::optional<double>& ratio) { return percent_text(ratio, "%"); }

namespace {

constexpr std::size_t kColumns = 120;  ///< of a log line, prefix included
constexpr std::size_t kPrefix = 6;     ///< `[mfu] `

/// The words of a region's line before the waterfall, column by column; empty where a region has none.
LineColumns columns_of(const RegionSummary& r) {
  constexpr std::size_t kLongestName = 16;
  RegionSummary named = r;
  if (named.region.size() > kLongestName) named.region.resize(kLongestName);
  LineColumns c;
  c[0] = label(named, true) + origin(r);
  const double elapsed = seconds(r.elapsed_ns);
  if (r.region == "total") {
    c[1] = fmt::format("t={:.1f}s", seconds(r.window.length_ns()));
  } else if (r.instances != 0) {
    c[1] = fmt::format("n={}", r.instances);
    c[2] = duration_text(elapsed / static_cast<double>(r.instances)) + "/it";
    c[3] = slow_ones(r);
  } else {
    c[1] = "running";
    c[2] = duration_text(elapsed);
  }
  // First the figure that can reach 100 %: bytes where memory is the limit.
  const bool memory = r.bound == Bound::kMemory;
  std::string& figures = c[4];
  const std::string mbu_figure = percent_text(r.mbu, r.mbu_lower, "%");
  const std::string mfu_figure = percent_text(r.mfu, r.mfu_lower, "%");
  const auto equals = [](const std::string& figure) { return figure[0] == '>' ? figure : "=" + figure; };
  const std::string mbu = r.mbu || mbu_figure != "-" ? "MBU" + equals(mbu_figure) : "";
  if (memory && r.mbu) figures = mbu + " ";
  figures += "MFU" + equals(mfu_figure);
  std::string& further = c[5];
  if (const std::string executed = executed_text(r); !executed.empty())
    further = executed;
  else if (r.hfu && r.mfu && is_possible(*r.mfu) && *r.hfu > *r.mfu * 1.0005)
    further = "HFU=" + percent(r.hfu);
  if (!mbu.empty() && !(memory && r.mbu)) further += (further.empty() ? "" : " ") + mbu;
  if (r.bound != Bound::kUnknown) c[6] = memory ? "bound=memory" : "bound=compute";
  if (r.tokens != 0 && elapsed > 0) {
    // Per second of the window for the process, per second of the region's time for a region.
    const double base = r.region == "total" ? seconds(r.window.length_ns()) : elapsed;
    c[7] = "tok/s=" + compact_text(static_cast<double>(r.tokens) / base);
    if (const std::string energy = energy_text(r, false); !energy.empty()) c[7] += " " + energy;
  }
  return c;
}

/// The words behind the waterfall.
std::string tail_of(const RegionSummary& r) {
  std::string tail;
  // The GPU ran slower than its peak supposes: that part of the loss is power or heat, not the program.
  if (r.clock_ratio && *r.clock_ratio < 0.95) tail += fmt::format(" clock={:.0f}%", *r.clock_ratio * 100);
  for (const auto& [share, why] :
       {std::pair{r.clock_power, "power"}, {r.clock_thermal, "heat"}, {r.clock_board, "board"}})
    if (share.value_or(0) > 0.01) tail += fmt::format(" {}-limited={:.0f}%", why, *share * 100);
  if (r.overlapped) tail += " overlapped";
  // The exit table and the run directory explain it.
  if (!r.suspect.empty()) tail += " suspect: " + r.suspect.substr(0, r.suspect.find(':'));
  return tail;
}

/// Columns that a line goes without where the waterfall needs their room: the slow instances, the bound, the
/// tokens, the figures behind the first.
constexpr std::array<std::size_t, 4> kGivenUp{3, 6, 7, 5};

/// The columns, each as wide as `widths` says (0: as it is), without the first `given_up` of kGivenUp, then as much of
/// the waterfall as fits into `most` columns. \return the line, and whether all of the waterfall is in it.
std::pair<std::string, bool> line_of(const RegionSummary& r, const Widths& widths, std::size_t given_up,
                                     std::size_t most = kColumns) {
  LineColumns columns = columns_of(r);
  const std::string tail = tail_of(r), whole = waterfall(r);
  std::string text;
  for (std::size_t i = 0; i < kLineColumns; ++i) {
    if (std::find(kGivenUp.begin(), kGivenUp.begin() + given_up, i) != kGivenUp.begin() + given_up) continue;
    if (columns[i].empty() && widths[i] == 0) continue;
    if (!text.empty()) text += ' ';
    const bool to_the_right = i == 2;  // times
    text += to_the_right ? fmt::format("{:>{}}", columns[i], widths[i]) : fmt::format("{:<{}}", columns[i], widths[i]);
  }
  const std::size_t used = kPrefix + text.size() + 3 + tail.size();
  std::string parts = used < most ? waterfall(r, most - used) : "";
  const bool fits = parts.size() == whole.size() && (!whole.empty() || used <= most + 3);
  if (!parts.empty()) parts = with_causes(parts, r, most - used);
  constexpr std::string_view kGemmLoss = "gemm-loss ";
  if (const std::size_t at = parts.find(kGemmLoss); at != std::string::npos) {
    const std::string why = gemm_loss_parts(r, 3);
    if (!why.empty() && used + parts.size() + why.size() + 3 <= most)
      parts.insert(std::min(parts.find(' ', at + kGemmLoss.size()), parts.size()), " (" + why + ")");
  }
  if (!parts.empty()) return {text + " | " + parts + tail, fits};
  text.resize(text.find_last_not_of(' ') + 1);
  return {text + tail, fits};
}

/// One line for each row, below each other, in the first form in which each has its whole waterfall.
std::vector<std::string> lines_of(const std::vector<const RegionSummary*>& rows, const Widths& widths,
                                  std::size_t most = kColumns) {
  std::vector<std::string> lines;
  using Form = std::pair<bool, std::size_t>;  // padded, columns given up
  for (const auto& [padded, given_up] : {Form{true, 0}, {true, 1}, {true, 2}, {false, 2}, {false, 3}, {false, 4}}) {
    bool fit = true;
    lines.clear();
    for (const RegionSummary* row : rows) {
      auto [line, fits] = line_of(*row, padded ? widths : Widths{}, given_up, most);
      lines.push_back(std::move(line));
      fit = fit && fits;
    }
    if (fit) break;
  }
  return lines;
}

/// The first figure bold, what may be wrong in yellow.
std::string colored(std::string line) {
  if (const std::size_t at = line.find("suspect: "); at != std::string::npos)
    line = line.substr(0, at) + "\x1b[33m" + line.substr(at) + "\x1b[0m";
  std::size_t at = std::string::npos;
  for (const char* figure : {" MFU=", " MFU>=", " MBU="}) at = std::min(at, line.find(figure));
  if (at == std::string::npos) return line;
  line.insert(std::min(line.find(' ', at + 1), line.size()), "\x1b[0m");
  return line.insert(at + 1, "\x1b[1m");
}

/// `text` in lines that fit, those after the first behind two spaces.
std::string folded(const std::string& text) {
  return fmt::format("{}", fmt::join(wrapped(text, kColumns - kPrefix - 2), "\n  "));
}

}  // namespace

std::string region_line(const RegionSummary& r) {
  Widths widths{};
  widths[0] = 12;
  return lines_of({&r}, widths, r.suspect.empty() ? 2 * kColumns : kColumns).front();
}

namespace {

/// The largest parts of the waterfall that fit behind the figures, and where the region comes from: on a line of its
/// own where that does not fit.
std::string row_of_table(const RegionSummary& r, const std::string& figures) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  const auto columns =
      kPrefix + figures.size() - static_cast<std::size_t>(std::count_if(figures.begin(), figures.end(), continues));
  const std::string parts = waterfall(r, columns < kColumns ? kColumns - columns : 0);
  std::string source = origin(r);
  if (columns + parts.size() + source.size() > kColumns && !source.empty()) source = "\n " + source;
  return figures + parts + source + "\n" + (r.suspect.empty() ? "" : "  " + folded("suspect: " + r.suspect) + "\n");
}

}  // namespace

std::string region_table(const WindowSummary& run, bool components) {
  std::string text = fmt::format("{:<15} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6} | {}\n", "whole run", "instances",
                                 "each", "p99", "MFU", "busyMFU", "MBU", "tok/s", "where the time went, % of elapsed");
  for (const RegionSummary& r : run.regions) {
    if (layer_name(r.region)) continue;
    const double elapsed = seconds(r.elapsed_ns);
    const bool total = r.region == "total";
    // Of one device the process's own time is that of the windows that were measured.
    const double base = total && !r.device ? seconds(r.window.length_ns()) : elapsed;
    const std::string figures =
        fmt::format("{:<15} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6} | ", label(r, true), r.instances,
                    total              ? duration_text(seconds(r.window.length_ns()))
                    : r.instances != 0 ? duration_text(elapsed / static_cast<double>(r.instances))
                                       : "-",
                    r.latency.count != 0 ? duration_text(seconds(r.latency.p99_ns)) : "-",
                    percent_text(r.mfu, r.mfu_lower, "%"), percent(r.mfu_busy), percent_text(r.mbu, r.mbu_lower, "%"),
                    r.tokens != 0 && base > 0 ? compact_text(static_cast<double>(r.tokens) / base) : "-");
    text += row_of_table(r, figures);
    if (const std::string causes = idle_text(r, 400); !causes.empty()) text += "  " + folded("idle: " + causes) + "\n";
    if (const std::string executed = executed_text(r); !executed.empty()) text += "  " + executed + "\n";
    if (const std::string flop = flop_text(r); !flop.empty()) text += "  FLOP: " + flop + "\n";
    if (const std::string energy = energy_text(r, true); !energy.empty()) text += "  energy: " + energy + "\n";
    if (const std::string why = gemm_loss_parts(r, kGemmLossParts.size()); !why.empty())
      text += "  gemm-loss: " + why + "\n";
    text += single_instances(r) + finding_lines(r);
    if (components) text += component_lines(r);
  }
  for (const std::string& line : layer_lines(run.regions)) text += line + "\n";
  const LaunchAccount& l = run.launches;
  text += fmt::format("launches {} = attributed {} + outside {} + unattributed {} + dropped {}\n", l.seen, l.attributed,
                      l.outside, l.unattributed, l.dropped);
  if (const auto& g = run.graphs; g && g->s > 0)
    text += fmt::format("graphs {} timed as a whole, {:.0f} % of it split by what their kernels take elsewhere{}\n",
                        duration_text(g->s), 100 * g->known_s / g->s,
                        g->known_s > 0 ? fmt::format(" (+-{:.1f} %)", 100 * g->error) : "");
  std::string counters;
  for (const auto& [name, count] : run.counters) {
    if (name == kCounterNames[static_cast<std::size_t>(Counter::kLaunchesCaptured)])
      continue;  // every program with CUDA graphs has them
    std::string words(name);
    std::replace(words.begin(), words.end(), '_', ' ');
    counters += fmt::format("{}{} {}", counters.empty() ? "" : ", ", words, count);
  }
  if (!counters.empty()) text += "noted: " + counters + "\n";
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string run_table(const WindowSummary& run, bool components) {
  std::string text = region_table(run, components) + "\n";
  text += fmt::format("mfuinject itself: {:.2f} s CPU, {:.1f} MB, {:.2f} % of the run in callbacks", run.self.cpu_s,
                      static_cast<double>(run.self.rss_bytes) / 1e6, run.self.overhead * 100);
  return text;
}

TextSink::TextSink(std::string target, std::int64_t rank, bool name_rank, std::uint64_t every, bool components,
                   double bytes_per_day)
    : out_(std::move(target)),
      budget_("log", bytes_per_day),
      prefix_(name_rank ? fmt::format("[mfu] r{} ", rank) : "[mfu] "),
      every_(every),
      components_(components) {
  const int fd = out_.kind() == LineFile::Kind::kStderr   ? STDERR_FILENO
                 : out_.kind() == LineFile::Kind::kStdout ? STDOUT_FILENO
                                                          : -1;
  const EnvironmentCopy environment;
  const char* terminal = environment.find("TERM");
  const char* no_color = environment.find("NO_COLOR");  // https://no-color.org
  terminal_ = fd >= 0 && ::isatty(fd) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
  color_ = terminal_ && (no_color == nullptr || *no_color == '\0');
}

Result<void> TextSink::print(std::string_view text) {
  // A progress bar may be on the line of the cursor: without this, half of it would stay behind ours.
  std::string lines = terminal_ ? "\r\x1b[K" : "";
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t end = text.find('\n');
    if (!first) lines.push_back('\n');
    lines += color_ ? "\x1b[2m" + prefix_ + "\x1b[0m" : prefix_;
    lines += text.substr(0, end);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return out_.append(lines);
}

Result<void> TextSink::start(const RunInfo& run) {
  budget_.start(run);
  std::string text = fmt::format("mfuinject {}", run.version);
  for (const DeviceInfo& d : run.devices) {
    text += fmt::format("; gpu{} {}", d.device, d.name.empty() ? "(unnamed)" : d.name);
    if (d.peak_flop_per_s)
      text += fmt::format(", peak {} {}{} ({})", scaled_text(d.peak_flop_per_s, "FLOP/s"), d.dtype,
                          d.sparse ? " sparse" : "", d.peak_source.substr(0, d.peak_source.find(';')));
    else
      text += ", peak unknown: set MFU_PEAK_TFLOPS";
  }
  if (!run.convention.empty()) text += fmt::format("; FLOP counted: {}", run.convention);
  if (!run.level.empty()) text += fmt::format("; CUPTI: {}", run.level);
  return print(folded(printable(text)));
}

std::string TextSink::window_text(const WindowSummary& window) {
  // The rest of a run behind its last whole window says nothing, and the table follows.
  constexpr DurationNs kShortest = kNsPerSecond / 20;
  longest_ = std::max(longest_, window.window.length_ns());
  if (window.window.length_ns() < std::min(kShortest, longest_ / 2)) return "";
  if (every_ == 0 || ++windows_ % every_ != 0) return "";
  std::vector<const RegionSummary*> shown;
  for (const RegionSummary& region : window.regions)
    if (!layer_name(region.region)) shown.push_back(&region);
  // The process as a whole says nothing more where one region is all of it.
  if (shown.size() == 2 && shown[1]->region == "total" && shown[0]->instances != 0 &&
      (shown[0]->mfu.has_value() || shown[0]->mfu_lower.has_value()) &&
      shown[0]->elapsed_ns > window.window.length_ns() / 100 * 99)
    shown.pop_back();
  // Columns only grow: lines of one run are aligned.
  for (const RegionSummary* region : shown) {
    const LineColumns columns = columns_of(*region);
    for (std::size_t i = 0; i < kLineColumns; ++i) widths_[i] = std::max(widths_[i], columns[i].size());
  }
  std::string text;
  const std::vector<std::string> lines = lines_of(shown, widths_, kColumns + kPrefix - prefix_.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    text += (color_ ? colored(lines[i]) : lines[i]) + "\n";
    if (components_) text += component_lines(*shown[i]);
  }
  for (const std::string& line : layer_lines(window.regions)) text += line + "\n";
  return text;
}

Result<void> TextSink::write(const WindowSummary& window) {
  if (window.so_far) return {};
  try {
    const WindowSummary* now = window.final_run ? budget_.rest() : budget_.take(window);
    Result<void> done;
    if (const std::string text = now != nullptr ? window_text(*now) : ""; !text.empty()) {
      budget_.wrote(text.size());
      done = print(text);
    }
    return window.final_run ? print(run_table(window, components_)) : done;
  } catch (const std::exception& e) {
    return Error{std::string("log: ") + e.what()};
  }
}

Result<void> TextSink::event(const RunEvent& event) {
  if (!budget_.allows_event(event.message.size() + prefix_.size() + 1))
    return Error{"log: more events than its limit allows"};
  return print(printable_lines(event.message));
}

}  // namespace mfu

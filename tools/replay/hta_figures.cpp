#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_set>

#include "tools/replay/trace_figures.h"

namespace mfu {
namespace {

constexpr DurationNs kNsPerUs = 1000;

enum Class : std::uint8_t { kComputation, kCommunication, kMemory, kClasses, kNeither = kClasses };
constexpr std::array<std::string_view, kClasses> kClassNames{"COMPUTATION", "COMMUNICATION", "MEMORY"};

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return text.starts_with(word); });
}
bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return text.find(word) != text.npos; });
}

/// The class by name, as the regular expressions of hta/common/types.py decide it.
Class class_of(std::string_view name) {
  if (starts_with_any(name, {"nccl", "hip", "hccl"}) || contains_any(name, {"ncclKernel"})) return kCommunication;
  if (starts_with_any(name, {"Memcpy", "Memset", "dma"})) return kMemory;
  if (contains_any(name, {"Memcpy", "Memset", "dma", "Sync"})) return kNeither;
  if (starts_with_any(name, {"Stream Wait Event", "runFunction", "job_exe", "packet", "pe_exe", "cpum_exe_subgraph",
                             "collective_subgraph_execution"})) {
    return kNeither;
  }
  if (name.starts_with("cuda") && name.find("LaunchKernel") != name.npos) return kNeither;
  return kComputation;
}

/// One row of HTA's table of GPU work. Its end may lie before its begin, after rounding inward.
struct Row {
  TimeNs begin_ns;
  TimeNs end_ns;
  std::uint32_t name;
};

/// Times as HTA has them. With a fractional time anywhere it holds microseconds as doubles (0.25 us apart at Unix
/// times), takes the end from their sum, and rounds both inward to whole microseconds. Otherwise nothing is rounded.
struct Rounding {
  bool on;

  [[nodiscard]] TimeNs begin(TimeNs begin_ns) const { return on ? ns(std::ceil(us(begin_ns))) : begin_ns; }
  [[nodiscard]] TimeNs end(TimeNs begin_ns, TimeNs end_ns) const {
    return on ? ns(std::floor(us(begin_ns) + us(end_ns - begin_ns))) : end_ns;
  }

 private:
  /// The double nearest to the decimal; a long double holds any 63-bit integer.
  static double us(TimeNs t) { return static_cast<double>(static_cast<long double>(t) / kNsPerUs); }
  static TimeNs ns(double us) { return static_cast<TimeNs>(std::clamp(us, -9e15, 9e15)) * kNsPerUs; }
};

/// Merges rows as HTA does: sorted by begin, a row that begins after everything before it has ended opens a group.
std::vector<Interval> merged(std::vector<Row> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Interval> groups;
  for (const Row& row : rows) {
    if (groups.empty() || row.begin_ns > groups.back().end_ns) {
      groups.push_back({row.begin_ns, row.end_ns});
    } else {
      groups.back().end_ns = std::max(groups.back().end_ns, row.end_ns);
    }
  }
  return groups;
}

/// Signed, because HTA adds groups that end before they begin with their sign.
DurationNs total(const std::vector<Interval>& groups) {
  DurationNs sum = 0;
  for (const Interval& group : groups) sum += group.end_ns - group.begin_ns;
  return sum;
}

/// Time during which exactly each combination of classes runs; index: bit per class.
std::array<DurationNs, 8> combinations(const std::array<std::vector<Interval>, kClasses>& groups) {
  std::vector<std::pair<TimeNs, int>> edges;
  for (int c = 0; c < kClasses; ++c) {
    for (const Interval& group : groups[static_cast<std::size_t>(c)]) {
      if (group.end_ns <= group.begin_ns) continue;
      edges.emplace_back(group.begin_ns, 1 << c);
      edges.emplace_back(group.end_ns, -(1 << c));
    }
  }
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::array<DurationNs, 8> time{};
  int running = 0;
  TimeNs since = 0;
  for (const auto& [t, change] : edges) {
    // HTA keeps whole microseconds of every piece.
    if (running > 0) time[static_cast<std::size_t>(running)] += (t - since) / kNsPerUs * kNsPerUs;
    running += change;
    since = t;
  }
  return time;
}

std::vector<Row> select_rows(const Trace& trace, bool& last_step_left_out) {
  std::set<std::uint32_t> step_names;
  TimeNs last_step_ns = std::numeric_limits<TimeNs>::min();
  for (const auto& [begin_ns, name] : trace.host_steps) {
    step_names.insert(name);
    last_step_ns = std::max(last_step_ns, begin_ns);
  }
  last_step_left_out = step_names.size() >= 2;
  const Rounding rounding{trace.fractional_us};
  if (last_step_left_out) last_step_ns = rounding.begin(last_step_ns);

  std::unordered_set<std::uint64_t> host_ids;
  if (last_step_left_out) {
    for (const TraceLaunch& launch : trace.launches) {
      if (launch.on_stream == 0 && rounding.begin(launch.begin_ns) < last_step_ns) host_ids.insert(launch.correlation);
    }
  }
  std::vector<Row> rows;
  const auto take = [&](TimeNs begin, TimeNs end, std::uint32_t name, bool has_id, std::uint64_t id) {
    if (last_step_left_out) {
      const bool device_row = has_id && static_cast<std::int64_t>(id) >= 0;
      if (device_row ? !host_ids.contains(id) : rounding.begin(begin) >= last_step_ns) return;
    }
    rows.push_back({rounding.begin(begin), rounding.end(begin, end), name});
  };
  for (const TraceActivity& a : trace.activities) {
    if (a.on_stream != 0) take(a.begin_ns, a.end_ns, a.name, a.has_correlation != 0, a.correlation);
  }
  for (const TraceStreamRow& r : trace.stream_rows)
    take(r.begin_ns, r.end_ns, r.name, r.has_correlation, r.correlation);
  return rows;
}

}  // namespace

std::optional<HtaFigures> hta_figures(const Trace& trace) {
  if (trace.format != TraceFormat::kKineto) return std::nullopt;
  HtaFigures f;
  std::vector<Row> rows = select_rows(trace, f.last_step_left_out);
  if (rows.empty()) return std::nullopt;
  f.gpu_rows = static_cast<std::int64_t>(rows.size());
  std::vector<std::uint8_t> class_by_name(trace.strings.size(), 0xFF);
  std::array<std::vector<Row>, kClasses> by_class;
  for (const Row& row : rows) {
    f.rows_ending_before_they_start += row.end_ns < row.begin_ns ? 1 : 0;
    std::uint8_t& c = class_by_name[row.name];
    if (c == 0xFF) c = class_of(trace.strings.at(row.name));
    if (c < kClasses) by_class[c].push_back(row);
  }
  const std::vector<Interval> all = merged(std::move(rows));
  std::array<std::vector<Interval>, kClasses> groups;
  for (std::size_t c = 0; c < kClasses; ++c) groups[c] = merged(std::move(by_class[c]));

  f.kernel_ns = all.back().end_ns - all.front().begin_ns;
  f.idle_ns = f.kernel_ns - total(all);
  f.compute_ns = total(groups[kComputation]);
  f.non_compute_ns = f.kernel_ns - f.compute_ns - f.idle_ns;
  f.comm_ns = total(groups[kCommunication]);
  f.comm_comp_overlap_ns = 0;
  const std::array<DurationNs, 8> time = combinations(groups);
  for (unsigned combination = 1; combination < time.size(); ++combination) {
    std::string name;
    for (unsigned c = 0; c < kClasses; ++c) {
      if ((combination >> c & 1) == 0) continue;
      if (!name.empty()) name += " overlapping ";
      name += kClassNames[c];
    }
    if (time[combination] > 0) f.kernel_type_us.emplace_back(name, time[combination] / kNsPerUs);
    constexpr unsigned kBoth = 1u << kComputation | 1u << kCommunication;
    if ((combination & kBoth) == kBoth) f.comm_comp_overlap_ns += time[combination];
  }
  std::sort(f.kernel_type_us.begin(), f.kernel_type_us.end());
  if (f.comm_ns > 0) {
    f.comp_comm_overlap_percent =
        std::nearbyint(10000.0 * static_cast<double>(f.comm_comp_overlap_ns) / static_cast<double>(f.comm_ns)) / 100.0;
  }
  return f;
}

}  // namespace mfu

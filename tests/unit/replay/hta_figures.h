// HolisticTraceAnalysis's figures of a Kineto trace, by its own definitions: whole microseconds, GPU rows by the word
// `stream`, without the last profiler step when there are two names or more. Source:
// facebookresearch/HolisticTraceAnalysis at f4d0062, hta/analyzers/breakdown_analysis.py, hta/common/trace.py. The GPU
// rows are those of the Trace; what it does not keep of the file is read from the file.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "tools/trace/byte_source.h"
#include "tools/trace/trace.h"

namespace mfu {

struct HtaFigures {
  bool last_step_left_out = false;
  std::int64_t rows_ending_before_they_start = 0;
  // [ns]; multiples of 1000 where HTA rounds
  DurationNs idle_ns = 0, compute_ns = 0, non_compute_ns = 0, kernel_ns = 0, comm_ns = 0, comm_comp_overlap_ns = 0;
  std::optional<double> comp_comm_overlap_percent;                   ///< two decimals; none without communication
  std::vector<std::pair<std::string, std::int64_t>> kernel_type_us;  ///< combination of classes > us, by name
};

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
  std::string_view name;
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

/// One timed event of the file.
struct FileEvent {
  enum class Kind { kGpu, kHostCall, kAnnotation, kOther };
  Kind kind = Kind::kOther;
  std::string name;
  TimeNs begin_ns = 0, end_ns = 0;
  std::optional<std::int64_t> id, stream;  ///< `correlation`; a `stream` other than -1
};

std::optional<std::int64_t> integer_in(const nlohmann::json& event, const char* key) {
  const auto args = event.find("args");
  if (args == event.end() || !args->is_object() || !args->contains(key)) return std::nullopt;
  const nlohmann::json& value = (*args)[key];
  if (value.is_string()) return std::stoll(value.get<std::string>());
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

std::vector<FileEvent> events_of(const std::string& path, bool& fractional) {
  Result<ByteSource> source = ByteSource::open(path);
  std::string text;
  std::vector<char> piece(1 << 20);
  for (std::size_t got = piece.size(); source && got == piece.size();) {
    got = source->read(piece).value();
    text.append(piece.data(), got);
  }
  std::vector<FileEvent> events;
  fractional = false;
  const nlohmann::json document = nlohmann::json::parse(text);
  for (const nlohmann::json& each : document.at("traceEvents")) {
    fractional = fractional || (each.contains("ts") && each["ts"].is_number_float());
    std::string category = each.value("cat", "");
    if (each.value("ph", "") != "X" || category.empty() || category == "Trace") continue;
    for (char& c : category) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto is = [&category](std::initializer_list<std::string_view> words) {
      return std::ranges::find(words, category) != words.end();
    };
    FileEvent event;
    event.kind = is({"kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"}) ? FileEvent::Kind::kGpu
                 : is({"runtime", "cuda_runtime", "cuda_driver"})               ? FileEvent::Kind::kHostCall
                 : is({"user_annotation", "gpu_user_annotation"})               ? FileEvent::Kind::kAnnotation
                                                                                : FileEvent::Kind::kOther;
    event.name = each.value("name", "");
    // Unix times in nanoseconds need more digits than a double has.
    const auto ns = [&](const char* key) {
      if (each.contains(key) && each[key].is_number_integer()) return each[key].get<std::int64_t>() * kNsPerUs;
      return static_cast<std::int64_t>(std::llround(static_cast<long double>(each.value(key, 0.0)) * kNsPerUs));
    };
    event.begin_ns = ns("ts");
    event.end_ns = event.begin_ns + ns("dur");
    event.id = integer_in(each, "correlation");
    event.stream = integer_in(each, "stream");
    if (event.stream == -1) event.stream.reset();
    events.push_back(std::move(event));
  }
  return events;
}

/// Strings of the rows are those of `trace` and `events`.
std::vector<Row> select_rows(const Trace& trace, const std::vector<FileEvent>& events, bool fractional,
                             bool& last_step_left_out) {
  const auto is_device_row = [](const FileEvent& e) { return e.stream.value_or(-1) >= 0 && e.id.value_or(-1) >= 0; };
  std::set<std::string> step_names;
  TimeNs last_step_ns = std::numeric_limits<TimeNs>::min();
  for (const FileEvent& e : events) {
    if (!e.name.starts_with("ProfilerStep#") || is_device_row(e)) continue;
    step_names.insert(e.name);
    last_step_ns = std::max(last_step_ns, e.begin_ns);
  }
  last_step_left_out = step_names.size() >= 2;
  const Rounding rounding{fractional};
  if (last_step_left_out) last_step_ns = rounding.begin(last_step_ns);

  std::unordered_set<std::int64_t> host_ids;
  for (const FileEvent& e : events)
    if (e.kind == FileEvent::Kind::kHostCall && e.id && !e.stream && rounding.begin(e.begin_ns) < last_step_ns)
      host_ids.insert(*e.id);
  std::vector<Row> rows;
  auto activity = trace.activities.begin();
  for (const FileEvent& e : events) {
    TimeNs begin = e.begin_ns, end = e.end_ns;
    std::string_view name = e.name;
    if (e.kind == FileEvent::Kind::kGpu) {
      if (activity == trace.activities.end()) break;
      begin = activity->begin_ns;
      end = activity->end_ns;
      name = trace.strings.at(activity->name);
      EXPECT_EQ(name, e.name);
      ++activity;
    }
    if (!e.stream || e.kind == FileEvent::Kind::kAnnotation) continue;
    if (last_step_left_out &&
        (e.id.value_or(-1) >= 0 ? !host_ids.contains(*e.id) : rounding.begin(begin) >= last_step_ns))
      continue;
    rows.push_back({rounding.begin(begin), rounding.end(begin, end), name});
  }
  EXPECT_TRUE(activity == trace.activities.end());
  return rows;
}

}  // namespace

/// None: no GPU row in it.
inline std::optional<HtaFigures> hta_figures(const Trace& trace) {
  bool fractional = false;
  const std::vector<FileEvent> events = events_of(trace.path, fractional);
  HtaFigures f;
  std::vector<Row> rows = select_rows(trace, events, fractional, f.last_step_left_out);
  if (rows.empty()) return std::nullopt;
  std::array<std::vector<Row>, kClasses> by_class;
  for (const Row& row : rows) {
    f.rows_ending_before_they_start += row.end_ns < row.begin_ns ? 1 : 0;
    if (const Class c = class_of(row.name); c != kNeither) by_class[c].push_back(row);
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

#include "tools/replay/instance_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/account/instance.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"

namespace mfu {
namespace {

constexpr std::size_t kMostThreads = 6;
constexpr std::size_t kMostDepth = 6;
constexpr std::size_t kMostStreams = 10;

BarKind kind_of_kernel(std::string_view name) {
  const KernelClass c = classify_kernel(name);
  return is_matmul(c) ? BarKind::kMatmul : c == KernelClass::kComm ? BarKind::kComm : BarKind::kOther;
}

/// Joins neighbours of one kind, those that span least together first, until there are at most `most`.
void join_short(std::vector<TimelineBar>& bars, std::size_t most) {
  if (bars.size() <= most) return;
  const DurationNs whole =
      bars.back().begin_ns + bars.back().length_ns - std::min<DurationNs>(0, bars.front().begin_ns);
  for (DurationNs limit = std::max<DurationNs>(1, whole / 100'000); bars.size() > most; limit *= 2) {
    std::vector<TimelineBar> fewer;
    for (const TimelineBar& bar : bars) {
      if (!fewer.empty()) {
        TimelineBar& last = fewer.back();
        const DurationNs length = bar.begin_ns + bar.length_ns - last.begin_ns;
        if (last.kind == bar.kind && length <= limit) {
          last.length_ns = std::max(last.length_ns, length);
          last.count += bar.count;
          continue;
        }
      }
      fewer.push_back(bar);
    }
    bars = std::move(fewer);
    if (limit > whole) break;  // the rest differ in kind
  }
}

class Drawing {
 public:
  Drawing(const Trace& trace, const InstanceSpan& span, std::size_t most_bars)
      : trace_(trace), span_(span), most_bars_(most_bars) {}

  InstanceTimeline draw() {
    out_.span = span_;
    streams();
    threads();
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool overlaps(TimeNs begin, TimeNs end) const {
    return begin < span_.time.end_ns && end > span_.time.begin_ns;
  }
  [[nodiscard]] TimelineBar bar(TimeNs begin, TimeNs end, std::uint32_t name, BarKind kind) const {
    return {begin - span_.time.begin_ns, end - begin, name, 1, kind};
  }
  std::uint32_t name_of(std::uint32_t string, bool kernel) {
    const auto [at, inserted] = names_.try_emplace(string, static_cast<std::uint32_t>(out_.names.size()));
    if (inserted) {
      constexpr std::size_t kLongest = 300;
      const std::string& text = trace_.strings.at(string);
      out_.names.push_back((kernel ? demangle(text) : text).substr(0, kLongest));
    }
    return at->second;
  }

  void streams() {
    struct Stream {
      TimelineRow row;
      DurationNs busy_ns = 0;
    };
    std::map<std::uint32_t, Stream> by_index;
    for (const TraceActivity& activity : trace_.activities) {
      if (activity.process != span_.process || !overlaps(activity.begin_ns, activity.end_ns)) continue;
      const TraceStream& stream = trace_.streams[activity.stream];
      const std::uint32_t id = raw(trace_.devices[stream.device].id);
      if (id != span_.device && trace_.devices.size() > 1) continue;
      Stream& into = by_index[activity.stream];
      into.row.label = "stream " + stream.label;
      const bool copies = activity.kind == ActivityKind::kMemcpy || activity.kind == ActivityKind::kMemset;
      const std::uint32_t name = name_of(activity.name, activity.kind == ActivityKind::kKernel);
      const auto [kind, inserted] = kinds_.try_emplace(name, BarKind::kMemcpy);
      if (inserted && !copies) kind->second = kind_of_kernel(out_.names[name]);
      into.row.bars.push_back(bar(activity.begin_ns, activity.end_ns, name, copies ? BarKind::kMemcpy : kind->second));
      into.busy_ns += activity.end_ns - activity.begin_ns;
      if (activity.launch != kNoLaunch) ++launches_of_[trace_.launches[activity.launch].thread];
    }
    std::vector<Stream*> busiest;
    busiest.reserve(by_index.size());
    for (auto& [index, stream] : by_index) busiest.push_back(&stream);
    std::ranges::stable_sort(busiest, std::greater{}, &Stream::busy_ns);
    if (busiest.size() > kMostStreams) {
      out_.rows_left_out += busiest.size() - kMostStreams;
      busiest.resize(kMostStreams);
    }
    for (Stream* stream : busiest) finish(std::move(stream->row));
  }

  /// Threads that launched most of the work first.
  void threads() {
    struct Thread {
      std::vector<const TraceRange*> ranges;
      TimelineRow calls;
    };
    std::map<std::uint32_t, Thread> by_index;
    for (const TraceRange& range : trace_.ranges)
      if (trace_.threads[range.thread].process == span_.process && overlaps(range.begin_ns, range.end_ns))
        by_index[range.thread].ranges.push_back(&range);
    for (const TraceLaunch& launch : trace_.launches) {
      if (trace_.threads[launch.thread].process != span_.process || !overlaps(launch.begin_ns, launch.end_ns)) continue;
      by_index[launch.thread].calls.bars.push_back(
          bar(launch.begin_ns, launch.end_ns, name_of(launch.name, false), BarKind::kLaunch));
    }
    std::vector<std::uint32_t> order;
    order.reserve(by_index.size());
    for (const auto& [thread, what] : by_index) order.push_back(thread);
    std::ranges::stable_sort(order, std::greater{}, [this](std::uint32_t thread) { return launches_of_[thread]; });
    if (order.size() > kMostThreads) {
      out_.rows_left_out += order.size() - kMostThreads;
      order.resize(kMostThreads);
    }
    std::vector<TimelineRow> device_rows = std::move(out_.rows);
    out_.rows.clear();
    for (const std::uint32_t index : order) {
      Thread& thread = by_index[index];
      const std::int64_t tid = trace_.threads[index].tid;
      const std::string label = tid >= 0 ? fmt::format("thread {}", tid) : "thread " + trace_.threads[index].label;
      std::stable_sort(thread.ranges.begin(), thread.ranges.end(), [](const TraceRange* a, const TraceRange* b) {
        return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
      });
      std::vector<TimelineRow> depths;
      std::vector<TimeNs> until;  // end of the last range at each depth
      for (const TraceRange* range : thread.ranges) {
        std::size_t depth = 0;
        while (depth < until.size() && until[depth] > range->begin_ns) ++depth;
        if (depth == kMostDepth) continue;
        if (depth == depths.size()) {
          depths.push_back({depth == 0 ? label : "", {}});
          until.push_back(0);
        }
        until[depth] = range->end_ns;
        depths[depth].bars.push_back(bar(range->begin_ns, range->end_ns, name_of(range->name, false), BarKind::kRange));
      }
      for (TimelineRow& row : depths) finish(std::move(row));
      thread.calls.label = depths.empty() ? label : "";
      if (!thread.calls.bars.empty()) finish(std::move(thread.calls));
    }
    std::move(device_rows.begin(), device_rows.end(), std::back_inserter(out_.rows));
  }

  void finish(TimelineRow row) {
    std::ranges::stable_sort(row.bars, {}, &TimelineBar::begin_ns);
    join_short(row.bars, most_bars_);
    out_.rows.push_back(std::move(row));
  }

  const Trace& trace_;
  InstanceSpan span_;
  std::size_t most_bars_;
  InstanceTimeline out_;
  std::unordered_map<std::uint32_t, std::uint32_t> names_;        // by string of the trace
  std::unordered_map<std::uint32_t, BarKind> kinds_;              // of kernels, by index of the name
  std::unordered_map<std::uint32_t, std::uint64_t> launches_of_;  // activities by thread
};

}  // namespace

void InstanceCollector::on_finished(const Instance& instance, std::uint32_t device, double /*share_of_work*/) {
  const InstanceOnDevice& share = instance.shares[device];
  if (!share.has_work() || rules == nullptr || share.end_ns <= share.begin_ns) return;
  std::vector<InstanceSpan>& spans = regions_[rules->regions()[raw(instance.region)].name];
  if (spans.size() < kMost)
    spans.push_back({process, device, share.nth, {share.begin_ns - shift_ns, share.end_ns - shift_ns}});
}

InstanceTimeline draw_instance(const Trace& trace, const InstanceSpan& span, std::size_t most_bars) {
  return Drawing(trace, span, most_bars).draw();
}

Config recording_config(const std::string& resolved_config) {
  using Json = nlohmann::json;
  const Json resolved = Json::parse(resolved_config, nullptr, /*allow_exceptions=*/false);
  Json own = Json::object();
  if (resolved.is_object())
    for (const char* key : {"regions", "presets"})
      if (resolved.contains(key) && !resolved[key].empty()) own[key] = resolved[key];
  const std::string text = own.dump(-1, ' ', false, Json::error_handler_t::replace);
  return load_config(
      [&](const char* name) -> const char* {
        return std::strcmp(name, "MFU_MODEL_CONFIG") == 0 && !own.empty() ? text.c_str() : nullptr;
      },
      nullptr);
}

}  // namespace mfu

#include "tools/replay/process_replay.h"
#include "core/families/architecture_json.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>

#include "core/attribution/attribution.h"
#include "core/attribution/product_table.h"
#include "core/base/counters.h"
#include "core/base/printable.h"
#include "core/base/ticks.h"
#include "core/drain/run_account.h"
#include "core/kernels/kernel_names.h"
#include "core/peak/peak.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"
#include "core/ranges/unmatched_names.h"
#include "core/sinks/region_json.h"

namespace mfu {
namespace {

/// An event at one moment, in the order in which a live process would see it.
struct Event {
  enum Kind : std::uint8_t { kClose, kOpen, kLaunch, kRecord, kCloseEmpty };  ///< order at equal times
  TimeNs at;
  DurationNs length;  ///< of a range that opens: the outer one first
  Kind kind;
  std::uint32_t index;  ///< of the range, launch or activity
};

bool before(const Event& a, const Event& b) {
  if (a.at != b.at) return a.at < b.at;
  if (a.kind != b.kind) return a.kind < b.kind;
  if (a.kind == Event::kOpen && a.length != b.length) return a.length > b.length;
  return a.index < b.index;
}

/// One process of the trace, with the objects that a live process has.
class ProcessReplay {
 public:
  ProcessReplay(const Trace& trace, const Config& config, std::uint32_t process, const RegionsOptions& options)
      : trace_(trace),
        config_(config),
        process_(process),
        options_(options),
        rules_(rules_of(config, options.only), config.presets, warnings_),
        attribution_(std::make_unique<Attribution>(counters_)),
        names_(std::make_unique<KernelNames>(counters_)),
        clock_(/*identity=*/true) {}

  ProcessRegions run() {
    ProcessRegions out;
    out.process = trace_.processes[process_].name;
    number_devices();
    collect();
    if (left_out_ != 0)
      out.notes.push_back(std::to_string(left_out_) + " activities left out of the regions: on more than " +
                          std::to_string(kMostDevices) + " devices");
    if (std::string notice = unmatched_notice(names_seen_, config_.regions);
        options_.only == nullptr && !notice.empty())
      out.notes.push_back(std::move(notice));
    if (events_.empty()) return out;

    // The file's zero becomes one second, since a live record at zero has no time; undone when windows go out.
    shift_ = kNsPerSecond - origin();
    RunAccount::Options options;
    options.ledger.origin_ns = kNsPerSecond;
    options.ledger.window_ns = window_ns();
    if (options_.only == nullptr && options.ledger.window_ns != configured_window_ns())
      out.notes.push_back("windows of " + std::to_string(options.ledger.window_ns / kNsPerSecond) +
                          " s: the trace spans " + std::to_string(span() / kNsPerSecond) +
                          " s, too long for shorter ones");
    if (options_.only != nullptr) options.ledger.window_ns = span() + 10 * kNsPerSecond;  // one for all: of no interest
    options.model = config_.flops_model();
    options.workload = config_.workload;
    if (!trace_.product_of_activity.empty() || (trace_.recording && trace_.recording->products))
      options.products = &products_;
    if (options_.observer != nullptr) {
      options_.observer->process = process_;
      options_.observer->shift_ns = shift_;
      options_.observer->rules = &rules_;
      options.observer = options_.observer;
    }
    // The time of one range is asked, beside any others.
    if ((config_.detect || options_.detect) && options_.only == nullptr)
      options.detection = DetectionOptions{.whole_trace = true};
    account_ =
        std::make_unique<RunAccount>(RunAccount::Parts{rules_, *attribution_, *names_, contexts_, clock_, counters_},
                                     options, [&](WindowSummary&& window) {
                                       onto_clock_of_file(window);
                                       if (window.final_run)
                                         out.whole = std::move(window);
                                       else
                                         out.windows.push_back(std::move(window));
                                     });
    set_devices(out.run);
    constexpr std::size_t kEventsPerTick = 4096;
    // As often as the library's own thread looks, so that windows go out as they did then.
    const DurationNs period = RunAccount::tick_period(options.ledger.window_ns);
    TimeNs last = 0, next_tick = 0;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const Event& event = events_[i];
      last = event.at + shift_;
      if (i % kEventsPerTick == 0 || last >= next_tick) {
        account_->drain().begin_tick(last);
        account_->drain().end_tick(false);
        next_tick = last + period;
      }
      handle(event, last);
    }
    last = std::max(last, end_of_activity_ + shift_);
    if (trace_.recording) last = std::max(last, trace_.recording->end_ns + shift_);
    account_->drain().finish(last);
    note_instances(out);
    if (DetectedRegions* const detected = account_->detected(); detected != nullptr)
      for (std::string& notice : detected->take_notices()) out.notes.push_back(std::move(notice));
    return out;
  }

 private:
  /// Instances that no figure can be had of.
  void note_instances(ProcessRegions& out) const {
    if (without_time_ != 0)
      out.notes.push_back(std::to_string(without_time_) +
                          " ranges of regions begin and end at the same time, or end before they begin: left out");
    for (const auto& [region, seen] : work_of_) {
      if (seen.without > 0)
        out.notes.push_back(rules_.regions()[raw(region)].name + ": " + std::to_string(seen.without) + " of " +
                            std::to_string(seen.instances) + " instances have no GPU record");
    }
  }

  /// The Ledger's tables are by device number: as the file numbers them, unless that is beyond all reason.
  void number_devices() {
    device_number_.assign(trace_.devices.size(), kNoDevice);
    std::uint32_t used = 0, next_far = kMostDevices;
    for (std::size_t d = 0; d < trace_.devices.size(); ++d) {
      if (trace_.devices[d].process != process_ || used == kMostDevices) continue;
      ++used;
      const std::uint32_t id = raw(trace_.devices[d].id);
      device_number_[d] = id < kMostDevices ? id : next_far++;
    }
  }
  [[nodiscard]] std::uint32_t device_of(const TraceActivity& activity) const {
    return device_number_[trace_.streams[activity.stream].device];
  }

  /// Where the windows begin: at the first event, or on the edges that a recording had.
  [[nodiscard]] TimeNs origin() const {
    const TimeNs first = events_.front().at;
    if (!trace_.recording) return first;
    TimeNs begin = trace_.recording->origin_ns;
    if (!trace_.recording->whole_run && first > begin) begin += (first - begin) / window_ns() * window_ns();
    return begin;
  }
  [[nodiscard]] DurationNs configured_window_ns() const {
    return std::max<DurationNs>(1'000'000, static_cast<DurationNs>(config_.interval_s * 1e9));
  }
  /// As configured, unless a stray time makes the trace so long that the windows would fill the memory.
  [[nodiscard]] DurationNs window_ns() const {
    constexpr DurationNs kMostWindows = 1 << 16;
    return std::max(configured_window_ns(), span() / kMostWindows);
  }
  [[nodiscard]] DurationNs span() const {
    TimeNs first = events_.front().at, last = std::max(events_.back().at, end_of_activity_);
    if (trace_.recording) {
      first = std::min(first, trace_.recording->origin_ns);
      last = std::max(last, trace_.recording->end_ns);
    }
    return last - first;
  }

  /// Calls in the order in which the program made them: dense, from 1; an activity without an id has 0.
  [[nodiscard]] CorrelationId correlation_of(const TraceActivity& activity) const {
    if (!activity.has_correlation) return CorrelationId{0};
    const auto found = std::lower_bound(correlations_.begin(), correlations_.end(), activity.correlation);
    return static_cast<CorrelationId>(found - correlations_.begin() + 1);
  }

  void collect() {
    for (const TraceActivity& activity : trace_.activities)
      if (activity.process == process_ && activity.has_correlation) correlations_.push_back(activity.correlation);
    std::sort(correlations_.begin(), correlations_.end());
    correlations_.erase(std::unique(correlations_.begin(), correlations_.end()), correlations_.end());

    for (std::uint32_t i = 0; i < trace_.ranges.size(); ++i) {
      const TraceRange& range = trace_.ranges[i];
      if (trace_.threads[range.thread].process != process_ || !chosen(i)) continue;
      events_.push_back({range.begin_ns, range.end_ns - range.begin_ns, Event::kOpen, i});
      events_.push_back({range.end_ns, 0, range.end_ns > range.begin_ns ? Event::kClose : Event::kCloseEmpty, i});
    }
    // Activities by launch, those of launch i at [first_activity_[i], first_activity_[i + 1]).
    first_activity_.assign(trace_.launches.size() + 1, 0);
    for (std::uint32_t i = 0; i < trace_.activities.size(); ++i) {
      const TraceActivity& activity = trace_.activities[i];
      if (activity.process != process_) continue;
      if (device_of(activity) == kNoDevice) {
        ++left_out_;
        continue;
      }
      end_of_activity_ = std::max(end_of_activity_, activity.end_ns);
      if (activity.launch != kNoLaunch) ++first_activity_[activity.launch];
      if (activity.launch == kNoLaunch || comes_later(activity))
        events_.push_back({activity.begin_ns, 0, Event::kRecord, i});
    }
    std::sort(events_.begin(), events_.end(), before);
    const auto launches_from = static_cast<std::ptrdiff_t>(events_.size());
    std::uint32_t place = 0;
    for (std::uint32_t i = 0; i < trace_.launches.size(); ++i) {
      if (first_activity_[i] != 0) events_.push_back({trace_.launches[i].begin_ns, 0, Event::kLaunch, i});
      place += first_activity_[i];
      first_activity_[i] = place;
    }
    first_activity_.back() = place;
    activities_.resize(place);
    for (auto i = static_cast<std::uint32_t>(trace_.activities.size()); i-- > 0;) {
      const TraceActivity& activity = trace_.activities[i];
      if (activity.process == process_ && activity.launch != kNoLaunch && device_of(activity) != kNoDevice)
        activities_[--first_activity_[activity.launch]] = i;
    }
    // Launches come in order already, or nearly so.
    const auto launches = events_.begin() + launches_from;
    if (!std::is_sorted(launches, events_.end(), before)) std::sort(launches, events_.end(), before);
    std::inplace_merge(events_.begin(), launches, events_.end(), before);
  }

  /// Starts more than 5 s after its launch: feed it at its own time, since Drain rejects records from the future.
  [[nodiscard]] bool comes_later(const TraceActivity& activity) const {
    return activity.launch != kNoLaunch &&
           activity.begin_ns - trace_.launches[activity.launch].begin_ns > 5 * kNsPerSecond;
  }

  /// Indices of the activities that a launch caused, in file order.
  [[nodiscard]] std::span<const std::uint32_t> activities_of(std::uint32_t launch) const {
    return std::span(activities_)
        .subspan(first_activity_[launch], first_activity_[launch + 1] - first_activity_[launch]);
  }

  /// The rule whose region is `only` comes first; no name matches it.
  static std::vector<RegionRule> rules_of(const Config& config, const OneRegion* only) {
    std::vector<RegionRule> rules;
    if (only != nullptr) {
      RegionRule rule;
      rule.region = only->name;
      rule.match = "(?!)";
      rule.phase = only->phase;
      rules.push_back(std::move(rule));
    }
    rules.insert(rules.end(), config.regions.begin(), config.regions.end());
    return rules;
  }

  [[nodiscard]] bool chosen(std::uint32_t range) {
    if (options_.detect) return false;
    const TraceRange& candidate = trace_.ranges[range];
    const bool recorded = recorded_region(candidate) != RegionId::kNone;
    if (options_.only == nullptr
            ? !recorded && rule_of(candidate) == RuleId::kNone
            : !std::binary_search(options_.only->ranges.begin(), options_.only->ranges.end(), range))
      return false;
    // FLOP without time would be added to those of the others.
    const bool without_time = candidate.end_ns <= candidate.begin_ns && !recorded;
    without_time_ += without_time;
    return !without_time;
  }

  /// The region that a range opens. With only one region its rule still says the shape, if there is one.
  RegionOpening opening_of(const TraceRange& range) {
    const std::string_view name = std::string_view(trace_.strings.at(range.name)).substr(0, RuleCache::kMaxLength);
    if (const RegionId region = recorded_region(range); region != RegionId::kNone) {
      RegionOpening opening;
      opening.region = region;
      // Not by the recorded number: the config at hand may number its rules otherwise.
      if (const RuleId rule = rule_of(range);
          rule != RuleId::kNone && rules_.open(rule, name, nullptr).region == region)
        opening.rule = rule;
      opening.shape = shape_of_words(name);
      return opening;
    }
    const auto payload = static_cast<double>(range.payload);
    RuleId rule = rule_of(range);
    if (rule == RuleId::kNone) rule = RuleId{0};
    RegionOpening opening = rules_.open(rule, name, range.has_payload ? &payload : nullptr);
    if (options_.only != nullptr) opening.region = RegionId{0};
    return opening;
  }

  /// The region that the library gave the range when it recorded it, if the config at hand has it too.
  [[nodiscard]] RegionId recorded_region(const TraceRange& range) const {
    if (!range.recorded || options_.only != nullptr) return RegionId::kNone;
    const std::string& wanted = trace_.strings.at(range.region);
    const auto& regions = rules_.regions();
    const auto found = std::find_if(regions.begin(), regions.end(), [&](const auto& r) { return r.name == wanted; });
    return found == regions.end() ? RegionId::kNone : static_cast<RegionId>(found - regions.begin());
  }

  RuleId rule_of(const TraceRange& range) {
    const auto key = (static_cast<std::uint64_t>(range.domain) << 32) | range.name;
    const auto [known, inserted] = rule_of_name_.try_emplace(key, RuleId::kNone);
    if (inserted && trace_.strings.at(range.domain) != "NCCL") {
      const std::string& domain = trace_.strings.at(range.domain);
      const auto name = std::string_view(trace_.strings.at(range.name)).substr(0, RuleCache::kMaxLength);
      known->second = rules_.match(domain, name);
      if (known->second == RuleId::kNone)
        names_seen_.add(domain, name);
      else
        names_seen_.matched(rules_.is_of_config(known->second));
    }
    return known->second;
  }

  ThreadState* thread(std::uint32_t index) {
    auto [state, inserted] = threads_.try_emplace(index, nullptr);
    if (inserted) state->second = attribution_->acquire_thread(index + 1);
    return state->second;
  }

  void handle(const Event& event, TimeNs now) {
    switch (event.kind) {
      case Event::kOpen: {
        const TraceRange& range = trace_.ranges[event.index];
        const RegionOpening opening = opening_of(range);
        opened_.try_emplace(event.index, std::pair(opening.region, work_));
        ThreadState* state = thread(range.thread);
        if (range.kind == RangeKind::kStartEnd) {
          handles_[event.index] = attribution_->start_process_region(state, opening, now);
        } else if (state != nullptr) {
          // A separate domain for each range, so that one that overlaps another closes itself and nothing else.
          attribution_->push_region(*state, static_cast<DomainId>(event.index), opening, now);
        }
        return;
      }
      case Event::kClose:
      case Event::kCloseEmpty: {
        const TraceRange& range = trace_.ranges[event.index];
        if (const auto opened = opened_.find(event.index); opened != opened_.end()) {
          InstancesSeen& seen = work_of_[opened->second.first];
          ++seen.instances;
          seen.without += work_ == opened->second.second;
          opened_.erase(opened);
        }
        if (range.kind == RangeKind::kStartEnd) {
          if (const auto handle = handles_.find(event.index); handle != handles_.end())
            attribution_->end_process_region(handle->second, now);
        } else if (ThreadState* state = thread(range.thread)) {
          attribution_->pop(*state, static_cast<DomainId>(event.index), [now] { return now; });
        }
        return;
      }
      case Event::kLaunch: {
        ++work_;
        const std::span<const std::uint32_t> activities = activities_of(event.index);
        const TraceLaunch& launch = trace_.launches[event.index];
        const std::uint32_t device = raw(record_of(activities.front()).device);
        const CorrelationId correlation = record_of(activities.front()).correlation;
        contexts_.set(device + 1, device);
        if (ThreadState* state = thread(launch.thread)) {
          attribution_->launch(*state, correlation, device + 1);
          attribution_->launch_done(*state, correlation, false);
        } else {
          attribution_->launch_anonymous(correlation, device + 1);
        }
        account_->drain().follow_instances();
        for (const std::uint32_t activity : activities)
          if (!comes_later(trace_.activities[activity])) record(activity);
        return;
      }
      case Event::kRecord:
        ++work_;
        record(event.index);
        return;
    }
  }

  void record(std::uint32_t activity) {
    if (options_.observer != nullptr) options_.observer->activity = activity;
    account_->drain().record(record_of(activity));
  }

  ActivityRecord record_of(std::uint32_t activity) {
    ActivityRecord record = to_kernel_record(trace_, trace_.activities[activity]);
    const TraceActivity& of = trace_.activities[activity];
    record.correlation = correlation_of(of);
    if (of.launch != kNoLaunch && trace_.launches[of.launch].graph) record.graph = GraphId::kUnknown;
    record.device = DeviceId{device_of(trace_.activities[activity])};
    record.begin_ns += shift_;
    record.end_ns += shift_;
    if (record.kind == ActivityKind::kKernel) {
      const auto [id, inserted] = name_ids_.try_emplace(raw(record.name), KernelNameId::kOther);
      if (inserted) id->second = names_->intern(trace_.strings.at(raw(record.name)).c_str());
      record.name = id->second;
      if (activity < trace_.product_of_activity.size()) {
        const TraceProduct& of_call = trace_.product_of_activity[activity];
        if (of_call.product) record.product = products_.number_of(*of_call.product);
        record.first_of_product = of_call.first;
      }
    } else {
      record.name = KernelNameId::kOther;
    }
    return record;
  }

  void set_devices(RunInfo& run) {
    const std::optional<DType> of_model = config_.model ? config_.model->dtype() : std::nullopt;
    const OperandDType operands =
        operand_dtype(config_.peak.dtype, of_model, config_.peak.dtype || of_model ? std::nullopt : dtype_of_kernels());
    run.t_ns = events_.front().at + trace_.base_ns;
    run.rank = trace_.rank.value_or(0);
    run.world_size = trace_.world_size.value_or(1);
    run.level = "replay";
    run.config_json = config_.resolved_json;
    if (config_.model) {
      run.model_json = model_json(config_.model->spec());
      run.convention = config_.model->convention();
    }
    for (std::size_t d = 0; d < trace_.devices.size(); ++d) {
      const TraceDevice& device = trace_.devices[d];
      const std::uint32_t number = device_number_[d];
      if (number == kNoDevice) continue;
      DeviceFacts facts = device.facts;
      if (facts.name.empty() && trace_.gpu_names.size() == 1) facts.name = trace_.gpu_names.front();
      const Peak peak = find_peak(facts, operands.dtype, config_.peak);
      account_->ledger().set_peak(number, peak);
      run.devices.push_back(describe_device(number, facts, peak, operands));
    }
  }

  /// Operand dtype of most FLOP, of matmul kernels whose names say it.
  [[nodiscard]] std::optional<DType> dtype_of_kernels() const {
    std::vector<DurationNs> ran(trace_.strings.size());
    for (const TraceActivity& activity : trace_.activities)
      if (activity.kind == ActivityKind::kKernel) ran[activity.name] += activity.end_ns - activity.begin_ns;
    std::array<DurationNs, kDTypes> by_dtype{};
    for (std::size_t i = 0; i < ran.size(); ++i) {
      if (ran[i] <= 0) continue;
      const std::string name = demangle(trace_.strings.at(static_cast<std::uint32_t>(i)));
      if (!is_matmul(classify_kernel(name))) continue;
      if (const std::optional<DType> dtype = matmul_dtype(name)) by_dtype[static_cast<std::size_t>(*dtype)] += ran[i];
    }
    return dtype_of_most(by_dtype);
  }

  void onto_clock_of_file(WindowSummary& window) const {
    const TimeNs back = trace_.base_ns - shift_;
    window.window.begin_ns += back;
    window.window.end_ns += back;
    for (RegionSummary& region : window.regions) {
      region.window.begin_ns += back;
      region.window.end_ns += back;
      for (SlowInstance& slow : region.slowest) slow.t0_ns += back;
    }
  }

  const Trace& trace_;
  const Config& config_;
  std::uint32_t process_;
  RegionsOptions options_;
  std::vector<std::string> warnings_;
  Counters counters_;
  RegionRules rules_;
  std::unique_ptr<Attribution> attribution_;
  std::unique_ptr<KernelNames> names_;
  TickClock clock_;
  ContextDevices contexts_;
  ProductTable products_;
  std::unique_ptr<RunAccount> account_;
  static constexpr std::uint32_t kMostDevices = 256;  ///< of one process
  static constexpr std::uint32_t kNoDevice = 0xFFFFFFFFu;
  std::vector<std::uint32_t> device_number_;  ///< by index into Trace::devices
  std::uint64_t left_out_ = 0;                ///< activities on devices without a number
  DurationNs shift_ = 0;
  TimeNs end_of_activity_ = std::numeric_limits<TimeNs>::min() / 2;
  std::vector<std::uint64_t> correlations_;  ///< distinct, ascending
  std::vector<Event> events_;
  std::vector<std::uint32_t> first_activity_;
  std::vector<std::uint32_t> activities_;
  std::unordered_map<std::uint64_t, RuleId> rule_of_name_;
  UnmatchedNames names_seen_;
  std::uint64_t without_time_ = 0;  ///< chosen ranges
  std::uint64_t work_ = 0;          ///< launches and records so far
  struct InstancesSeen {
    std::uint64_t instances = 0, without = 0;  ///< without: nothing was launched meanwhile
  };
  std::map<RegionId, InstancesSeen> work_of_;
  std::unordered_map<std::uint32_t, std::pair<RegionId, std::uint64_t>> opened_;  ///< by range: with `work_` then
  std::unordered_map<std::uint32_t, ThreadState*> threads_;
  std::unordered_map<std::uint32_t, std::uint64_t> handles_;
  std::unordered_map<std::uint32_t, KernelNameId> name_ids_;
};

}  // namespace

std::vector<ProcessRegions> trace_regions(const Trace& trace, const Config& config, const RegionsOptions& options) {
  std::vector<ProcessRegions> out;
  for (std::uint32_t p = 0; p < trace.processes.size(); ++p)
    out.push_back(ProcessReplay(trace, config, p, options).run());
  return out;
}

std::string regions_json(const std::vector<ProcessRegions>& processes) {
  auto all = nlohmann::ordered_json::array();
  for (const ProcessRegions& process : processes) {
    for (const RegionSummary& region : process.whole.regions) {
      nlohmann::ordered_json entry{{"process", printable(process.process, 200)}};
      entry.update(to_json(region));
      all.push_back(std::move(entry));
    }
  }
  return text_of(all);
}

}  // namespace mfu

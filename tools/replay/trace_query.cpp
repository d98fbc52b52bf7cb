#include "tools/replay/trace_query.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>

#include "core/base/edit_distance.h"
#include "core/base/printable.h"
#include "core/base/regex.h"
#include "core/kernels/kernel_names.h"
#include "core/kernels/kernel_traits.h"
#include "core/model/kernel_flop.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"
#include "core/rows/metrics.h"
#include "core/rows/region_totals.h"
#include "tools/replay/interval_union.h"
#include "tools/replay/process_replay.h"

namespace mfu {
namespace {

/// The names most like `wanted`, best first, as they follow an error message.
std::string nearest_names(std::string_view wanted, const std::vector<std::string>& names) {
  if (names.empty()) return "there are none";
  constexpr std::size_t kCompared = 48, kShown = 5;
  const auto lower = [](std::string_view text) { return lower_case(text.substr(0, kCompared)); };
  // To the whole name, or to the nearest word in it.
  const auto distance = [&](const std::string& name) {
    const std::string low = lower(name);
    std::size_t least = edit_distance(lower(wanted), low);
    for (std::size_t at = 0, end = 0; at < low.size(); at = end + 1) {
      for (end = at; end < low.size() && std::isalnum(static_cast<unsigned char>(low[end])) != 0;) ++end;
      if (end > at) least = std::min(least, edit_distance(lower(wanted), std::string_view(low).substr(at, end - at)));
    }
    return least;
  };
  std::vector<std::pair<std::size_t, const std::string*>> ranked;
  ranked.reserve(names.size());
  for (const std::string& name : names) ranked.emplace_back(distance(name), &name);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out = "nearest: ";
  for (std::size_t i = 0; i < std::min(kShown, ranked.size()); ++i)
    out += (i > 0 ? ", \"" : "\"") + ranked[i].second->substr(0, 100) + "\"";
  if (ranked.size() > kShown) out += " and " + std::to_string(ranked.size() - kShown) + " more";
  return out;
}

void set_mfu(BaseFigures& f, std::optional<double> peak, double scale, bool sparse, Bound bound) {
  std::array<double, 3> time_s{};
  for (std::size_t b = 0; b < time_s.size(); ++b) {
    time_s[b] = seconds(f.time_ns[b]) * scale;
    if (!f.flop || time_s[b] <= 0) continue;
    f.flop_s[b] = *f.flop / time_s[b];
    if (peak && *peak > 0) f.mfu[b] = *f.flop_s[b] / *peak;
  }
  if (!f.flop || !peak || !(*peak > 0)) return;
  // `suspect` uses kernel time: gaps between kernels lower MFU but do not make it wrong.
  const double ran_s = time_s[static_cast<std::size_t>(TimeBase::kKernelUnion)];
  f.suspect = suspect_reason(*f.flop / *peak, ran_s, ran_s, ran_s, bound, sparse);
}

class Query {
 public:
  Query(const Trace& trace, const Config& config, const TraceQuery& query)
      : trace_(trace), config_(config), query_(query) {}

  Result<QueryAnswers> run() {
    if (query_.device) {
      std::set<std::uint32_t> known;
      for (const TraceDevice& d : trace_.devices) known.insert(raw(d.id));
      if (!known.contains(*query_.device)) {
        std::string list;
        for (const std::uint32_t d : known) list += (list.empty() ? "" : ", ") + std::to_string(d);
        return Error{"--device " + std::to_string(*query_.device) + ": no work on it; devices here: " + list};
      }
    }
    if (!query_.kernel.empty())
      if (auto done = match_kernels(); !done) return done.error();
    QueryAnswers answers;
    if (!query_.range.empty()) {
      if (auto done = choose_ranges(); !done) return done.error();
      replay();
      answers.range = range_answer();
    } else {
      whole_trace();
    }
    if (!query_.kernel.empty()) {
      Result<QueryAnswer> kernels = kernel_answer();
      if (!kernels) return kernels.error();
      answers.kernel = std::move(kernels).value();
    }
    return answers;
  }

 private:
  /// The content of one occurrence of the range, or of a whole process.
  struct Part {
    std::uint32_t process = 0;
    std::uint32_t range = 0;  ///< index into Trace::ranges; of a range only
    ShapeWords shape;
    TimeNs open_ns = 0;
    std::vector<RegionSummary> regions;  ///< per device
    std::vector<std::uint32_t> matched;  ///< activities, in order of launch
  };

  /// Collects occurrences while the trace is replayed.
  class Collector final : public ReplayObserver {
   public:
    explicit Collector(Query& query) : query_(query) {}
    void on_open(const InstanceSlot& slot, TimeNs at) override {
      if (slot.kind == InstanceKind::kNested) return;
      Part part;
      part.process = process;
      part.open_ns = at - shift_ns;
      part.shape = slot.shape;
      part.range = query_.range_at(slot.os_thread - 1, part.open_ns);
      place_[{process, raw(slot.id)}] = query_.parts_.size();
      query_.parts_.push_back(std::move(part));
    }
    void on_record(const ActivityRecord& record, InstanceId owner, bool) override {
      if (record.kind != ActivityKind::kKernel || !query_.matches(activity)) return;
      if (const auto found = place_.find({process, raw(owner)}); found != place_.end())
        query_.parts_[found->second].matched.push_back(activity);
    }
    void on_finished(const Instance& instance, std::uint32_t device, double share_of_work) override {
      const auto found = place_.find({process, raw(instance.id)});
      if (found == place_.end() || (query_.query_.device && device != *query_.query_.device)) return;
      const InstanceOnDevice& share = instance.shares[device];
      RegionSummary s;
      s.region = query_.query_.range;
      s.device = device;
      s.window = {share.begin_ns - shift_ns, share.end_ns - shift_ns};
      s.instances = 1;
      for (const WindowSlice& p : share.portions) {
        for (std::size_t c = 0; c < kTimeClasses; ++c) s.time_ns[c] += p.time_ns[c];
        s.busy_ns += p.busy_ns;
      }
      s.elapsed_ns = share.elapsed_ns;
      s.kernel_sum_ns = share.kernel_sum_ns;
      s.kernels = share.kernels;
      s.tokens = static_cast<std::int64_t>(static_cast<double>(instance.work.tokens) * share_of_work + 0.5);
      s.named_by = NamedBy::kRange;
      if (query_.query_.flop && query_.query_.kernel.empty()) {
        s.flop = s.hfu_flop = *query_.query_.flop * share_of_work;
      } else if (query_.config_.model && instance.phase != Phase::kNone && instance.work.flop_known) {
        s.flop = instance.work.flop * share_of_work;
        s.hfu_flop = instance.work.hfu_flop * share_of_work;
        if (instance.work.bytes_known) s.bytes = instance.work.bytes * share_of_work;
      }
      if (instance.phase != Phase::kNone && !instance.work.flop_known) query_.missing_ = instance.work.missing;
      query_.parts_[found->second].regions.push_back(std::move(s));
    }

   private:
    Query& query_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> place_;  ///< (process, instance) > part
  };

  [[nodiscard]] bool matches(std::uint32_t activity) const {
    const std::uint32_t name = trace_.activities[activity].name;
    return name < matched_.size() && matched_[name];
  }

  Result<void> match_kernels() {
    Result<NamePattern> pattern = NamePattern::compile(query_.kernel);
    if (!pattern) return Error{"--kernel: " + pattern.error().message};
    NamePattern expression = std::move(pattern).value();
    std::vector<bool> seen(trace_.strings.size());
    matched_.assign(trace_.strings.size(), false);
    std::vector<std::string> names;
    bool any = false;
    for (const TraceActivity& activity : trace_.activities) {
      if (activity.kind != ActivityKind::kKernel || seen[activity.name]) continue;
      seen[activity.name] = true;
      names.push_back(demangle(trace_.strings.at(activity.name)));
      if (!expression.matches(names.back())) continue;
      matched_[activity.name] = any = true;
    }
    if (expression.gave_up() != 0)
      notes_.push_back(std::to_string(expression.gave_up()) +
                       " kernel names left out: the expression needs too many steps on them");
    if (!any)
      return Error{"--kernel: no kernel matches \"" + query_.kernel + "\"; " + nearest_names(query_.kernel, names)};
    return {};
  }

  /// The ranges of the name, and their phase.
  Result<void> choose_ranges() {
    only_.name = query_.range;
    std::vector<std::uint32_t> found;
    std::set<std::string> others;
    for (std::uint32_t i = 0; i < trace_.ranges.size(); ++i) {
      const std::string& name = trace_.strings.at(trace_.ranges[i].name);
      // The operands that profilers append to a name are no part of what was asked for.
      const std::string& key = trace_.strings.at(trace_.ranges[i].key);
      const bool is = query_.exact ? name == query_.range || key == query_.range : name.find(query_.range) != name.npos;
      if (is)
        found.push_back(i);
      else
        others.insert(key);
    }
    if (found.empty())
      return Error{"--range: no range " + std::string(query_.exact ? "is named \"" : "contains \"") + query_.range +
                   "\"; " + nearest_names(query_.range, {others.begin(), others.end()})};
    if (query_.nth)
      if (auto done = choose_nth(found); !done) return done;
    only_.ranges = found;
    for (const std::uint32_t i : found) {
      const TraceRange& range = trace_.ranges[i];
      auto [known, fresh] = longest_.try_emplace({range.thread, range.begin_ns}, i);
      if (!fresh && trace_.ranges[known->second].end_ns < range.end_ns) known->second = i;
    }
    only_.phase = query_.phase.value_or(phase_by_rules());
    return {};
  }

  Phase phase_by_rules() const {
    std::vector<std::string> warnings;
    const RegionRules rules(config_.regions, config_.presets, warnings);
    for (const std::uint32_t i : only_.ranges) {
      const TraceRange& range = trace_.ranges[i];
      const std::string_view name = std::string_view(trace_.strings.at(range.name)).substr(0, RuleCache::kMaxLength);
      const RuleId rule = rules.match(trace_.strings.at(range.domain), name);
      if (rule == RuleId::kNone) continue;
      const RegionOpening opening = rules.open(rule, name, nullptr);
      const Phase phase = rules.regions()[raw(opening.region)].phase;
      if (phase != Phase::kNone) return phase;
    }
    return Phase::kNone;
  }

  /// Leaves in `found` the n-th occurrence of every process and what lies inside it on its thread.
  Result<void> choose_nth(std::vector<std::uint32_t>& found) const {
    std::vector<std::uint32_t> order = found;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const TraceRange &x = trace_.ranges[a], &y = trace_.ranges[b];
      return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns : x.end_ns > y.end_ns;
    });
    std::map<std::uint32_t, std::uint32_t> outer;      // by thread: the occurrence that is open
    std::map<std::uint32_t, std::int64_t> count;       // by process
    std::map<std::uint32_t, std::uint32_t> wanted_of;  // by process
    std::vector<std::uint32_t> kept;
    std::int64_t most = 0;
    for (const std::uint32_t i : order) {
      const TraceRange& range = trace_.ranges[i];
      const std::uint32_t process = trace_.threads[range.thread].process;
      const auto around = outer.find(range.thread);
      const bool part = range.kind == RangeKind::kPushPop && around != outer.end() &&
                        trace_.ranges[around->second].end_ns > range.begin_ns;
      if (!part) {
        outer[range.thread] = i;
        most = std::max(most, ++count[process]);
        if (count[process] == *query_.nth) wanted_of[process] = i;
      }
      const auto wanted = wanted_of.find(process);
      if (wanted != wanted_of.end() && outer[range.thread] == wanted->second) kept.push_back(i);
    }
    if (kept.empty())
      return Error{"--nth " + std::to_string(*query_.nth) + ": \"" + query_.range + "\" occurs " +
                   std::to_string(most) + (most == 1 ? " time" : " times")};
    std::sort(kept.begin(), kept.end());
    found = std::move(kept);
    return {};
  }

  [[nodiscard]] std::uint32_t range_at(std::uint32_t thread, TimeNs begin_ns) const {
    const auto found = longest_.find({thread, begin_ns});
    return found == longest_.end() ? only_.ranges.front() : found->second;
  }

  void replay() {
    Collector collector(*this);
    RegionsOptions options;
    options.only = &only_;
    options.observer = &collector;
    processes_ = trace_regions(trace_, config_, options);
    for (const ProcessRegions& process : processes_)
      notes_.insert(notes_.end(), process.notes.begin(), process.notes.end());
    find_peak_of(processes_);
    std::erase_if(parts_, [&](const Part& part) { return part.regions.empty() && part.matched.empty(); });
  }

  /// Every process is one part that holds all of its kernels; with --nth only the n-th of them.
  void whole_trace() {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < trace_.activities.size(); ++i)
      if (trace_.activities[i].kind == ActivityKind::kKernel && matches(i) && on_device(i)) order.push_back(i);
    std::ranges::stable_sort(order, {}, [this](std::uint32_t i) { return trace_.activities[i].begin_ns; });
    std::map<std::uint32_t, Part> of_process;
    std::map<std::uint32_t, std::int64_t> count;
    for (const std::uint32_t i : order) {
      const std::uint32_t process = trace_.activities[i].process;
      most_launches_ = std::max(most_launches_, ++count[process]);
      if (query_.nth && count[process] != *query_.nth) continue;
      Part& part = of_process[process];
      part.process = process;
      part.matched.push_back(i);
    }
    for (auto& [process, part] : of_process) parts_.push_back(std::move(part));
    find_peak_of(trace_regions(trace_, config_));
  }

  [[nodiscard]] std::uint32_t device_of(std::uint32_t activity) const {
    return raw(trace_.devices[trace_.streams[trace_.activities[activity].stream].device].id);
  }
  [[nodiscard]] bool on_device(std::uint32_t activity) const {
    return !query_.device || device_of(activity) == *query_.device;
  }

  /// One peak for all: where devices differ there is none.
  void find_peak_of(const std::vector<ProcessRegions>& processes) {
    bool first = true, differ = false;
    for (const ProcessRegions& process : processes) {
      for (const DeviceInfo& device : process.run.devices) {
        if (query_.device && device.device != *query_.device) continue;
        differ =
            differ ||
            (!first && (peak_.flop_per_s != device.peak_flop_per_s || peak_.bytes_per_s != device.peak_bytes_per_s));
        first = false;
        peak_.flop_per_s = device.peak_flop_per_s;
        peak_.bytes_per_s = device.peak_bytes_per_s;
        peak_.sparse = device.sparse;
        peak_.source = device.peak_source;
        dtype_ = device.dtype;
      }
    }
    if (!differ) return;
    peak_.flop_per_s = peak_.bytes_per_s = std::nullopt;
    notes_.emplace_back("the devices have different peaks: no MFU over all of them; ask for one with --device");
  }

  QueryAnswer new_answer() const {
    QueryAnswer answer;
    answer.peak_flop_per_s = peak_.flop_per_s;
    answer.peak_source = peak_.source;
    answer.dtype = dtype_;
    answer.notes = notes_;
    return answer;
  }

  /// --gpus: the FLOP are those of so many, of which the trace has `devices`.
  [[nodiscard]] double scale(std::uint32_t devices) const {
    return query_.gpus && devices > 0 ? static_cast<double>(*query_.gpus) / devices : 1.0;
  }

  /// Rows of which one has unknown FLOP have unknown FLOP together: a query asks for all of a range or for nothing.
  class StrictTotals {
   public:
    void add(const RegionSummary& row) {
      totals_.add_beside(row, RowPeak{});
      flop_known_ = flop_known_ && row.flop;
      bytes_known_ = bytes_known_ && row.bytes;
    }
    [[nodiscard]] bool empty() const { return totals_.empty(); }
    [[nodiscard]] RegionSummary summary() const {
      RegionSummary sum = totals_.summed().sum;
      if (!flop_known_) sum.flop = sum.hfu_flop = std::nullopt;
      if (!bytes_known_) sum.bytes = std::nullopt;
      return sum;
    }

   private:
    RegionTotals totals_;
    bool flop_known_ = true, bytes_known_ = true;
  };

  static BaseFigures bases_of(const RegionSummary& s) {
    BaseFigures f;
    f.time_ns = {s.elapsed_ns, s.kernel_sum_ns, s.busy_ns};
    f.kernels = s.kernels;
    f.flop = s.flop;
    return f;
  }

  QueryAnswer range_answer() {
    QueryAnswer answer = new_answer();
    std::set<std::pair<std::uint32_t, std::uint32_t>> devices;
    for (const Part& part : parts_)
      for (const RegionSummary& r : part.regions) devices.insert({part.process, *r.device});
    answer.devices = static_cast<std::uint32_t>(devices.size());
    answer.gpus = query_.gpus.value_or(answer.devices);
    const double share = 1.0 / scale(answer.devices);  // of --flop that is the trace's
    const Phase phase = query_.flop && query_.kernel.empty() ? Phase::kTrain : only_.phase;
    std::map<std::uint32_t, std::int64_t> count;
    StrictTotals sums;
    for (Part& part : parts_) {
      if (part.regions.empty()) continue;
      Occurrence o;
      o.index = query_.nth.value_or(++count[part.process]);
      o.process = trace_.processes[part.process].name;
      o.name = trace_.strings.at(trace_.ranges[part.range].name);
      o.devices = static_cast<std::uint32_t>(part.regions.size());
      StrictTotals of_devices;
      for (RegionSummary& r : part.regions) {
        r.window.begin_ns += trace_.base_ns;
        r.window.end_ns += trace_.base_ns;
        if (query_.flop && query_.kernel.empty()) r.flop = r.hfu_flop = *r.flop * share;
        of_devices.add(r);
        complete_metrics(r, phase, peak_);
        o.regions.push_back(r);
      }
      RegionSummary all = of_devices.summary();
      o.hull = all.window;
      sums.add(all);
      o.figures = bases_of(all);
      complete_metrics(all, phase, peak_);
      set_mfu(o.figures, peak_.flop_per_s, 1, peak_.sparse, Bound::kUnknown);
      o.figures.suspect = all.suspect;
      answer.occurrences.push_back(std::move(o));
    }
    if (sums.empty()) return answer;
    RegionSummary sum = sums.summary();
    answer.sum = bases_of(sum);
    set_mfu(answer.sum, peak_.flop_per_s, 1, peak_.sparse, Bound::kUnknown);
    if (answer.devices != 1) sum.device.reset();
    complete_metrics(sum, phase, peak_);
    answer.sum.suspect = sum.suspect;
    add_top_kernels(sum);
    answer.region = std::move(sum);
    if (!answer.sum.flop) {
      if (!config_.model)
        answer.notes.emplace_back("no FLOP: name a model with --config, or say --flop N for one occurrence");
      else if (only_.phase == Phase::kNone)
        answer.notes.emplace_back("no FLOP: the name says no phase; say --phase train, prefill or decode, or --flop N");
      else
        answer.notes.push_back("no FLOP: the shape lacks " + (missing_.empty() ? "values" : missing_) +
                               "; say it in the config's workload, or --flop N");
    }
    return answer;
  }

  /// The longest kernels of the range, from the rows of the replay.
  void add_top_kernels(RegionSummary& sum) const {
    KernelSums kernels;
    for (const ProcessRegions& process : processes_) {
      for (const RegionSummary& region : process.whole.regions) {
        if (region.region != query_.range || &region == &process.whole.regions.back()) continue;
        if (query_.device && region.device != query_.device) continue;
        sum.launches += region.launches;
        sum.comm_kernels += region.comm_kernels;
        sum.comm_sum_ns += region.comm_sum_ns;
        sum.overlapped = sum.overlapped || region.overlapped;
        for (const TopKernel& kernel : region.top_kernels) kernels.add(kernel);
      }
    }
    sum.top_kernels = kernels.top();
  }

  // --- kernels ------------------------------------------------------------------------------------------------------

  /// FLOP of the kernel kind for one occurrence: of a launch (a layer), and of all layers in all its passes.
  struct KindFlop {
    double launch = 0;
    double occurrence = 0;
    std::int64_t layers = 0;  ///< 0: no model says
  };

  Result<std::optional<KindFlop>> kind_flop(const Part& part) {
    if (query_.flop) return std::optional(KindFlop{*query_.flop, *query_.flop, 0});
    if (query_.kernel_kind.empty()) return std::optional<KindFlop>();
    if (query_.kernel_kind == "gemm") {
      if (!query_.m || !query_.n || !query_.k) return Error{"--kernel-kind gemm: expected --m, --n and --k"};
      const Result<KernelFlop> gemm = gemm_flop(*query_.m, *query_.n, *query_.k);
      if (!gemm) return gemm.error();
      return std::optional(KindFlop{gemm->flop.to_double(), gemm->flop.to_double(), 0});
    }
    if (!config_.model)
      return Error{"--kernel-kind " + query_.kernel_kind + ": expected a model: name it with --config"};
    const Phase phase = query_.phase.value_or(
        only_.phase != Phase::kNone ? only_.phase : config_.workload.phase.value_or(Phase::kNone));
    if (phase != Phase::kTrain && phase != Phase::kPrefill && phase != Phase::kDecode)
      return Error{"--kernel-kind " + query_.kernel_kind + ": expected --phase train, prefill or decode"};
    Shape shape = part.shape.to_shape();
    for (const ShapeKey& key : kShapeKeys)
      if (!(shape.*key.value)) shape.*key.value = config_.workload.shape.*key.value;
    const std::int64_t batch = shape.batch.value_or(1);
    if (!shape.seq_len && shape.tokens && batch > 0) shape.seq_len = *shape.tokens / batch;
    const bool decode = phase == Phase::kDecode;
    if (decode ? !shape.context : !shape.seq_len)
      return Error{"--kernel-kind " + query_.kernel_kind + ": expected " + (decode ? "context" : "seq_len") +
                   ", in the range's name or under workload in the config (MFU_SET=workload." +
                   (decode ? "context" : "seq_len") + "=N)"};
    const std::array<SequenceGroup, 1> sequences{
        {{batch, shape.context.value_or(0), decode ? 1 : shape.seq_len.value_or(1)}}};
    const Result<KernelFlop> flop =
        kernel_flop(query_.kernel_kind, config_.model->spec(), config_.model->options(), phase, sequences);
    if (!flop) return flop.error();
    // This rank's share of a layer, and of the layers.
    const ParallelConfig& ranks = config_.model->options().parallel;
    const double share = 1.0 / static_cast<double>(ranks.tp * ranks.cp * ranks.dp);
    const std::int64_t passes = decode                   ? shape.new_tokens.value_or(1)
                                : phase == Phase::kTrain ? config_.workload.grad_accum
                                                         : 1;
    return std::optional(KindFlop{
        flop->flop.to_double() * share,
        flop->all.to_double() * share / static_cast<double>(ranks.pp) * static_cast<double>(passes), flop->launches});
  }

  /// The matched kernels of one part: how many, their times and devices. `figures.kernels` 0: none.
  Occurrence occurrence_of(const Part& part, std::int64_t index, std::map<std::uint32_t, KernelCount>& names,
                           std::set<std::pair<std::uint32_t, std::uint32_t>>& devices) const {
    std::map<std::uint32_t, std::vector<Interval>> by_device;
    Occurrence o;
    o.index = index;
    o.process = trace_.processes[part.process].name;
    o.name = query_.range.empty() ? "" : trace_.strings.at(trace_.ranges[part.range].name);
    for (const std::uint32_t i : part.matched) {
      if (!on_device(i)) continue;
      const TraceActivity& a = trace_.activities[i];
      const Interval interval{a.begin_ns, a.end_ns};
      if (o.figures.kernels++ == 0) o.hull = interval;
      o.hull = {std::min(o.hull.begin_ns, interval.begin_ns), std::max(o.hull.end_ns, interval.end_ns)};
      by_device[device_of(i)].push_back(interval);
      o.figures.time_ns[static_cast<std::size_t>(TimeBase::kKernelSum)] += interval.length_ns();
      KernelCount& name = names[a.name];
      ++name.count;
      name.sum_ns += interval.length_ns();
    }
    if (by_device.empty()) return o;
    o.devices = static_cast<std::uint32_t>(by_device.size());
    for (auto& [device, intervals] : by_device) {
      devices.insert({part.process, device});
      o.figures.time_ns[static_cast<std::size_t>(TimeBase::kKernelUnion)] +=
          IntervalUnion(std::move(intervals)).length_ns();
    }
    o.figures.time_ns[static_cast<std::size_t>(TimeBase::kWall)] = o.hull.length_ns() * o.devices;
    return o;
  }

  Result<QueryAnswer> kernel_answer() {
    QueryAnswer answer = new_answer();
    if (query_.per_pass && query_.range.empty())
      return Error{"--kernel-per pass: expected --range: its occurrences are the passes"};
    std::set<std::pair<std::uint32_t, std::uint32_t>> devices;
    std::map<std::uint32_t, KernelCount> names;
    std::map<std::uint32_t, std::int64_t> count;
    bool matmul = false, uneven = false;
    std::optional<double> sum_flop = 0.0;
    for (const Part& part : parts_) {
      Occurrence o = occurrence_of(part, query_.nth.value_or(++count[part.process]), names, devices);
      if (o.figures.kernels == 0) continue;
      const Result<std::optional<KindFlop>> kind = kind_flop(part);
      if (!kind) return kind.error();
      if (const std::optional<KindFlop>& each = *kind) {
        o.figures.flop = query_.per_pass ? each->occurrence : each->launch * static_cast<double>(o.figures.kernels);
        answer.flop_per_launch = each->launch;
        if (each->layers > 0) {
          answer.layers = each->layers;
          uneven = uneven || (!query_.per_pass && o.figures.kernels % static_cast<std::uint64_t>(each->layers) != 0);
        }
      }
      o.hull = {o.hull.begin_ns + trace_.base_ns, o.hull.end_ns + trace_.base_ns};
      sum_flop = sum_flop && o.figures.flop ? std::optional(*sum_flop + *o.figures.flop) : std::nullopt;
      for (std::size_t b = 0; b < o.figures.time_ns.size(); ++b) answer.sum.time_ns[b] += o.figures.time_ns[b];
      answer.sum.kernels += o.figures.kernels;
      answer.occurrences.push_back(std::move(o));
    }
    if (answer.occurrences.empty()) {
      if (query_.range.empty() && query_.nth)
        return Error{"--nth " + std::to_string(*query_.nth) + ": \"" + query_.kernel + "\" was launched " +
                     std::to_string(most_launches_) + " times"};
      return Error{"--kernel: \"" + query_.kernel + "\" matches no kernel " +
                   (query_.range.empty() ? "on this device" : "inside \"" + query_.range + "\"")};
    }
    answer.devices = static_cast<std::uint32_t>(devices.size());
    answer.gpus = query_.gpus.value_or(answer.devices);
    answer.sum.flop = sum_flop;
    const Bound bound =
        only_.phase == Phase::kDecode || query_.phase == Phase::kDecode ? Bound::kUnknown : Bound::kCompute;
    for (Occurrence& o : answer.occurrences)
      set_mfu(o.figures, peak_.flop_per_s, scale(answer.devices), peak_.sparse, bound);
    set_mfu(answer.sum, peak_.flop_per_s, scale(answer.devices), peak_.sparse, bound);
    for (auto& [name, entry] : names) {
      entry.name = demangle(trace_.strings.at(name));
      matmul = matmul || is_matmul(classify_kernel(entry.name));
      answer.names.push_back(std::move(entry));
    }
    std::ranges::stable_sort(answer.names, std::greater{}, &KernelCount::sum_ns);
    if (!answer.sum.flop)
      answer.notes.emplace_back("no FLOP: say --kernel-kind KIND with --config, or --flop N for one launch");
    else if (!matmul)
      answer.notes.emplace_back("no matched kernel looks like a matmul or attention by its name");
    if (uneven)
      answer.notes.push_back("matched launches are no multiple of the " + std::to_string(*answer.layers) +
                             " layers: a launch counts as one layer's work; --kernel-per pass counts a range instead");
    return answer;
  }

  const Trace& trace_;
  const Config& config_;
  const TraceQuery& query_;
  std::vector<bool> matched_;  ///< by name in Trace::strings
  OneRegion only_;
  std::map<std::pair<std::uint32_t, TimeNs>, std::uint32_t> longest_;  ///< (thread, begin) > chosen range
  std::vector<Part> parts_;
  std::vector<ProcessRegions> processes_;
  Peak peak_;
  std::string dtype_;
  std::string missing_;
  std::int64_t most_launches_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

Result<QueryAnswers> answer_query(const Trace& trace, const Config& config, const TraceQuery& query) {
  return Query(trace, config, query).run();
}

}  // namespace mfu

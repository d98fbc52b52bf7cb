#include "core/drain/detected_regions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/attribution/correlation_map.h"

namespace mfu {
namespace {

constexpr TimeNs kEver = std::numeric_limits<TimeNs>::max();
constexpr std::uint32_t kFirstId = 1u << 29;  ///< after those of InstanceTable
constexpr std::uint32_t kIds = 1u << 28;
constexpr std::uint32_t kFirstOpener = 0xFFFF'0000u;  ///< thread serials that no thread has, one per device
constexpr DurationNs kLeastFirstHold = 2 * kNsPerSecond, kMostFirstHold = 20 * kNsPerSecond;
constexpr DurationNs kMostPatience = 120 * kNsPerSecond;

const char* noun(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::kStep:
      return "training step";
    case StepKind::kDecode:
      return "decode iteration";
    case StepKind::kPrefillOrMixed:
      return "iteration (prefill or mixed)";
    case StepKind::kIteration:
    case StepKind::kNone:
      break;
  }
  return "iteration";
}

/// Logits of so few of the tokens that no graph's batch was filled up with the rest.
bool has_last_positions(const SeenShape& seen) noexcept {
  return seen.rows && seen.logits && seen.passes == 1 && *seen.logits * 2 <= *seen.rows;
}

}  // namespace

StepKind kind_of_pass(const SeenShape& seen, const PassContext& context) noexcept {
  constexpr std::int64_t kMostTried = 16;  // tokens of a draft
  if (seen.queries) {
    if (*seen.queries == 1) return StepKind::kDecode;
    const bool tried = context.by_names == StepKind::kDecode && *seen.queries <= kMostTried;
    return tried ? context.by_names : StepKind::kPrefillOrMixed;
  }
  if (!seen.rows || !seen.logits || seen.passes != 1) return context.by_names;
  if (has_last_positions(seen) || (*seen.logits < *seen.rows && !context.graph)) return StepKind::kPrefillOrMixed;
  return *seen.logits == *seen.rows && context.last_positions ? StepKind::kDecode : context.by_names;
}

std::string sentence(const StepFindings& f) {
  if (f.confidence == StepConfidence::kNotSure) return "no step found";
  std::string text = f.confidence == StepConfidence::kHigh ? "" : "inferred ";
  text += std::string(noun(f.kind)) + " every " + std::to_string(f.period_launches) + " launches, confidence " +
          std::string(name(f.confidence));
  text += ", " + cut_by(f.rule);
  if (f.micro_steps > 1)
    text +=
        ", " + std::to_string(f.micro_steps) + " micro-steps of " + std::to_string(f.micro_step_launches) + " launches";
  return text;
}

struct DetectedRegions::Device final : StepListener, DetectionLog {
  /// \param log gets what the detector considers, `most` lines of it
  Device(std::uint32_t device, std::vector<std::string>& log, std::uint32_t most)
      : index(device), lines(log), most_explained(most), detector(*this, 0, most != 0 ? this : nullptr) {}

  void say(LaunchPosition at, std::string_view text) override {
    if (explained > most_explained) return;
    const std::string where = "gpu" + std::to_string(index) + " launch " + std::to_string(at) + ": ";
    lines.push_back(where + (explained++ < most_explained ? std::string(text) : "no more is explained"));
  }

  void on_boundary(const StepBoundary& boundary) override {
    boundaries.push_back(boundary);
    if (found_at == 0) found_at = fed_at;
  }

  std::uint32_t index;
  std::vector<std::string>& lines;
  std::uint32_t most_explained, explained = 0;
  StepDetector detector;
  HeldRecords held;                     ///< in the order of launches
  std::deque<StepBoundary> boundaries;  ///< reported, in order; the first two enclose the next instance
  std::uint64_t given_out = 0;          ///< launches before this one are in the Ledger
  std::uint64_t judged = 0;             ///< the kinds of boundaries before this launch are those of their products
  std::optional<CorrelationId> last_fed;
  TimeNs fed_at = 0;    ///< begin of the launch that the detector looks at
  TimeNs found_at = 0;  ///< when the detector reported its first boundary since it knew nothing; 0: it knows nothing
  bool stands = false;  ///< its reports may be used
  bool said_not_sure = false;
  bool last_positions = false;   ///< see PassContext
  std::uint32_t said_found = 0;  ///< bits: StepKind
  std::uint32_t said = 0;        ///< lines about them
  std::uint32_t unlike = 0;      ///< steps in a row that are not as was said
  StepFindings said_step;        ///< in the last of them that was about steps
  TimeNs last_close = std::numeric_limits<TimeNs>::min();
  DurationNs last_step = 0;
  StepFindings findings;  ///< the last that instances were made under
};

DetectedRegions::DetectedRegions(Ledger& ledger, const RegionRules& rules, KernelNames& names, DetectionOptions options)
    : ledger_(ledger), rules_(rules), names_(names), options_(options) {}

DetectedRegions::~DetectedRegions() = default;

DetectedRegions::Device& DetectedRegions::new_device(std::uint32_t device) {
  if (devices_.size() <= device) devices_.resize(device + 1);
  devices_[device] = std::make_unique<Device>(device, explained_, options_.most_explained);
  ledger_.expect_device(device);
  return *devices_[device];
}

void DetectedRegions::add(const ActivityRecord& record, bool first_of_launch, std::uint32_t thread) {
  // Without a correlation id there is no place for it among the launches.
  if (aside_ || raw(record.device) >= kMostDevices || raw(record.correlation) == 0) {
    ledger_.add(record, InstanceId::kNone, first_of_launch);
    return;
  }
  if (first_begin_ == 0) first_begin_ = record.begin_ns;
  newest_begin_ = std::max(newest_begin_, record.begin_ns);
  device_at(raw(record.device)).held.push_back({record, 0, thread, first_of_launch});
  ++held_;
}

KernelTraits DetectedRegions::traits_of_new(const ActivityRecord& record) {
  if (record.kind != ActivityKind::kKernel) return traits_of(record);
  const std::uint32_t name = raw(record.name);
  if (traits_.size() <= name) traits_.resize(std::max<std::size_t>(name + 1, names_.size()));
  std::optional<KernelTraits>& known = traits_[name];
  if (!known) known = role_of_kernel(demangle(std::string(names_.raw_name(record.name))));
  return *known;
}

// ------------------------------------------------------------------------------------------- records > launches

/// The launch that these records are.
[[gnu::always_inline]] inline Launch DetectedRegions::fold(std::span<const HeldRecord> records) {
  const HeldRecord& first = records.front();
  if (records.size() != 1 || is_of_graph(first.record)) [[unlikely]]
    return fold_several(records);
  return launch_of(first.record, traits_of_record(first.record), first.thread);
}

Launch DetectedRegions::fold_several(std::span<const HeldRecord> records) {
  LaunchFold fold(records.front().thread);
  for (const HeldRecord& held : records) fold.add(held.record, traits_of_record(held.record));
  return fold.launch();
}

/// These records are one launch.
inline void DetectedRegions::feed_launch(Device& device, std::span<HeldRecord> records) {
  const ActivityRecord& first = records.front().record;
  const std::uint64_t launches = device.detector.launches();
  if (device.last_fed && !newer(first.correlation, *device.last_fed)) [[unlikely]] {
    // Later than anybody waits for: it goes where the latest launch goes.
    const std::uint64_t latest = std::max(launches == 0 ? 0 : launches - 1, device.given_out);
    for (HeldRecord& held : records) held.launch = latest;
    return;
  }
  device.last_fed = first.correlation;
  device.fed_at = first.begin_ns;
  for (HeldRecord& held : records) held.launch = launches;
  device.detector.add(fold(records));
}

/// Gives a detector what is complete, in the order of launches.
void DetectedRegions::feed(Device& device, CorrelationId complete) {
  const std::span<HeldRecord> records = device.held.waiting_until(complete);
  for (std::size_t begin = 0, end = 0; begin < records.size(); begin = end) {
    const CorrelationId launch = records[begin].record.correlation;
    for (end = begin + 1; end < records.size() && records[end].record.correlation == launch;) ++end;
    feed_launch(device, records.subspan(begin, end - begin));
  }
  device.held.take(records.size());
}

// ------------------------------------------------------------------------------------------- launches > instances

RegionId DetectedRegions::region_of(StepKind kind) const noexcept {
  const RegionRules::DetectedIds& ids = rules_.detected();
  switch (kind) {
    case StepKind::kStep:
      return ids.step;
    case StepKind::kDecode:
      return ids.decode;
    case StepKind::kPrefillOrMixed:
      return ids.prefill_or_mixed;
    case StepKind::kIteration:
    case StepKind::kNone:
      break;
  }
  return ids.iteration;
}

inline void DetectedRegions::give_out_one(const HeldRecord& held, InstanceId owner) {
  ledger_.add(held.record, owner, held.first_of_launch);
  attributed_ += owner != InstanceId::kNone && held.first_of_launch ? 1 : 0;
}

/// Launches before `before` are `owner`'s.
void DetectedRegions::give_out(Device& device, std::uint64_t before, InstanceId owner) {
  const HeldRecord* at = device.held.begin();
  for (; at != device.held.end() && at->launch < before; ++at) give_out_one(*at, owner);
  held_ -= static_cast<std::size_t>(at - device.held.begin());
  device.held.drop_before(at);
  device.given_out = std::max(device.given_out, before);
}

void DetectedRegions::prepare(InstanceSlot& slot, const Device& device, RegionId region) {
  slot.id = static_cast<InstanceId>(kFirstId + 1 + next_id_++ % (kIds - 1));
  slot.opener = static_cast<ThreadSerial>(kFirstOpener + device.index);
  slot.region = region;
  slot.rule = rules_.rule_of_region(region);
  slot.kind = InstanceKind::kDetected;
}

/// Looks once more at the records of [begin, end): rows that the kernels ran over, which are sequences in decode,
/// tokens else; and, where asked for, the launches that they are, into step_.
Shape DetectedRegions::look_at(const Device& device, std::uint64_t begin, std::uint64_t end, StepKind kind,
                               bool launches) {
  step_.clear();
  if (launches) step_.reserve(end - begin);
  PassRows rows;
  const HeldRecord* const last = device.held.end();
  for (const HeldRecord *at = device.held.from(begin), *first = at; at != last && at->launch < end; first = at) {
    while (++at != last && at->launch == first->launch) {
    }
    const std::span<const HeldRecord> records(first, at);
    for (const HeldRecord& held : records) {
      if (held.record.kind != ActivityKind::kKernel) continue;
      const KernelTraits traits = traits_of_record(held.record);
      if (traits.row_axis != RowAxis::kNone) rows.add(traits, held.record.grid());
    }
    if (launches) step_.push_back(fold(records));
  }
  Shape shape;
  if (const std::optional<Rows> found = rows.rows())
    (kind == StepKind::kDecode ? shape.batch : shape.tokens) = found->rows;
  return shape;
}

/// End of the last activity if a pause follows it: idle time between requests is not part of an iteration.
std::optional<TimeNs> DetectedRegions::pause_before(const Device& device, TimeNs opens, const StepBoundary& end,
                                                    StepKind next) {
  constexpr DurationNs kShortest = kNsPerSecond / 20;
  constexpr DurationNs kOfIteration = 3;
  if (end.kind == StepKind::kStep || next == StepKind::kDecode) return std::nullopt;  // the next token was waited for
  TimeNs last = opens;
  for (const HeldRecord& held : device.held) {
    if (held.launch >= end.launch) break;
    last = std::max(last, held.record.end_ns);
  }
  if (end.at_ns - last <= std::max(kShortest, kOfIteration * (last - opens))) return std::nullopt;
  return last;
}

void DetectedRegions::make_instance(Device& device, const StepBoundary& begin, const StepBoundary& end, StepKind next) {
  const TimeNs opens = std::max(begin.at_ns, device.last_close);
  const TimeNs closes = pause_before(device, opens, end, next).value_or(std::max(end.at_ns, opens));
  const bool is_step = end.kind == StepKind::kStep;
  const bool may_be_cut = is_step && device.findings.rule != BoundaryRule::kAnywhere;
  DetectedWork work;
  work.shape = look_at(device, begin.launch, end.launch, end.kind, may_be_cut);
  if (is_step) work.passes = device.findings.micro_steps;
  const bool cut = may_be_cut && step_.size() == end.launch - begin.launch && phases_.cut(step_) != PhaseRule::kNone;
  std::array<std::int64_t, 3> passes{};  // of each phase
  if (cut)
    for (const PhaseSpan& span : phases_.spans()) ++passes[static_cast<std::size_t>(span.phase)];
  if (cut && passes[1] != 0) work.passes = passes[1];

  InstanceSlot slot;
  prepare(slot, device, region_of(end.kind));
  ledger_.open(slot, opens, &work);
  TimeNs at = opens;
  for (std::size_t i = 0; cut && i < phases_.spans().size(); ++i) {
    const PhaseSpan& span = phases_.spans()[i];
    const RegionRules::DetectedIds& ids = rules_.detected();
    const std::array<RegionId, 3> regions{ids.forward, ids.backward, ids.optimizer};
    DetectedWork part = work;
    part.parts = passes[static_cast<std::size_t>(span.phase)];
    InstanceSlot phase;
    prepare(phase, device, regions[static_cast<std::size_t>(span.phase)]);
    phase.parent = slot.id;
    phase.rule = slot.rule;  // its shape is the step's
    ledger_.open(phase, at, &part);
    give_out(device, begin.launch + span.end, phase.id);
    // The last one ends with its work: the wait for the next step is no phase's.
    const std::size_t after = std::min<std::size_t>(span.end, step_.size() - 1);
    at = std::clamp(step_[after].begin_ns, at, closes);
    ledger_.close(phase, at, device.index);
  }
  give_out(device, end.launch, slot.id);
  ledger_.close(slot, closes, device.index);
  device.last_close = closes;
  device.last_step = closes - opens;
}

/// The kinds of the next two iterations, where their matrix products say more than names.
void DetectedRegions::judge_by_products(Device& device) {
  for (std::size_t i = 1; i < std::min<std::size_t>(device.boundaries.size(), 3); ++i) {
    StepBoundary& end = device.boundaries[i];
    if (end.launch < device.judged || end.kind == StepKind::kNone || end.kind == StepKind::kStep) continue;
    device.judged = end.launch + 1;
    InstanceProducts products;
    PassContext context{end.kind, device.last_positions};
    for (const HeldRecord& held : device.held) {
      if (held.launch >= end.launch) break;
      if (held.launch < device.boundaries[i - 1].launch) continue;
      ledger_.work().note_matmul(held.record, products);
      context.graph = context.graph || held.record.graph != GraphId::kNone;
    }
    const SeenShape seen = ledger_.work().seen_shape(products, Phase::kPrefill);
    end.kind = kind_of_pass(seen, context);
    device.last_positions = device.last_positions || has_last_positions(seen);
  }
}

/// A line for people about the first of each kind, and about steps whose period or passes turn out to be others.
void DetectedRegions::say_found(Device& device, StepKind kind) {
  constexpr std::uint32_t kMostSaid = 8, kHolds = 4;                                   // lines; steps in a row
  if ((kind == StepKind::kStep) != (device.findings.kind == StepKind::kStep)) return;  // they are of what came later
  const std::uint32_t bit = 1u << static_cast<std::uint32_t>(kind);
  StepFindings of_kind = device.findings;
  of_kind.kind = kind;
  const StepFindings& said = device.said_step;
  const auto [less, more] = std::minmax(of_kind.period_launches, said.period_launches);
  const bool first = (device.said_found & bit) == 0;
  if (kind == StepKind::kStep && !first)
    device.unlike = of_kind.micro_steps != said.micro_steps || more - less > more / 4 ? device.unlike + 1 : 0;
  if (of_kind.period_launches == 0 || device.said == kMostSaid || !(first || device.unlike == kHolds)) return;
  device.said_found |= bit;
  ++device.said;
  if (kind == StepKind::kStep) device.said_step = of_kind;
  notices_.push_back((first ? "no range names a region: " : "no range names a region, and steps are others now: ") +
                     sentence(of_kind) + " on gpu" + std::to_string(device.index));
}

/// Makes instances of what the detector has reported. `all`: none of it will be taken back.
void DetectedRegions::take_steps(Device& device, bool all) {
  const StepFindings& now = device.detector.findings();
  if (device.boundaries.empty()) {
    if (now.confidence == StepConfidence::kNotSure) {
      device.found_at = 0;
      device.stands = false;
    }
    return;
  }
  const bool stood = options_.whole_trace ? held_ > most_held() : newest_begin_ - device.found_at >= kPrintHold;
  device.stands = device.stands || all || stood;
  if (!device.stands) return;
  if (now.confidence != StepConfidence::kNotSure) device.findings = now;
  while (device.boundaries.size() >= 2) {
    judge_by_products(device);
    const StepBoundary begin = device.boundaries[0], end = device.boundaries[1];
    // The next iteration shows what one waited for.
    const bool serves = end.kind != StepKind::kStep && end.kind != StepKind::kNone;
    if (serves && device.boundaries.size() == 2 && !all) return;
    const StepKind next = device.boundaries.size() > 2 ? device.boundaries[2].kind : StepKind::kNone;
    device.boundaries.pop_front();
    if (end.kind == StepKind::kNone || begin.launch < device.given_out) {
      give_out(device, end.launch, InstanceId::kNone);
      continue;
    }
    give_out(device, begin.launch, InstanceId::kNone);
    say_found(device, end.kind);
    make_instance(device, begin, end, next);
  }
}

/// How long a record may wait for its step to be known.
DurationNs DetectedRegions::patience(const Device& device) const noexcept {
  if (options_.whole_trace) return kEver;
  if (device.found_at != 0)
    return std::clamp<DurationNs>(3 * device.last_step, 2 * ledger_.window_ns() + kPrintHold, kMostPatience);
  // The first steps are found a few steps late: with this they are in the account all the same.
  const DurationNs first_hold = std::clamp(ledger_.window_ns(), kLeastFirstHold, kMostFirstHold);
  return now_ - first_begin_ <= first_hold ? kEver : 0;
}

/// Gives records out that have waited for too long, or are too many.
void DetectedRegions::let_go(Device& device) {
  const DurationNs wait = patience(device);
  const std::size_t too_many = held_ > most_held() ? held_ - most_held() : 0;
  const HeldRecord *const first = device.held.begin(), *const last = device.held.end();
  const HeldRecord* at = first;
  const auto goes = [&] {
    return (wait != kEver && at->record.begin_ns < now_ - wait) || static_cast<std::size_t>(at - first) < too_many;
  };
  while (at != last && goes()) {
    const std::uint64_t launch = at->launch;
    while (at != last && at->launch == launch) ++at;
  }
  if (at != first) give_out(device, (at - 1)->launch + 1, InstanceId::kNone);
  if (wait == 0) note_not_sure(device);
}

void DetectedRegions::note_not_sure(Device& device) {
  constexpr std::uint64_t kEnough = 1000;
  if (device.said_not_sure || device.said_found != 0 || device.detector.launches() < kEnough) return;
  device.said_not_sure = true;
  notices_.push_back("no range names a region, and on gpu" + std::to_string(device.index) + " " + sentence({}) +
                     " so far: totals only; one NVTX range around the step, prefill or decode gives its MFU");
}

/// All that has come, complete or not. `last`: no more will come.
void DetectedRegions::feed_all(Device& device, bool last) {
  const std::span<const HeldRecord> waiting = device.held.waiting();
  if (waiting.empty()) return;
  const HeldRecord *newest = waiting.data(), *oldest = newest;
  for (const HeldRecord& held : waiting) {
    if (newer(held.record.correlation, newest->record.correlation)) newest = &held;
    if (newer(oldest->record.correlation, held.record.correlation)) oldest = &held;
  }
  CorrelationId until = newest->record.correlation;
  // Half a graph is another graph to the detector. It waits for the rest, unless it is all that waits.
  if (!last && is_of_graph(newest->record) && oldest->record.correlation != until)
    until = static_cast<CorrelationId>(raw(until) - 1);
  feed(device, until);
}

TimeNs DetectedRegions::settle(CorrelationId complete, TimeNs watermark) {
  if (aside_) return watermark;
  now_ = std::max({now_, newest_begin_, watermark});
  std::size_t waiting = 0;
  for (const auto& device : devices_) {
    if (!device) continue;
    feed(*device, complete);
    waiting += device->held.waiting().size();
  }
  const bool too_many = waiting > kMostHeld / 2;  // one launch keeps all after it waiting
  for (const auto& device : devices_) {
    if (!device) continue;
    if (too_many) feed_all(*device, false);
    take_steps(*device, false);
    let_go(*device);
    watermark = std::min(watermark, device->held.earliest_begin());
  }
  return watermark;
}

/// An iteration that nothing follows ends with its work.
void DetectedRegions::end_with_work(Device& device) {
  if (device.boundaries.empty() || !device.boundaries.back().last) return;
  StepBoundary& end = device.boundaries.back();
  for (const HeldRecord& held : device.held)
    if (held.launch < end.launch) end.at_ns = std::max(end.at_ns, held.record.end_ns);
}

void DetectedRegions::finish() {
  if (aside_) return;
  for (const auto& device : devices_) {
    if (!device) continue;
    feed_all(*device, true);
    device->detector.finish();
    end_with_work(*device);
    take_steps(*device, true);
    give_out(*device, std::numeric_limits<std::uint64_t>::max(), InstanceId::kNone);
    note_not_sure(*device);
  }
}

void DetectedRegions::stand_aside() {
  if (aside_) return;
  for (const auto& device : devices_) {
    if (!device) continue;
    if (device->stands) take_steps(*device, false);
    give_out(*device, std::numeric_limits<std::uint64_t>::max(), InstanceId::kNone);
    for (const HeldRecord& held : device->held.waiting()) give_out_one(held, InstanceId::kNone);
    if (device->said_found != 0)
      notices_.push_back("ranges name regions now: the detector on gpu" + std::to_string(device->index) + " is off");
  }
  held_ = 0;
  devices_.clear();
  traits_ = {};
  aside_ = true;
}

// ------------------------------------------------------------------------------------------------ the log

void DetectedRegions::describe(WindowSummary& window) const {
  if (aside_) return;
  for (RegionSummary& region : window.regions) {
    const Device* of = nullptr;
    for (const auto& device : devices_)
      if (device && (!region.device || *region.device == device->index) && (of == nullptr || !of->stands))
        of = device.get();
    if (of == nullptr) continue;
    const bool total = region.region == "total";
    if (!total) region.named_by = NamedBy::kDetector;
    const StepFindings& f = of->stands ? of->findings : StepFindings{};
    // Of an iteration the region says what it is.
    std::string kind(name(f.kind));
    for (const StepKind of_region : {StepKind::kDecode, StepKind::kPrefillOrMixed, StepKind::kIteration})
      if (f.kind != StepKind::kNone && region.region == name(of_region)) kind = region.region;
    region.detected = Detected{std::move(kind), f.period_launches, std::string(name(f.confidence)), f.micro_steps};
    // Times only: instances that may be cut in the wrong place have no percentiles.
    if (!total && f.confidence <= StepConfidence::kLow) region.forget_single_instances();
  }
}

std::vector<std::string> DetectedRegions::take_notices() { return std::exchange(notices_, {}); }
std::vector<std::string> DetectedRegions::take_explained() { return std::exchange(explained_, {}); }

std::size_t DetectedRegions::held_bytes() const noexcept {
  std::size_t bytes = step_.capacity() * sizeof(Launch);
  for (const auto& device : devices_)
    if (device) bytes += device->held.held_bytes() + device->detector.held_bytes();
  return bytes;
}

}  // namespace mfu

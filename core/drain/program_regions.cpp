#include "core/drain/program_regions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/attribution/correlation_map.h"

namespace mfu {
namespace {

constexpr std::uint32_t kFirstId = (1u << 29) + (1u << 28);  ///< after those of InstanceTable and of DetectedRegions
constexpr std::uint32_t kIds = (1u << 28) - 1;
constexpr auto kOpener = static_cast<ThreadSerial>(0xFFFE'0000u);  ///< no thread has it
constexpr DurationNs kMostPatience = 120 * kNsPerSecond;

bool is_after(CorrelationId launch, CorrelationId other) noexcept { return raw(other) == 0 || newer(launch, other); }

/// Two models are the same to the account.
bool alike(const FlopsModel& a, const FlopsModel& b) {
  const Shape shape{1, 128, {}, {}, {}, {}, {}, {}, {}};
  const Work of_a = a.work(Phase::kForward, shape), of_b = b.work(Phase::kForward, shape);
  return !of_a.flop_known || !of_b.flop_known || std::abs(of_a.flop - of_b.flop) <= 0.01 * of_a.flop;
}

/// A forward pass of this shape had about the FLOP that the model has.
bool alike(const FlopsModel& model, const ShapeWords& shape, double forward) {
  constexpr double kSmallParts = 0.1;  // parts of a config that are no matrix of a module
  const Work work = model.work(Phase::kForward, shape.to_shape());
  return !work.flop_known || std::abs(work.flop - forward) <= kSmallParts * work.flop;
}

}  // namespace

ProgramRegions::ProgramRegions(Ledger& ledger, const RegionRules& rules, const FlopsModel* given,
                               DetectedRegions* detected)
    : ledger_(ledger), rules_(rules), detected_(detected) {
  if (given == nullptr) return;
  FlopsOptions of_one_pass = given->options();
  of_one_pass.grad_accum = 1;  // each pass is reported
  given_ = FlopsModel::make(given->spec(), std::move(of_one_pass));
}

void ProgramRegions::add_fact(const ProgramFact& fact) {
  if (stopped()) return;
  if (fact.kind == FactKind::kPassWork) {
    const auto value = [&fact](std::size_t key) {
      return fact.shape.has(key) ? static_cast<double>(fact.shape.value[key]) : -1.0;
    };
    counted_.insert_or_assign(fact.model, PassFlop{value(ShapeWords::kBatch), value(ShapeWords::kSeqLen),
                                                   (fact.mode & ProgramFact::kNoAttention) != 0});
    if (fact.model < kFirstOnce || counted_.size() <= kMostCounted) return;
    const auto oldest = counted_.upper_bound(fact.model);  // the numbers begin again one day
    counted_.erase(oldest != counted_.end() ? oldest : counted_.lower_bound(kFirstOnce));
    return;
  }
  if (stopped_)
    in_ranges_.add(with_model(fact));
  else
    ranges_.add_fact(fact);
}

/// Those whose ranges are known.
void ProgramRegions::take_facts(bool all) {
  while (const std::optional<ProgramFact> fact = ranges_.take_fact(all)) {
    const ProgramFact known = with_model(*fact);
    if (!given_) in_ranges_.add(known);
    if (stopped_) continue;
    if (fact->kind == FactKind::kLayer) {
      if (layers_.size() < kMostHeld) layers_.push_back(*fact);
      continue;
    }
    steps_.add(known);
    if (!steps_.confused()) continue;
    notices_.emplace_back("the program's threads run passes at the same time: the interpreter is not asked any more");
    stop();
  }
}

/// Its model is the one that counts its FLOP.
ProgramFact ProgramRegions::with_model(ProgramFact fact) const {
  const auto model = models_.find(fact.model < kConfig ? fact.model : fact.model / kConfig);
  if (fact.model >= kConfig) fact.model = model != models_.end() ? model->first : fact.model % kConfig;
  // An encoder fills no cache, though its arguments may name one.
  if (model != models_.end() && model->second.spec().is_encoder)
    fact.mode &= static_cast<std::uint8_t>(~ProgramFact::kCache);
  return fact;
}

void ProgramRegions::add_model(std::uint32_t number, FlopsModel model) {
  models_.insert_or_assign(number, std::move(model));
}

void ProgramRegions::add(const ActivityRecord& record, bool first_of_launch, std::uint32_t thread, InstanceId owner) {
  if (stopped_ || !expects_ || raw(record.correlation) == 0) return give_out_one({record, 0, thread, first_of_launch});
  ledger_.expect_device(raw(record.device));
  held_.push_back({record, raw(owner), thread, first_of_launch});
}

bool ProgramRegions::open_range(const InstanceFeed::Event& event) {
  const Phase phase = rules_.regions()[raw(event.slot->region)].phase;
  if (phase == Phase::kTrain || phase == Phase::kPrefill || phase == Phase::kDecode || phase == Phase::kMixed)
    leave_to_ranges();
  if (stopped_ || !expects_) return false;
  ranges_.add(event, std::nullopt);
  return true;
}

bool ProgramRegions::close_range(const InstanceFeed::Event& event, std::optional<std::uint32_t> home_device) {
  if (!ranges_.has(event.slot->id)) return false;
  ranges_.add(event, home_device);
  return true;
}

/// It is inside of what is open.
void ProgramRegions::give_out_range() {
  const HeldRanges::Event event = ranges_.take();
  const TimeNs at = std::max(event.at, ledger_.now());
  if (!event.opens()) return ledger_.close(*event.slot, at, event.home_device);
  if (detected_ != nullptr) detected_->stand_aside();
  if (!open_.empty() && event.is_over) {
    const Instance* parent = ledger_.find(event.slot->parent);
    if (parent == nullptr || parent->root->id != open_.front().id) event.slot->parent = open_.back().id;
  }
  ledger_.open(*event.slot, at);
}

void ProgramRegions::give_out_one(const HeldRecord& held) {
  if (held.launch != 0) return ledger_.add(held.record, static_cast<InstanceId>(held.launch), held.first_of_launch);
  const InstanceId owner = open_.empty() ? InstanceId::kNone : open_.back().id;
  if (owner == InstanceId::kNone && !made_ && detected_ != nullptr)
    return detected_->add(held.record, held.first_of_launch, held.thread);
  if (owner != InstanceId::kNone) home_ = raw(held.record.device);
  ledger_.add(held.record, owner, held.first_of_launch);
  attributed_ += owner != InstanceId::kNone && held.first_of_launch ? 1 : 0;
}

/// As far as the ranges that own them are there. \return all were given out
bool ProgramRegions::give_out_before(const HeldRecord* end) {
  const HeldRecord* const until = std::find_if(held_.begin(), end, [this](const HeldRecord& held) {
    return held.launch != 0 && ranges_.holds(static_cast<InstanceId>(held.launch));
  });
  std::for_each(held_.begin(), until, [this](const HeldRecord& held) { give_out_one(held); });
  const bool all = until == end;
  held_.drop_before(until);
  return all;
}

/// Launches up to and with `until` belong to what is open, and to the layers that begin among them before `end`.
void ProgramRegions::give_out(CorrelationId until, TimeNs end) {
  for (; !layers_.empty() && layers_.front().at <= end && !is_after(layers_.front().launch, until);
       layers_.pop_front()) {
    give_out_launches(layers_.front().launch);
    change_layer(layers_.front());
  }
  give_out_launches(until);
}

void ProgramRegions::give_out_launches(CorrelationId until) {
  if (raw(until) == 0) return;
  const bool all = give_out_before(std::find_if(
      held_.begin(), held_.end(), [until](const HeldRecord& held) { return newer(held.record.correlation, until); }));
  if (all && is_after(until, given_out_)) given_out_ = until;
}

// --- marks ----------------------------------------------------------------------------------------------------------

RegionId ProgramRegions::region_of(ProgramRegion region) const noexcept {
  const RegionRules::DetectedIds& ids = rules_.detected();
  const RegionId by_region[] = {ids.step, ids.forward, ids.backward, ids.optimizer,
                                ids.eval, ids.prefill, ids.decode,   ids.mixed};
  return by_region[static_cast<std::size_t>(region)];
}

/// FLOP of a pass: by the user's config for the model that is trained and all that are like it, else by the model's own
/// config, else as its products were counted.
DetectedWork ProgramRegions::work_of(const ProgramMark& mark) {
  DetectedWork work;
  work.by_interpreter = true;
  const bool trains = mark.region == ProgramRegion::kStep || mark.region == ProgramRegion::kBackward;
  if (trains && mark.kind == ProgramMark::Kind::kWork) trained_.insert(mark.model);
  if (const auto found = models_.find(mark.model); found != models_.end()) work.model = &found->second;
  const auto counted = counted_.find(mark.model);
  const bool is_known = counted != counted_.end() && counted->second.forward >= 0;
  if (is_known)
    work.flop = (mark.region == ProgramRegion::kBackward ? 0 : counted->second.forward) +
                (trains ? counted->second.backward : 0);
  work.no_attention = is_known && counted->second.no_attention;
  if (!given_) return work;
  const bool like_it = work.model != nullptr ? alike(*given_, *work.model)
                                             : !is_known || alike(*given_, mark.shape, counted->second.forward);
  if (!like_it && !trains && !trained_.empty() && !trained_.contains(mark.model)) return work;
  if (!like_it && !std::exchange(contradicted_, true))
    notices_.emplace_back(
        "the model that runs has other FLOP than that of the config that was given: the given one counts");
  work.model = &*given_;
  work.flop.reset();
  work.no_attention = false;
  return work;
}

/// The FLOP of a pass are known when it has run for the first time.
bool ProgramRegions::is_counted(const ProgramMark& mark) const {
  return mark.model < kFirstCounted || counted_.contains(mark.model) ||
         now_ - mark.at > 2 * ledger_.window_ns() + kNsPerSecond;
}

void ProgramRegions::prepare(InstanceSlot& slot, RegionId region, const ProgramMark& mark) {
  slot.id = static_cast<InstanceId>(kFirstId + next_id_++ % kIds);
  slot.opener = ranges_.opener() != ThreadSerial::kNone ? ranges_.opener() : kOpener;
  slot.region = region;
  slot.rule = rules_.rule_of_region(region);
  slot.shape = mark.shape;
}

void ProgramRegions::open(const ProgramMark& mark) {
  if (!std::exchange(made_, true) && detected_ != nullptr) detected_->stand_aside();
  passing_ = false;
  const InstanceId around = open_.empty() ? InstanceId::kNone : open_.back().id;
  InstanceSlot& made = open_.emplace_back();
  prepare(made, region_of(mark.region), mark);
  made.parent = around;
  if (mark.region == ProgramRegion::kStep || mark.region == ProgramRegion::kUpdate) made.shape = {};
  if (mark.region == ProgramRegion::kStep) last_step_.begin = mark.at;
  if (mark.model >= kFirstCounted && !counted_.contains(mark.model)) uncounted_ = mark;
  open(made, mark);
}

void ProgramRegions::open(const InstanceSlot& slot, const ProgramMark& mark) {
  const DetectedWork work = work_of(mark);
  ledger_.open(slot, std::max(mark.at, ledger_.now()), &work);
}

void ProgramRegions::close_layer(TimeNs at) {
  if (!in_layer_) return;
  ledger_.close(open_.back(), std::max(at, ledger_.now()), home_);
  open_.pop_back();
  in_layer_ = false;
}

/// A layer's work goes on until the next one begins, forward or backward, or its pass ends.
void ProgramRegions::change_layer(const ProgramFact& fact) {
  close_layer(fact.at);
  if (open_.empty()) return;
  const InstanceSlot& pass = open_.back();
  const bool backward = (fact.mode & ProgramFact::kBackward) != 0;
  const RegionId region = rules_.layer_in(pass.region, fact.model);
  if (region == RegionId::kNone || backward != (pass.region == rules_.detected().backward)) return;
  ProgramMark mark;
  mark.at = fact.at;
  InstanceSlot& made = open_.emplace_back();
  prepare(made, region, mark);
  made.parent = open_[open_.size() - 2].id;
  in_layer_ = true;
  DetectedWork work;
  work.by_interpreter = true;
  ledger_.open(made, std::max(mark.at, ledger_.now()), &work);
}

void ProgramRegions::close(const ProgramMark& mark) {
  if (open_.empty()) return;
  if (mark.model != 0) uncounted_ = mark;
  if (uncounted_) {
    uncounted_->at = mark.at;
    add_work(*std::exchange(uncounted_, {}), open_.back().id);
  }
  if (mark.region == ProgramRegion::kStep) last_step_.length = mark.at - last_step_.begin;
  ledger_.close(open_.back(), std::max(mark.at, ledger_.now()), home_);
  open_.pop_back();
}

/// A pass that `whole` consists of.
void ProgramRegions::add_work(const ProgramMark& mark, InstanceId whole) {
  if (mark.shape.given == 0 && mark.model < kFirstCounted) return;
  InstanceSlot slot;
  prepare(slot, region_of(mark.region), mark);
  slot.parent = whole;
  slot.kind = InstanceKind::kNested;
  open(slot, mark);
  ledger_.close(slot, std::max(mark.at, ledger_.now()), home_);
}

/// The range that it begins in is no longer than the step.
bool ProgramRegions::fits_ranges(const ProgramMark& begin) const {
  if (begin.range == InstanceId::kNone) return true;
  const auto is_in_it = [&](const ProgramMark& mark) {
    return mark.kind == ProgramMark::Kind::kOpen && ranges_.hold_around(begin.range, mark.range);
  };
  return ranges_.hold_around(begin.range, begin.range) && std::none_of(marks_.begin(), marks_.end(), is_in_it);
}

void ProgramRegions::apply(const ProgramMark& mark) {
  const bool opens = mark.kind == ProgramMark::Kind::kOpen;
  if (skipped_ != 0 || (opens && open_.empty() && raw(given_out_) != 0 && newer(given_out_, mark.launch))) {
    // Its first launches are in the account already.
    if (opens) ++skipped_;
    if (mark.kind == ProgramMark::Kind::kClose) --skipped_;
    return;
  }
  if (opens && !fits_ranges(mark)) return leave_to_ranges();
  give_out(mark.launch, mark.at);
  close_layer(mark.at);
  if (opens)
    open(mark);
  else if (mark.kind == ProgramMark::Kind::kClose)
    close(mark);
  else if (!open_.empty())
    add_work(mark, (mark.region == ProgramRegion::kBackward ? open_.back() : open_.front()).id);
}

/// And ranges before `until`. A region begins before a range that begins with it, and ends behind one that ends with
/// it.
void ProgramRegions::take_marks(CorrelationId complete, TimeNs until, bool all) {
  for (const ProgramMark& mark : steps_.take()) marks_.push_back(mark);
  while (!stopped_) {
    const ProgramMark* next = marks_.empty() ? nullptr : &marks_.front();
    const TimeNs before = next == nullptr ? until : next->at + (next->kind == ProgramMark::Kind::kOpen ? 0 : 1);
    if (ranges_.next(std::min(until, before), all) != nullptr) {
      give_out_range();
      continue;
    }
    const bool ready =
        next != nullptr && (raw(next->launch) == 0 || !newer(next->launch, complete)) && is_counted(*next);
    if (next == nullptr || !(ready || all)) return;
    const ProgramMark mark = *next;
    marks_.pop_front();
    apply(mark);
  }
}

// --- passes in the program's own ranges ------------------------------------------------------------------------------

/// Those whose ranges are in the account.
void ProgramRegions::add_passes_to_ranges() {
  for (const ProgramMark& pass : in_ranges_.take())
    ranges_.holds(pass.range) ? in_ranges_.put_back(pass) : add_to_ranges(pass);
}

/// A pass is a part of each range around it that counts FLOP. Such a range may name what the interpreter cannot see.
void ProgramRegions::add_to_ranges(const ProgramMark& pass) {
  for (const Instance *i = ledger_.find(pass.range), *around = nullptr; i != nullptr; i = around) {
    if (i->detected().by_interpreter) return;  // it has the FLOP of its passes
    around = i->parent;
    if (i->phase == Phase::kNone) continue;
    ProgramMark mark = pass;
    for (const std::size_t key : {ShapeWords::kBatch, ShapeWords::kSeqLen, ShapeWords::kContext})
      if (i->own_shape.has(key)) mark.shape.set(key, i->own_shape.value[key]);
    add_work(mark, i->id);
  }
}

// --- how far the account may go -------------------------------------------------------------------------------------

/// Undecided facts have waited for too long.
bool ProgramRegions::is_late() const noexcept {
  const ProgramFact* oldest = steps_.undecided();
  if (oldest == nullptr) return false;
  return now_ - oldest->at > patience() || holds_many();
}

bool ProgramRegions::holds_many() const noexcept {
  return static_cast<std::size_t>(held_.end() - held_.begin()) > kMostHeld;
}

DurationNs ProgramRegions::patience() const noexcept {
  return std::clamp<DurationNs>(3 * last_step_.length, 2 * ledger_.window_ns() + kNsPerSecond, kMostPatience);
}

TimeNs ProgramRegions::settle(CorrelationId complete, TimeNs watermark) {
  const TimeNs until = stopped_ ? watermark : settle_steps(complete, watermark);
  add_passes_to_ranges();
  return until;
}

TimeNs ProgramRegions::settle_steps(CorrelationId complete, TimeNs watermark) {
  now_ = std::max(now_, watermark);
  held_.take(held_.waiting_until(complete).size());
  take_facts(false);
  const bool for_its_end = ranges_.size() != 0 && ranges_.next(std::numeric_limits<TimeNs>::max()) == nullptr;
  const bool many = ranges_.size() > HeldRanges::kMost || (for_its_end && holds_many());
  if (many || (for_its_end && ranges_.waits_from() < now_ - patience()))
    many || ranges_.first_fact() != nullptr ? leave_to_ranges() : give_out_range();
  if (stopped_) return watermark;
  if (!passing_ && is_late()) {
    if (steps_.starts())
      passing_ = true;
    else
      steps_.flush();
  }
  const ProgramFact* oldest = passing_ ? nullptr : steps_.undecided();
  if (oldest == nullptr) oldest = ranges_.first_fact();
  take_marks(complete, oldest == nullptr ? watermark + 1 : std::min(watermark + 1, oldest->at), false);
  if (stopped_) return watermark;
  if (marks_.empty() && (oldest == nullptr || !newer(oldest->launch, complete)))
    oldest == nullptr ? give_out(complete) : give_out(oldest->launch, oldest->at);
  else if (marks_.empty())
    give_out(complete);
  TimeNs until = std::min(watermark, held_.earliest_begin());
  if (!layers_.empty()) until = std::min(until, layers_.front().at);
  if (!marks_.empty()) until = std::min(until, marks_.front().at);
  if (oldest != nullptr) until = std::min(until, oldest->at);
  return std::min(until, ranges_.waits_from());
}

void ProgramRegions::finish() {
  if (!stopped_) {
    take_facts(true);
    steps_.flush();
    held_.take_all();
    take_marks({}, std::numeric_limits<TimeNs>::max(), true);
    (void)give_out_before(held_.end());
  }
  add_passes_to_ranges();
}

void ProgramRegions::stop() {
  by_ranges_ = false;
  in_ranges_ = {};
  stop_naming();
}

void ProgramRegions::leave_to_ranges() {
  if (!stopped_) by_ranges_ = !given_;
  stop_naming();
  if (detected_ != nullptr) detected_->stand_aside();
}

void ProgramRegions::stop_naming() {
  if (std::exchange(stopped_, true)) return;
  take_facts(true);
  marks_.clear();
  layers_.clear();
  ProgramMark end;
  end.at = std::max(std::min(now_, ranges_.waits_from()), ledger_.now());
  while (!open_.empty()) close(end);
  while (ranges_.next(std::numeric_limits<TimeNs>::max(), true) != nullptr) give_out_range();
  held_.take_all();
  if (made_ && detected_ != nullptr) detected_->resume();
  made_ = false;
  (void)give_out_before(held_.end());
}

}  // namespace mfu

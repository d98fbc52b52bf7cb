#include "core/drain/held_ranges.h"

#include <algorithm>

namespace mfu {

void HeldRanges::add(const InstanceFeed::Event& event, std::optional<std::uint32_t> home_device) {
  const InstanceSlot& slot = *event.slot;
  if (event.opens()) {
    // Attribution also nests a range in one that another thread has open.
    const auto parent = ranges_.find(slot.parent);
    const bool inside = parent != ranges_.end() && parent->second.opener == slot.opener;
    ranges_[slot.id] = {inside ? slot.parent : InstanceId::kNone, slot.opener, event.at, kOpen};
  } else {
    ranges_[slot.id].close = event.at;
  }
  events_.push_back({event, home_device});
}

bool HeldRanges::holds(InstanceId id) const {
  const auto found = ranges_.find(id);
  return found != ranges_.end() && !found->second.given;
}

const HeldRanges::Range* HeldRanges::outermost(InstanceId id) const {
  const Range* outermost = nullptr;
  for (auto found = ranges_.find(id); found != ranges_.end(); found = ranges_.find(outermost->parent))
    outermost = &found->second;
  return outermost;
}

bool HeldRanges::hold_around(InstanceId a, InstanceId b) const {
  const Range* range = outermost(a);
  return range != nullptr && !range->given && range->close != kOpen && range == outermost(b);
}

const HeldRanges::Event* HeldRanges::next(TimeNs until, bool all) const {
  if (events_.empty() || events_.front().at >= until) return nullptr;
  const Event& event = events_.front();
  if (all || !event.opens()) return &event;
  const Range& around = *outermost(event.slot->id);
  return around.given || around.close != kOpen ? &event : nullptr;
}

HeldRanges::Event HeldRanges::take() {
  Event event = events_.front();
  events_.pop_front();
  Range& range = ranges_[event.slot->id];
  event.is_over = range.close != kOpen;
  range.given = true;
  if (!event.opens() && ranges_.erase(event.slot->id) != 0) closed_.push_back(event.slot);
  return event;
}

std::optional<ProgramFact> HeldRanges::take_fact(bool all) {
  if (facts_.empty()) return std::nullopt;
  ProgramFact fact = facts_.front();
  const Range* const around = outermost(fact.range);
  if (around != nullptr && around->close == kOpen && !around->given && !all) return std::nullopt;
  facts_.pop_front();
  if (fact.range != InstanceId::kNone) fact.mode |= ProgramFact::kReplayed;
  if (around != nullptr) opener_ = around->opener;
  if (around != nullptr && !around->given) {
    const auto is_in_it = [&](const ProgramFact& other) { return outermost(other.range) == around; };
    const bool begins = fact.kind == FactKind::kPassBegin || fact.kind == FactKind::kBackwardBegin ||
                        fact.kind == FactKind::kUpdateBegin || fact.kind == FactKind::kFetch;
    if (begins) fact.at = around->open;
    if (fact.kind == FactKind::kUpdateEnd && around->close != kOpen && std::ranges::none_of(facts_, is_in_it))
      fact.at = around->close;
  }
  fact.at = newest_fact_ = std::max(newest_fact_, fact.at);
  return fact;
}

TimeNs HeldRanges::waits_from() const noexcept {
  const TimeNs event = events_.empty() ? kOpen : events_.front().at;
  return facts_.empty() ? event : std::min(event, facts_.front().at);
}

}  // namespace mfu

#include "core/program/range_passes.h"

#include <algorithm>
#include <iterator>

namespace mfu {

void RangePasses::find(const ProgramFact& pass, ProgramRegion region, InstanceId range) {
  found_.push_back({ProgramMark::Kind::kWork, region, pass.model, pass.launch, pass.at, pass.shape, range});
}

void RangePasses::begin(const ProgramFact& fact) {
  // In evaluation mode, gradients are computed right behind a pass or not at all.
  if (fact.kind == FactKind::kPassBegin)
    std::erase_if(untrained_, [&fact](const ProgramFact& pass) {
      const bool again = pass.kind == FactKind::kNotReached && pass.subject == fact.subject;
      return again || (pass.mode & ProgramFact::kTraining) == 0;
    });
  if (begun_.size() < kMost) begun_.push_back(fact);
}

void RangePasses::add(const ProgramFact& fact) {
  switch (fact.kind) {
    case FactKind::kPassBegin:
    case FactKind::kBackwardBegin:
      return begin(fact);
    case FactKind::kNotReached:
      not_reached_.insert(fact.subject);
      return;
    case FactKind::kDropped:
      for (auto pass = untrained_.begin(); pass != untrained_.end(); ++pass)
        if (pass->is_like(fact)) return (void)untrained_.erase(pass);
      return;
    case FactKind::kMoreWork:  // of a backward pass, known work is reported for the step, too
      if (fact.model != 0 && (fact.mode & ProgramFact::kBackward) != 0) return;
      return find(fact, ProgramRegion::kForward, fact.range);
    case FactKind::kUpdateEnd:
      return untrained_.clear();
    case FactKind::kPassEnd:
    case FactKind::kBackwardEnd:
      break;
    default:
      return;
  }
  const auto begun = std::ranges::find(begun_.rbegin(), begun_.rend(), fact.thread, &ProgramFact::thread);
  if (begun == begun_.rend()) return;
  if (fact.model != 0) begun->model = fact.model;
  end(*begun);
  begun_.erase(std::next(begun).base());
}

/// \param begin of a pass, or of a backward pass: it computed the gradients of all that it reached.
void RangePasses::end(const ProgramFact& begin) {
  constexpr std::uint8_t kTrained = ProgramFact::kGradients | ProgramFact::kTrainable;
  if (begin.kind == FactKind::kPassBegin) {
    find(begin, ProgramSteps::kind_of(begin), begin.range);
    if ((begin.mode & kTrained) != kTrained) return;
    if (untrained_.size() == kMost) untrained_.clear();  // nothing computes their gradients
    untrained_.push_back(begin);
    return;
  }
  for (ProgramFact& pass : std::exchange(untrained_, {})) {
    if (not_reached_.contains(pass.subject)) {
      pass.kind = FactKind::kNotReached;
      untrained_.push_back(pass);
    } else {
      find(pass, ProgramRegion::kBackward, begin.range);
    }
  }
  not_reached_.clear();
}

}  // namespace mfu

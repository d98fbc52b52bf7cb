#include "core/program/program_steps.h"

#include <algorithm>

namespace mfu {
bool UpdateCycle::add(std::uint64_t optimizer) {
  expected_.insert(optimizer);
  cycle_.insert(optimizer);
  ++updates_;
  // Others are there, and are not used any more.
  const bool stuck = updates_ > (longest_ == 0 ? ProgramSteps::kMostUnusedUpdates : 4 * longest_ + 4);
  if (stuck) expected_ = cycle_;
  if (!std::includes(cycle_.begin(), cycle_.end(), expected_.begin(), expected_.end())) return false;
  if (!stuck) longest_ = std::max(longest_, updates_);
  updates_ = 0;
  cycle_.clear();
  return true;
}

// --- facts in -------------------------------------------------------------------------------------------------------

void ProgramSteps::add(const ProgramFact& fact) {
  if (fact.kind == FactKind::kOptimizerMade || fact.kind == FactKind::kOptimizerGone) {
    note_optimizer(fact);
  } else if (is_of_lead(fact)) {
    waiting_.push_back(fact);
    passes_seen_ = passes_seen_ || fact.kind == FactKind::kPassBegin || fact.kind == FactKind::kBackwardBegin;
    if (fact.kind == FactKind::kUpdateEnd) note_optimizer(fact);
    if (fact.kind == FactKind::kPassEnd && (fact.mode & ProgramFact::kCache) != 0) caches_.note(fact, waiting_);
  }
  decide(false);
  if (waiting_.size() > kMostWaiting) flush();
}

/// The first thread that begins something leads until that has ended. Work of other threads meanwhile is a part of it.
bool ProgramSteps::is_of_lead(const ProgramFact& fact) {
  if (lead_.depth == 0) {
    if (ends(fact.kind)) return false;  // of what began before anybody looked
    if (!begins(fact.kind)) return true;
    lead_.thread = fact.thread;
  }
  if (fact.thread != lead_.thread) {
    // An optimizer may make its step as soon as the gradients are there, on the thread that computes them.
    if (lead_.in_backward && (fact.kind == FactKind::kUpdateBegin || fact.kind == FactKind::kUpdateEnd)) return true;
    if (begins(fact.kind)) guests_.insert(fact.thread);
    if (ends(fact.kind)) guests_.erase(fact.thread);
    return false;
  }
  if (fact.kind == FactKind::kBackwardBegin || fact.kind == FactKind::kBackwardEnd)
    lead_.in_backward = fact.kind == FactKind::kBackwardBegin;
  if (begins(fact.kind)) ++lead_.depth;
  if (ends(fact.kind) && --lead_.depth == 0 && !guests_.empty()) {
    confused_ = true;
    guests_.clear();
  }
  return true;
}

void ProgramSteps::note_optimizer(const ProgramFact& fact) {
  const std::uint64_t optimizer = fact.subject;
  if (fact.kind == FactKind::kOptimizerGone) {
    if (!ready_ && stepped_.contains(optimizer) && has_one_guess()) get_ready(), decide(false);
    made_.erase(optimizer);
    stepped_.erase(optimizer);
    cycle_.forget(optimizer);
    learner_.forget(optimizer);
  } else if (fact.kind == FactKind::kOptimizerMade) {
    made_.insert(optimizer);
  } else {
    made_.erase(optimizer);
    repeated_ = !stepped_.insert(optimizer).second || repeated_;
    if (++updates_ >= kMostUnusedUpdates) made_.clear();
  }
  if (!ready_ && repeated_ && made_.empty()) get_ready();
}

void ProgramSteps::get_ready() {
  ready_ = true;
  for (const std::uint64_t known : stepped_.empty() ? made_ : stepped_) {
    cycle_.expect(known);
    learner_.expect(known);
  }
}

/// Whether the pass at `at` is trained. One in evaluation mode is, if its gradients are computed right behind it.
ProgramSteps::Answer ProgramSteps::trains(std::size_t at, bool all) const {
  const ProgramFact& pass = waiting_[at];
  constexpr std::uint8_t kBoth = ProgramFact::kGradients | ProgramFact::kTrainable;
  if ((pass.mode & kBoth) != kBoth) return Answer::kNo;
  if ((pass.mode & ProgramFact::kTraining) != 0) return Answer::kYes;
  for (std::size_t i = end_of(waiting_, at).value_or(waiting_.size()); i < waiting_.size(); ++i)
    if (begins(waiting_[i].kind)) return waiting_[i].kind == FactKind::kBackwardBegin ? Answer::kYes : Answer::kNo;
  return all ? Answer::kNo : Answer::kUnknown;
}

bool ProgramSteps::is_training() const noexcept {
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const FactKind kind = waiting_[i].kind;
    if (kind == FactKind::kBackwardBegin || kind == FactKind::kUpdateBegin) return true;
    if (kind == FactKind::kPassBegin && trains(i, false) == Answer::kYes) return true;
  }
  return false;
}

/// Looks at all that waits: which passes come before each step.
void ProgramSteps::learn() {
  for (; ready_ && learnt_ < waiting_.size(); ++learnt_) {
    const ProgramFact& fact = waiting_[learnt_];
    const bool pass = fact.kind == FactKind::kPassBegin;
    const Answer trained = pass ? trains(learnt_, false) : Answer::kNo;
    if (trained == Answer::kUnknown) return;
    if (trained == Answer::kYes) trained_.insert(fact.subject);
    if (fact.kind == FactKind::kUpdateEnd && learner_.add(fact.subject)) learner_in_step_ = false;
    if (learner_in_step_) continue;
    if (pass && trained == Answer::kNo) {
      before_.insert(key_of(fact));
    } else if (pass || fact.kind == FactKind::kBackwardBegin || fact.kind == FactKind::kUpdateBegin) {
      learner_in_step_ = true;
      for (const Key& key : before_last_)
        (before_.contains(key) || belonging_.contains(key) ? belonging_ : separate_).insert(key);
      before_last_ = std::exchange(before_, {});
    }
  }
}

ProgramSteps::Answer ProgramSteps::belongs(const ProgramFact& pass) const {
  const Key key = key_of(pass);
  // The model that is trained, in evaluation mode, is evaluated. If it generates, it may be for the step.
  if (trained_.contains(pass.subject) && (pass.mode & (ProgramFact::kTraining | ProgramFact::kCache)) == 0)
    return Answer::kNo;
  if (belonging_.contains(key)) return Answer::kYes;
  return separate_.contains(key) ? Answer::kNo : Answer::kUnknown;
}

// --- marks out ------------------------------------------------------------------------------------------------------

void ProgramSteps::flush() {
  if (!ready_ && (!stepped_.empty() || (has_one_guess() && is_training()))) get_ready();
  decide(true);
}

void ProgramSteps::decide(bool all) {
  learn();
  while (!waiting_.empty()) {
    if (!in_step_ && !decide_between_steps(all)) return;
    if (!in_step_) continue;
    const Answer trained = waiting_.front().kind == FactKind::kPassBegin ? trains(0, all) : Answer::kNo;
    if (trained == Answer::kUnknown) return;
    const ProgramFact fact = waiting_.front();
    drop(1);
    follow(fact, trained);
  }
}

/// \return something was decided
bool ProgramSteps::decide_between_steps(bool all) {
  while (!waiting_.empty() && ends(waiting_.front().kind)) drop(1);  // of what a step ended in
  std::size_t anchor = 0;                                            // the first fact that is of a step for certain
  for (; anchor < waiting_.size(); ++anchor) {
    const FactKind kind = waiting_[anchor].kind;
    if (kind == FactKind::kBackwardBegin || kind == FactKind::kUpdateBegin) break;
    if (kind != FactKind::kPassBegin) continue;
    const Answer trained = trains(anchor, all);
    if (trained == Answer::kUnknown) return false;
    if (trained == Answer::kYes) break;
  }
  if (anchor == waiting_.size()) {
    generates_ = generates_ || all || (made_.empty() && waiting_.size() >= kWithoutTraining);
    return leave_out(ready_ || generates_ || all ? waiting_.size() : 0, all);
  }
  if (!ready_) {
    if (!all) return false;
    drop(waiting_.size());  // it trains, and no optimizer is seen: others may find its steps
    return true;
  }
  std::size_t begin = 0;  // of the step
  for (std::size_t i = 0; i < anchor; ++i) {
    if (waiting_[i].kind != FactKind::kPassBegin) continue;
    const Answer part = belongs(waiting_[i]);
    if (part == Answer::kUnknown && !all) return false;
    if (part != Answer::kYes) begin = end_of(waiting_, i).value_or(i) + 1;
  }
  if (begin != 0) (void)leave_out(begin, true);
  in_step_ = true;
  mark(ProgramMark::Kind::kOpen, ProgramRegion::kStep, waiting_.front());
  return true;
}

/// The first `count` facts are of no step. \return some were taken
/// \param all of any kind; else while that is certain
bool ProgramSteps::leave_out(std::size_t count, bool all) {
  std::size_t left = count;
  while (left > 0) {
    ProgramFact fact = waiting_.front();
    std::size_t taken = 1;
    if (begins(fact.kind)) {
      const std::optional<std::size_t> end = end_of(waiting_, 0);
      if (!end || (!all && caches_.wait_for_more(waiting_, *end))) break;  // it, or what names it, is under way
      // Where nothing was launched, nothing is measured: a pass on the CPU, or one that a compiler traces.
      // A range that it is in names it.
      const bool named = fact.range != InstanceId::kNone;
      if (fact.kind == FactKind::kPassBegin && !named && fact.launch != waiting_[*end].launch) {
        if (!all && ready_ && belongs(fact) != Answer::kNo) break;  // the next step decides
        if (waiting_[*end].model != 0) fact.model = std::exchange(waiting_[*end].model, 0u);
        mark(ProgramMark::Kind::kOpen, region_of(fact, false), fact);
        mark(ProgramMark::Kind::kClose, region_of(fact, false), waiting_[*end]);
      }
      taken = *end + 1;
    } else if (fact.kind == FactKind::kFetch && !all && ready_) {
      const auto next =
          std::find_if(waiting_.begin(), waiting_.end(), [](const ProgramFact& f) { return begins(f.kind); });
      if (next == waiting_.end() || next->kind != FactKind::kPassBegin || belongs(*next) != Answer::kNo) break;
    }
    drop(taken);
    left -= std::min(left, taken);
  }
  return left != count;
}

ProgramRegion ProgramSteps::kind_of(const ProgramFact& pass) noexcept {
  if (pass.shape.has(ShapeWords::kGenBatch)) return ProgramRegion::kMixed;
  if ((pass.mode & ProgramFact::kCache) != 0) {
    const bool one = pass.shape.has(ShapeWords::kSeqLen) ? pass.shape.value[ShapeWords::kSeqLen] == 1
                                                         : !pass.shape.has(ShapeWords::kTokens);
    const bool empty = pass.shape.has(ShapeWords::kContext) && pass.shape.value[ShapeWords::kContext] == 0;
    return one && !empty ? ProgramRegion::kDecode : ProgramRegion::kPrefill;
  }
  return ProgramRegion::kForward;
}

ProgramRegion ProgramSteps::region_of(const ProgramFact& pass, bool in_step) const {
  if (const ProgramRegion kind = kind_of(pass); kind != ProgramRegion::kForward) return kind;
  const bool evaluated = trained_.contains(pass.subject) && (pass.mode & ProgramFact::kTraining) == 0;
  if (in_step) return evaluated ? ProgramRegion::kEval : ProgramRegion::kForward;
  return ready_ ? ProgramRegion::kEval : ProgramRegion::kForward;
}

/// A fact inside a step.
void ProgramSteps::follow(const ProgramFact& fact, Answer trains) {
  if (fact.kind == FactKind::kPassBegin) {
    const bool trained = trains == Answer::kYes;
    open(trained ? ProgramRegion::kForward : region_of(fact, true), fact);
    if (trained) trained_passes_.push_back(fact);
    running_.pass = fact, running_.trained = trained;
  } else if (fact.kind == FactKind::kBackwardBegin) {
    open(ProgramRegion::kBackward, fact);
  } else if (fact.kind == FactKind::kNotReached) {
    not_reached_.insert(fact.subject);
  } else if (fact.kind == FactKind::kMoreWork) {
    mark(ProgramMark::Kind::kWork,
         (fact.mode & ProgramFact::kBackward) != 0 ? ProgramRegion::kBackward : ProgramRegion::kForward, fact);
  } else if (fact.kind == FactKind::kDropped) {
    const auto pass = std::ranges::find_if(trained_passes_, [&](const ProgramFact& f) { return f.is_like(fact); });
    if (pass == trained_passes_.end()) return;
    trained_passes_.erase(pass);
    mark(ProgramMark::Kind::kWork, ProgramRegion::kForward, fact);
  } else if (fact.kind == FactKind::kUpdateBegin) {
    running_.update = fact;
  } else if (ends(fact.kind)) {
    if (fact.kind == FactKind::kBackwardEnd) count_trained(fact, true);
    if (fact.kind == FactKind::kUpdateEnd && running_.update)
      open(ProgramRegion::kUpdate, *std::exchange(running_.update, {}));
    if (fact.kind == FactKind::kPassEnd) end_pass(fact);
    if ((fact.mode & ProgramFact::kReplayed) == 0) close(fact);
    if (running_.update) running_.update->at = fact.at, running_.update->launch = fact.launch;
  }
  if (fact.kind != FactKind::kUpdateEnd || !cycle_.add(fact.subject)) return;
  count_trained(fact, false);
  while (!open_.empty()) close(fact);
  mark(ProgramMark::Kind::kClose, ProgramRegion::kStep, fact);
  in_step_ = had_backward_ = false;
  ++steps_;
  if (passes_seen_) return;
  // In a loop that is compiled whole, and where updates alone are reported, a step begins where the last one ended.
  ProgramFact begin = fact;
  begin.kind = FactKind::kFetch;
  waiting_.push_front(begin);
  ++learnt_;
}

/// Its FLOP are those of the model at its end, if that has one.
void ProgramSteps::end_pass(const ProgramFact& end) {
  ProgramFact& pass = running_.pass;
  if (end.model != 0) pass.model = end.model;
  pass.at = end.at, pass.launch = end.launch;
  if (!running_.trained)
    mark(ProgramMark::Kind::kWork, region_of(pass, true), pass);
  else if (!trained_passes_.empty() && trained_passes_.back().subject == pass.subject)
    trained_passes_.back().model = pass.model;
}

/// Passes whose gradients a backward pass computed; others wait for the next, until their module runs again. At the end
/// of a step, the rest; without any backward pass, gradients are computed in a way that is not reported.
void ProgramSteps::count_trained(const ProgramFact& end, bool backward) {
  had_backward_ = had_backward_ || backward;
  const std::vector<ProgramFact> passes = std::exchange(trained_passes_, {});
  for (ProgramFact pass : passes) {
    const bool again =
        pass.kind == FactKind::kNotReached && std::any_of(passes.begin(), passes.end(), [&](const ProgramFact& other) {
          return other.subject == pass.subject && other.kind != FactKind::kNotReached;
        });
    if (backward && !again && not_reached_.contains(pass.subject)) {
      pass.kind = FactKind::kNotReached;
      trained_passes_.push_back(pass);
      continue;
    }
    const bool trained = backward ? !again : !had_backward_;
    pass.at = end.at, pass.launch = end.launch;
    mark(ProgramMark::Kind::kWork, trained ? ProgramRegion::kStep : ProgramRegion::kForward, pass);
    if (trained && backward && (end.mode & ProgramFact::kReplayed) == 0)
      mark(ProgramMark::Kind::kWork, ProgramRegion::kBackward, pass);
  }
  not_reached_.clear();
}

void ProgramSteps::open(ProgramRegion region, const ProgramFact& fact) {
  if ((fact.mode & ProgramFact::kReplayed) != 0) return;
  open_.push_back(region);
  mark(ProgramMark::Kind::kOpen, region, fact);
}

void ProgramSteps::close(const ProgramFact& fact) {
  if (open_.empty()) return;
  ProgramFact end = fact;
  if (fact.kind == FactKind::kPassEnd) end.shape = running_.pass.shape;
  mark(ProgramMark::Kind::kClose, open_.back(), end);
  open_.pop_back();
}

void ProgramSteps::mark(ProgramMark::Kind kind, ProgramRegion region, const ProgramFact& fact) {
  marks_.push_back({kind, region, fact.model, fact.launch, fact.at, fact.shape, fact.range});
}

void ProgramSteps::drop(std::size_t count) {
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  learnt_ -= std::min(learnt_, count);
}

}  // namespace mfu

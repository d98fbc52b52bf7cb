#include "core/detect/step_phases.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>

#include "core/detect/thresholds.h"

namespace mfu {
namespace {

using namespace thresholds;

constexpr std::uint32_t kNone = 0xFFFF'FFFFu;

/// Equal for the same operation on other shapes.
std::uint32_t key_of(const Launch& launch) noexcept {
  return launch.traits.family != 0 ? 0x4000'0000u | launch.traits.family : launch.name;
}

bool is_one_of(const Launch& launch, std::initializer_list<KernelRole> roles) noexcept {
  return std::find(roles.begin(), roles.end(), launch.traits.role) != roles.end();
}

/// Copies, sets and communication run in every phase.
bool moves_data(const Launch& launch) noexcept {
  using enum KernelRole;
  return is_one_of(launch, {kCopyToDevice, kCopyToHost, kCopyWithin, kMemset, kComm});
}

/// Of a model, not of an update. Optimizers without a name that multiply matrices look like one.
bool is_of_model(const Launch& launch) noexcept {
  using enum KernelRole;
  return is_one_of(launch, {kGemm, kAttention, kAttentionPrefill, kNorm, kSoftmax, kEmbedding, kLoss});
}
bool is_forward_mark(const Launch& launch) noexcept {
  return is_of_model(launch) && launch.traits.role != KernelRole::kGemm;
}

bool has(const Launch& launch, std::uint8_t flags) noexcept { return (launch.traits.flags & flags) != 0; }

}  // namespace

PhaseRule StepPhases::cut(std::span<const Launch> step) {
  step_ = step;
  spans_.clear();
  if (step.empty() || step.size() > kMaxLaunches) return PhaseRule::kNone;
  named_optimizer_ = std::any_of(step.begin(), step.end(), [](const Launch& l) { return has(l, kFlagOptimizer); });
  PhaseRule rule = PhaseRule::kNone;
  if (find_runs())
    rule = cut_by_threads();
  else if (cut_by_names())
    rule = PhaseRule::kNames;
  if (rule != PhaseRule::kNone && !plausible()) rule = PhaseRule::kNone;
  if (rule == PhaseRule::kNone) spans_.clear();
  step_ = {};
  return rule;
}

/// A pass of either direction is a good part of a step: a stray launch of another thread is neither.
bool StepPhases::plausible() const noexcept {
  std::array<std::size_t, 3> launches{};
  for (const PhaseSpan& span : spans_) launches[static_cast<std::size_t>(span.phase)] += span.end - span.begin;
  return launches[static_cast<std::size_t>(StepPhase::kForward)] * kPart >= step_.size() &&
         launches[static_cast<std::size_t>(StepPhase::kBackward)] * kPart >= step_.size();
}

/// Ends the phase that goes on, and everything since the last one, at `end`. False: too many.
bool StepPhases::add(StepPhase phase, std::uint32_t end) {
  const std::uint32_t begin = spans_.empty() ? 0 : spans_.back().end;
  if (end <= begin) return true;
  if (!spans_.empty() && spans_.back().phase == phase) {
    spans_.back().end = end;
    return true;
  }
  if (spans_.size() == kMaxSpans) return false;
  spans_.push_back({phase, begin, end});
  return true;
}

bool StepPhases::updates(std::uint32_t i) const noexcept {
  return has(step_[i], named_optimizer_ ? kFlagOptimizer | kFlagForeach : kFlagForeach);
}

// ---------------------------------------------------------------------------------------------- by threads

/// The stretches that the thread of the backward pass launched, and the others. False: threads do not tell.
bool StepPhases::find_runs() {
  struct Thread {
    std::uint32_t id = 0, kernels = 0, backward = 0, others = 0;  ///< others: losses and optimizers
  };
  std::array<Thread, kMaxThreads> threads{};
  std::size_t count = 0;
  std::uint32_t unknown = 0, backward = 0;
  for (const Launch& launch : step_) {
    if (launch.thread == 0) {
      ++unknown;
      continue;
    }
    std::size_t t = 0;
    while (t < count && threads[t].id != launch.thread) ++t;
    if (t == count) {
      if (count == kMaxThreads) return false;
      threads[count++].id = launch.thread;
    }
    if (!moves_data(launch)) ++threads[t].kernels;
    if (has(launch, kFlagBackward)) ++threads[t].backward, ++backward;
    if (has(launch, kFlagLoss | kFlagOptimizer)) ++threads[t].others;
  }
  if (count < 2 || unknown > step_.size() / kStray) return false;
  const auto of_threads = [&](auto&& better) {
    return std::max_element(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(count),
                            [&](const Thread& a, const Thread& b) { return better(b, a); });
  };
  const auto engine = of_threads([&](const Thread& a, const Thread& b) {
    if (a.backward != b.backward) return a.backward > b.backward;
    if ((a.others == 0) != (b.others == 0)) return a.others == 0;
    return a.kernels > b.kernels;
  });
  const auto caller = of_threads([&](const Thread& a, const Thread& b) {
    if ((&a == &*engine) != (&b == &*engine)) return &b == &*engine;
    return a.kernels > b.kernels;
  });
  // A transposed convolution runs forward under a backward's name; a loss may be computed again in the backward pass.
  if (engine->backward < kMost * backward || engine->others > caller->others) return false;
  if (caller->kernels == 0 || (backward == 0 && caller->others == 0)) return false;

  runs_.clear();
  for (std::uint32_t i = 0; i < step_.size(); ++i) {
    const std::uint32_t thread = step_[i].thread;
    const bool is_engine = thread == engine->id;
    if (!is_engine && thread != caller->id && !runs_.empty()) continue;  // with what runs around it
    if (!runs_.empty() && runs_.back().backward == is_engine) continue;
    if (!runs_.empty()) runs_.back().end = i;
    if (runs_.size() > kMaxSpans) break;
    runs_.push_back({is_engine, i, 0});
  }
  runs_.back().end = static_cast<std::uint32_t>(step_.size());
  return true;
}

PhaseRule StepPhases::cut_by_threads() {
  if (runs_.size() > kMaxSpans) return PhaseRule::kNone;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const bool whole = run.backward ? add(StepPhase::kBackward, run.end) : cut_run(run, i + 1 == runs_.size());
    if (!whole) return PhaseRule::kNone;
  }
  return PhaseRule::kThreads;
}

/// A stretch of the calling thread. False: it is none of what may stand there.
bool StepPhases::cut_run(const Run& run, bool last) {
  std::uint32_t after_update = 0, update = 0, of_model = 0;
  bool named = false;
  for (std::uint32_t i = run.begin; i < run.end; ++i) {
    of_model += is_of_model(step_[i]) ? 1 : 0;
    if (!updates(i)) continue;
    after_update = i + 1;
    ++update;
    named = named || has(step_[i], kFlagOptimizer);
  }
  const bool first = spans_.empty();
  if (first || !last) {
    if (first && begins_with_update(run)) return false;
    const bool updated = first ? named : named || (after_update != 0 && !named_optimizer_ && !like_forward(run));
    if (updated && !add(StepPhase::kOptimizer, after_update)) return false;
    if (updated || first || like_forward(run)) return add(StepPhase::kForward, run.end);
    // A hook or two that run between parts of the backward pass.
    return run.end - run.begin <= std::max<std::size_t>(kFew, step_.size() / kStray) &&
           add(StepPhase::kBackward, run.end);
  }
  if (after_update == 0) {
    // An update that no name gives away; a model's work there would be half of something else.
    return of_model * kStray <= run.end - run.begin && add(StepPhase::kOptimizer, run.end);
  }
  // The launch behind the update's last one begins the next forward pass, if it is like one. Where clipping or loss
  // scaling is all that has a name, the update itself follows; clearing gradients belongs to it in any case.
  const Run rest{false, after_update, run.end};
  bool model = false, clears = true;
  for (std::uint32_t i = rest.begin; i < rest.end; ++i) {
    model = model || is_of_model(step_[i]);
    clears = clears && (step_[i].traits.role == KernelRole::kMemset || has(step_[i], kFlagToHost));
  }
  const bool beginning = !named || (!model && rest.end - rest.begin > std::max(2 * update, kLeastUpdate));
  if (rest.end - rest.begin <= kFew || clears || (beginning && !like_forward(rest))) after_update = run.end;
  return add(StepPhase::kOptimizer, after_update) && add(StepPhase::kForward, run.end);
}

/// The step begins with much that is no model: the rest of an update whose beginning alone has a name. Many launches of
/// one kernel, as where gradients are cleared, count as one; copies and communication not at all.
bool StepPhases::begins_with_update(const Run& run) const noexcept {
  std::uint32_t before = 0, previous = kNone;
  for (std::uint32_t i = run.begin; i < run.end && !is_of_model(step_[i]) && !has(step_[i], kFlagGraph); ++i) {
    if (moves_data(step_[i])) continue;
    const std::uint32_t key = key_of(step_[i]);
    before += key != previous ? 1 : 0;
    previous = key;
  }
  return before > kLeastUpdate && before > kFed * (run.end - run.begin);
}

/// Nearly all of it is in the step's first forward pass as well.
bool StepPhases::like_forward(const Run& run) {
  if (spans_.empty() || spans_.front().phase != StepPhase::kForward) return false;
  const auto sorted_keys = [&](std::uint32_t begin, std::uint32_t end, std::vector<std::uint32_t>& keys) {
    keys.clear();
    for (std::uint32_t i = begin; i < end; ++i) keys.push_back(key_of(step_[i]));
    std::sort(keys.begin(), keys.end());
  };
  sorted_keys(spans_.front().begin, spans_.front().end, forward_keys_);
  sorted_keys(run.begin, run.end, run_keys_);
  common_keys_.clear();
  std::set_intersection(forward_keys_.begin(), forward_keys_.end(), run_keys_.begin(), run_keys_.end(),
                        std::back_inserter(common_keys_));
  return within(common_keys_.size(), run_keys_.size(), kAlike);
}

// ---------------------------------------------------------------------------------------------- by names

/// The first launches of the step come again here: another forward pass.
bool StepPhases::begins_again(std::uint32_t at) const noexcept {
  if (at + kFew > step_.size() || key_of(step_[at]) != key_of(step_[0])) return false;
  std::uint32_t equal = 0;
  for (std::uint32_t i = 0; i < kFew; ++i) equal += key_of(step_[at + i]) == key_of(step_[i]) ? 1 : 0;
  return within(equal, kFew, kAlike);
}

/// One forward and one backward pass. False: where one ends is not to be seen.
bool StepPhases::add_pass(std::uint32_t begin, std::uint32_t end) {
  std::uint32_t forward = begin, first = kNone, marks = 0;
  for (std::uint32_t i = begin; i < end; ++i) {
    if (first == kNone && is_forward_mark(step_[i])) forward = i + 1;
    if (first != kNone && has(step_[i], kFlagLoss)) return false;  // another forward pass
    if (!has(step_[i], kFlagBackward)) continue;
    if (first == kNone) first = i;
    ++marks;
  }
  if (marks < kUnnamed) return false;
  // Between the last that is surely forward and the first that is surely backward anything may run; it must be little.
  // Many launches of one kernel, as where gradients are cleared, count as one.
  const auto next_kind = [&](std::uint32_t i) {
    const std::uint32_t key = key_of(step_[i]);
    while (i < first && key_of(step_[i]) == key) ++i;
    return i;
  };
  std::uint32_t kinds = 0;
  for (std::uint32_t i = forward; i < first; i = next_kind(i)) ++kinds;
  if (forward == begin || kinds > std::max(kFew, (end - begin) / kStray)) return false;
  std::uint32_t middle = forward;
  if (has(step_[forward - 1], kFlagLoss))  // after which no product is of the forward pass
    while (middle < first && !is_of_model(step_[middle])) ++middle;
  else
    for (std::uint32_t k = 0; k < (kinds + 1) / 2; ++k) middle = next_kind(middle);
  return add(StepPhase::kForward, middle) && add(StepPhase::kBackward, end);
}

bool StepPhases::cut_by_names() {
  const auto size = static_cast<std::uint32_t>(step_.size());
  std::uint32_t backward_end = 0;
  for (std::uint32_t i = 0; i < size; ++i)
    if (has(step_[i], kFlagBackward)) backward_end = i + 1;
  if (backward_end == 0) return false;
  std::uint32_t update = size, update_end = size, between = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (i < backward_end) {
      if (has(step_[i], kFlagOptimizer)) return false;  // inside the backward pass
      continue;
    }
    if (!updates(i)) continue;
    if (update == size) update = i;
    update_end = i + 1;
  }
  if (update == size) {
    // Without a name: the launches behind the backward pass and its last products and copies.
    const auto ends_backward = [&](const Launch& l) {
      return moves_data(l) || l.traits.role == KernelRole::kGemm || l.traits.role == KernelRole::kReduce;
    };
    update = backward_end;
    while (update < size && ends_backward(step_[update])) ++update;
    for (std::uint32_t i = update; i < size; ++i)
      if (is_of_model(step_[i])) return false;
  } else {
    for (std::uint32_t i = backward_end; i < update; ++i) between += moves_data(step_[i]) ? 0 : 1;
    if (between > std::max(kFew, size / kStray)) return false;
    if (size - update_end <= kFew) update_end = size;
  }
  std::uint32_t begin = 0, length = 0;
  for (std::uint32_t i = kFew; i <= update; ++i) {
    if (i < update && !begins_again(i)) continue;
    if (!add_pass(begin, i)) return false;
    // Passes of one step do the same; a part that returns within one (a layer computed again) is no pass.
    if (length == 0) length = i - begin;
    if (!within(i - begin, length, kAlike)) return false;
    begin = i;
    i = std::max(i, std::min(i + kFew, update) - 1);
  }
  return add(StepPhase::kOptimizer, update_end) && add(StepPhase::kForward, size);
}

}  // namespace mfu

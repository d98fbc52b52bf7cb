#include "injection/threads/look_thread.h"

#include <unistd.h>

#include <algorithm>

#include "core/base/counters.h"
#include "core/base/printable.h"
#include "cuda/host_thread.h"
#include "cuda/nvtx_handler.h"
#include "injection/guards/allocation.h"
#include "injection/guards/own_files.h"
#include "injection/guards/own_thread.h"

namespace mfu {

bool LookThread::start() {
  return start_own_thread(
      "mfu-look", [](void* self) { static_cast<LookThread*>(self)->loop(); }, this);
}

void LookThread::note_gaps(DurationNs long_gaps, TimeNs now) noexcept {
  constexpr DurationNs kLately = 30 * kNsPerSecond, kUnknown = 2 * kNsPerSecond;  // since the first launches
  if (noted_at_ == 0 || attribution_.launches_seen() == 0) many_gaps_at_ = now + kUnknown - kLately;
  if (noted_at_ != 0 && (long_gaps - long_gaps_) * 100 > now - noted_at_) many_gaps_at_ = now;
  long_gaps_ = long_gaps;
  noted_at_ = now;
  gaps_.store(now - many_gaps_at_ < kLately, std::memory_order_relaxed);
}

LookThread::Place LookThread::look_now(std::vector<const char*> names) {
  if (question_.load(std::memory_order_acquire) == Question::kAsked) return {};  // that one was never answered
  wake_.notify([&] {
    asked_names_ = std::move(names);
    question_.store(Question::kAsked, std::memory_order_release);
  });
  constexpr DurationNs kPatience = 100'000'000;
  const auto answered = [this] { return question_.load(std::memory_order_acquire) == Question::kAnswered; };
  return answered_.wait(kPatience, answered) ? std::move(place_) : Place{};
}

void LookThread::answer_question() {
  std::unordered_map<const char*, std::string> texts;
  place_.kernels.clear();
  for (const char* const name : asked_names_) {
    const auto [at, fresh] = texts.try_emplace(name);
    if (fresh) at->second = stacks_.text(name);
    place_.kernels.push_back(at->second);
  }
  const HostWork* found = work();
  place_.work = found != nullptr ? *found : HostWork{};
  answered_.notify([this] { question_.store(Question::kAnswered, std::memory_order_release); });
}

void LookThread::answer(bool over, std::uint64_t launches, TimeNs at, double cpu_s) {
  flush_ = 0;
  answers_cpu_s_.store(answers_cpu_s_.load(std::memory_order_relaxed) + cpu_s, std::memory_order_relaxed);
  wake_.notify([&] {
    if (over) over_at_.store(at, std::memory_order_relaxed), over_.store(launches, std::memory_order_relaxed);
    asks_.store(false, std::memory_order_relaxed);
  });
}

void LookThread::loop() {
  const bool reads_memory = take_own_descriptors() && stacks_.open();
  if (!reads_memory) host_counters().add(Counter::kLooksRefused);
  const TimeNs started = monotonic_ns();
  TimeNs find_at = 0;
  while (!stopping_.load(std::memory_order_relaxed) && !memory_was_refused() &&
         !host_switches().inert.load(std::memory_order_relaxed)) {
    const TimeNs now = monotonic_ns();
    const auto asked = [this] { return question_.load(std::memory_order_acquire) == Question::kAsked; };
    if (asked()) answer_question();
    if (reads_memory && !python_ && now >= find_at) {  // a program without Python, or one that loads it later
      python_ = stacks_.find();
      find_at = now + std::clamp((now - started) / 4, kNsPerSecond / 4, 60 * kNsPerSecond);
    }
    const ThreadState* launcher = attribution_.last_launcher();
    const LookPace::Step step =
        pace_.step({.now = now,
                    .launches = attribution_.launches_seen(),
                    .over = over_.load(std::memory_order_relaxed),
                    .waits = launcher != nullptr && launcher->waits_in.load(std::memory_order_relaxed) != nullptr,
                    .gaps = gaps_.load(std::memory_order_relaxed),
                    .cpu_ns = cost_ns(),
                    .over_at = over_at_.load(std::memory_order_relaxed)});
    if ((step.rests || quiet_from_ != step.quiet_from) && looked_at_ != 0) {  // the gap has ended meanwhile
      (void)spans_.push({{looked_at_, now}, last_, true});
      looked_at_ = 0;
    }
    if (step.sample) (void)spans_.push({{now, now + LookPace::kSample}, work(), false, true});
    if (step.rests) (void)spans_.push({{now, now + step.wait_ns}, not_looked_at()});
    quiet_from_ = step.quiet_from;
    if (step.look) look(now);
    if (step.ask) drain_.notify([this] { asks_.store(true, std::memory_order_relaxed); });
    const bool waits = asks();
    wake_.wait(step.wait_ns, [&] { return (waits && !asks()) || asked(); });
  }
}

/// Between two looks at different work, half of the time was either. The first look came about as late as the question
/// whether all is over, no later: before that it is unknown what the host did. Work that ran meanwhile had gaps of its
/// own, of which the look says nothing.
void LookThread::look(TimeNs now) {
  const HostWork* found = work();
  constexpr DurationNs kAnswer = 20'000'000;
  const TimeNs asked = now - std::max(kAnswer, (now - quiet_from_) / LookPace::kAskPart);
  const TimeNs from = looked_at_ != 0
                          ? looked_at_
                          : std::max({quiet_from_, asked, std::min(now, over_at_.load(std::memory_order_relaxed))});
  const TimeNs changed = looked_at_ != 0 && last_ != found ? from + (now - from) / 2 : from;
  if (changed != from) (void)spans_.push({{from, changed}, last_});
  (void)spans_.push({{changed, now}, found});
  looked_at_ = now;
  last_ = found;
}

DurationNs LookThread::cost_ns() noexcept {
  const double own = thread_cpu_s();
  cpu_s_.store(own, std::memory_order_relaxed);
  return static_cast<DurationNs>((own + answers_cpu_s_.load(std::memory_order_relaxed)) * 1e9);
}

/// Of the thread that launched last: the call of the driver that it is inside of, with the line of Python that makes
/// it; else its Python, or where it runs none, that of the main thread; else its innermost range that is no region.
const HostWork* LookThread::work() {
  const ThreadState* launcher = attribution_.last_launcher();
  const bool launches =
      launcher != nullptr && python_ && stacks_.read(launcher->handle.load(std::memory_order_relaxed), stack_);
  const bool main = launcher == nullptr ||
                    launcher->os_thread.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(::getpid());
  const char* const call = launcher != nullptr ? launcher->slow_call.load(std::memory_order_relaxed) : nullptr;
  const HostWork* found = nullptr;
  if (launches || (call == nullptr && python_ && stacks_.read(0, stack_)))
    found = python_work(main || !launches);
  else if (call == nullptr && launcher != nullptr)
    found =
        kept({printable(names_.name_of(launcher->range.load(std::memory_order_relaxed))), "", main ? "main" : "other"});
  return call == nullptr ? found : kept({call, found != nullptr ? found->where : "", main ? "main" : "other"});
}

/// Of the stack that was read last.
const HostWork* LookThread::python_work(bool main) {
  const std::uint64_t key = 2 * stack_.key() + static_cast<std::uint64_t>(main);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  constexpr std::size_t kMostKnown = 1u << 12;
  HostWork work = work_of(stacks_.frames(stack_), stack_.collecting);
  work.thread = main ? "main" : "other";
  if (known_.size() >= kMostKnown) known_.clear();  // code is freed, and other code comes to its place
  return known_[key] = kept(std::move(work));
}

/// nullptr: its cause is unknown.
const HostWork* LookThread::kept(HostWork work) {
  constexpr std::size_t kMostWorks = 256;
  if (work.cause.empty()) return nullptr;
  if (works_.size() >= kMostWorks) work = {"other", "", ""};
  auto at = std::find(works_.begin(), works_.end(), work);
  return at != works_.end() ? &*at : &works_.emplace_back(std::move(work));
}

}  // namespace mfu

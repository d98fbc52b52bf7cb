// When to look at the host: only while nothing runs on the GPU, and for a thousandth of a processor's time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/base/units.h"

namespace mfu {

/// Called again and again; says what to do now and how long to wait. That nothing runs is known once every launch has
/// its record and no more launches come. CUPTI is asked for records only where the account has seen long gaps lately,
/// or nothing was launched for a while. Looks and questions may cost kCredit of CPU time at first and then a kOfTime-th
/// of the time. When that is spent, it rests until the time has paid for one look, and that comes then, also while work
/// runs: so no cause is seen more often than it is there, and a look at work that runs says nothing, as no gap lies
/// there.
class LookPace {
 public:
  static constexpr DurationNs kLookAfter = 2'000'000;  ///< gaps below are time between launches
  static constexpr DurationNs kSample = 2'000'000;
  static constexpr DurationNs kAskPart = 4;  ///< of the time without launches lies between two questions

  struct Seen {
    TimeNs now = 0;
    std::uint64_t launches = 0;  ///< so far
    std::uint64_t over = 0;      ///< the newest number of launches at which all work was over
    bool waits = false;          ///< the thread that launched last waits for the device: work runs
    bool gaps = false;           ///< the account has seen gaps of kLookAfter and more lately
    DurationNs cpu_ns = 0;       ///< CPU time that looks and questions have taken so far
    TimeNs over_at = 0;          ///< when the work of the launches `over` ended; 0: not known
  };
  struct Step {
    DurationNs wait_ns = 0;  ///< until the next call
    bool ask = false;        ///< for records: is all work over?
    bool look = false;
    bool rests = false;     ///< for wait_ns nothing will be known,
    bool sample = false;    ///< except by one look now, which counts for kSample
    TimeNs quiet_from = 0;  ///< nothing was launched since, or a moment later
  };

  [[nodiscard]] Step step(const Seen& seen) noexcept {
    const TimeNs before = std::exchange(called_at_, seen.now);
    allowed_ns_ = std::min(allowed_ns_ + (seen.now - before), kMostSaved);
    if (before != 0) credit_ns_ = std::min(credit_ns_ + (seen.now - before) / kOfTime, kCredit);
    credit_ns_ -= seen.cpu_ns - std::exchange(cpu_ns_, seen.cpu_ns);
    Step step;
    const bool samples = rests_ && seen.gaps && seen.launches != 0 && seen.now >= rest_until_;
    if (samples || seen.now >= turn_until_) end_turn(seen.now);
    if (seen.now < rest_until_)
      return {.wait_ns = rest_until_ - seen.now, .rests = true, .sample = samples && !seen.waits};
    if (seen.launches != launches_ || before == 0) {
      launches_ = seen.launches;
      quiet_from_ = before == 0 ? seen.now : before;
      quiet_at_ = seen.now;
      ask_at_ = seen.now + (seen.gaps ? kSoon : kAskAlways);
      ++in_vain_;
    }
    // Where launches keep coming, two calls in a row now and then show a gap as well.
    const bool often = seen.gaps && (in_vain_ < kInVain || in_vain_ % 2 == 0);
    const DurationNs seldom = often ? kLookAfter : 10 * kLookAfter;
    if (seen.waits) ask_at_ = std::max(ask_at_, seen.now + seldom);
    step.quiet_from = quiet_from_;
    const DurationNs quiet = seen.now - quiet_at_;
    if (quiet >= kLookAfter) in_vain_ = 0;
    if (seen.launches == 0) {
      step.wait_ns = std::clamp(quiet / 32, kLookAfter, kFarthest);  // soon enough for the first gap
    } else if (seen.over != seen.launches) {
      step.ask = seen.now >= ask_at_;
      // The answer comes before the next time.
      if (step.ask) ask_at_ = seen.now + std::clamp(quiet / kAskPart, kSoon, kNsPerSecond);
      step.wait_ns = quiet < kLookAfter ? seldom : ask_at_ - seen.now;
    } else if (quiet < kLookAfter) {
      step.wait_ns = kLookAfter - quiet;
    } else if (allowed_ns_ < kPerLook) {
      step.wait_ns = kPerLook - allowed_ns_ + any_below(kPerLook);
    } else {
      allowed_ns_ -= kPerLook;
      step.look = true;
      const TimeNs begin = std::clamp(seen.over_at, quiet_from_, seen.now);
      if (std::exchange(looked_in_, begin) != begin) phase_ = std::fmod(phase_ + kGolden, 1);
      step.wait_ns = until_next(seen.now - begin);
    }
    if (rests_) step.wait_ns = std::min(step.wait_ns, turn_until_ - seen.now);
    return step;
  }

 private:
  /// A turn is the time from one rest to the next. How long it rests follows from what turns took on average and hardly
  /// from this one: a turn in which much happens is as likely as any other.
  void end_turn(TimeNs now) noexcept {
    constexpr double kSmooth = 8, kNear = 5e6;  // turns in the mean; CPU time by which a debt doubles the rest [ns]
    mean_turn_ns_ += (static_cast<double>(cpu_ns_ - turn_cpu_ns_) - mean_turn_ns_) / kSmooth;
    rests_ = credit_ns_ < 0 || (rests_ && credit_ns_ < kCredit / 2);
    const double balance = std::clamp(1 - static_cast<double>(credit_ns_) / kNear, 0.5, 8.0);
    const auto rest = static_cast<DurationNs>(mean_turn_ns_ * kOfTime * balance);
    rest_until_ = now + (rests_ ? rest * 3 / 4 + any_below(rest / 2 + 1) : 0);
    turn_until_ = rest_until_ + kTurn;
    turn_cpu_ns_ = cpu_ns_;
  }

  /// Looks are kClosest apart at first, then a part of the gap so far. In gaps that are alike they lie evenly between
  /// each other, by the gap's phase, so that what is missed of a change evens out soon. As the credit goes, they lie
  /// further apart: gaps that are not looked into at all are missed more.
  [[nodiscard]] DurationNs until_next(DurationNs gap) const noexcept {
    const double part = kPart * std::clamp(0.5 + static_cast<double>(credit_ns_) / kCredit, 0.5, 1.0);
    const double linear = part * kClosest;
    const auto place_of = [=](double t) { return t < linear ? t / kClosest : part * (1 + std::log(t / linear)); };
    const auto time_of = [=](double p) { return p < part ? p * kClosest : linear * std::exp(p / part - 1); };
    const auto t = static_cast<double>(gap);
    const double next = std::floor(place_of(t) - phase_) + 1 + phase_;
    const double wait = time_of(next) - t;
    return static_cast<DurationNs>(std::min<double>(wait >= kClosest / 2 ? wait : time_of(next + 1) - t, kFarthest));
  }

  /// So that turns keep no step with a program.
  [[nodiscard]] DurationNs any_below(DurationNs most) noexcept {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
    return static_cast<DurationNs>(random_ >> 33) % most;
  }

  static constexpr DurationNs kClosest = 2'000'000, kFarthest = 200'000'000;
  static constexpr DurationNs kPart = 8;  ///< between two looks: the gap so far over this, or over half of it
  static constexpr double kGolden = 0.6180339887498949;   ///< (sqrt(5) - 1) / 2: multiples of it lie evenly in [0, 1)
  static constexpr DurationNs kPerLook = 5'000'000;       ///< 200 a second on average,
  static constexpr DurationNs kMostSaved = kNsPerSecond;  ///< and as many at once as a second allows
  static constexpr DurationNs kSoon = kLookAfter / 2, kAskAlways = 50'000'000;
  static constexpr std::uint64_t kInVain = 64;
  static constexpr DurationNs kOfTime = 1000, kCredit = 50'000'000, kTurn = 10'000'000;

  TimeNs called_at_ = 0, quiet_from_ = 0, quiet_at_ = 0, ask_at_ = 0;
  DurationNs allowed_ns_ = kMostSaved, credit_ns_ = kCredit, cpu_ns_ = 0;
  TimeNs rest_until_ = 0, turn_until_ = 0;
  DurationNs turn_cpu_ns_ = 0;  ///< when it began
  double mean_turn_ns_ = 0;     ///< CPU time that a turn takes
  TimeNs looked_in_ = 0;        ///< the begin of the gap of the last look
  double phase_ = 0;            ///< of the looks in it
  bool rests_ = false;
  std::uint64_t launches_ = 0, in_vain_ = 0, random_ = 1;  ///< in_vain_: calls in a row that saw no gap
};

}  // namespace mfu

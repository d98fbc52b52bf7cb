// The thread that looks at the program while the GPU has nothing to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/account/idle_work.h"
#include "core/attribution/attribution.h"
#include "core/attribution/record_queue.h"
#include "core/idle/host_work.h"
#include "core/idle/look_pace.h"
#include "core/ranges/rule_cache.h"
#include "injection/stacks/python_stacks.h"
#include "injection/threads/wakeup.h"

namespace mfu {

/// [mfu-look] runs loop(). It reads counters that launches leave and the memory of the process; it stops no thread and
/// takes no lock of the host. Whether all work is over it asks mfu-drain, which knows the records.
class LookThread {
 public:
  /// \param drain woken when there is a question.
  LookThread(const Attribution& attribution, const RuleCache& names, Wakeup& drain)
      : attribution_(attribution), names_(names), drain_(drain) {}
  [[nodiscard]] bool start();
  void stop() noexcept { stopping_.store(true, std::memory_order_relaxed); }

  /// [mfu-drain] Whether it is asked if all work is over.
  [[nodiscard]] bool asks() const noexcept { return asks_.load(std::memory_order_relaxed); }
  /// [mfu-drain] \param over it is, of so many `launches`, since `at`. \param cpu_s CPU time that the answer took.
  void answer(bool over, std::uint64_t launches, TimeNs at, double cpu_s);
  /// [mfu-drain] The flush that the answer waits for; 0: none yet.
  [[nodiscard]] std::uint64_t flush() const noexcept { return flush_; }
  void wait_for_flush(std::uint64_t number, double cpu_s) noexcept {
    flush_ = number;
    flush_cpu_s_ = cpu_s;
  }
  /// [mfu-drain] CPU time of mfu-flush before that [s].
  [[nodiscard]] double flush_cpu_s() const noexcept { return flush_cpu_s_; }
  /// [mfu-drain] How much time the account has in long gaps so far. Where a hundredth of the time is, or was lately,
  /// they are worth asking CUPTI for records.
  void note_gaps(DurationNs long_gaps, TimeNs now) noexcept;
  /// [mfu-drain] Where the host is now, and the names of kernels that lie at `names`, which may be gone. Empty where
  /// there is no answer within a moment.
  struct Place {
    std::vector<std::string> kernels;
    HostWork work;
  };
  [[nodiscard]] Place look_now(std::vector<const char*> names);
  /// [mfu-drain] What the host did, in order of time, CLOCK_MONOTONIC.
  [[nodiscard]] bool take(WorkSpan& span) noexcept { return spans_.pop(span); }
  /// [any thread] CPU time of the thread [s].
  [[nodiscard]] double cpu_s() const noexcept { return cpu_s_.load(std::memory_order_relaxed); }

 private:
  void loop();
  void look(TimeNs now);
  void answer_question();
  [[nodiscard]] DurationNs cost_ns() noexcept;
  [[nodiscard]] const HostWork* work();
  [[nodiscard]] const HostWork* python_work(bool main);
  [[nodiscard]] const HostWork* kept(HostWork work);

  const Attribution& attribution_;
  const RuleCache& names_;
  Wakeup& drain_;
  Wakeup wake_;
  LookPace pace_;
  PythonStacks stacks_;
  bool python_ = false;  ///< it was found
  PythonStacks::Stack stack_;
  std::deque<HostWork> works_;  ///< each once; never moved, since the account points to them
  std::unordered_map<std::uint64_t, const HostWork*> known_;  ///< by stack
  TimeNs quiet_from_ = 0, looked_at_ = 0;                     ///< of the gap and in it; 0: not yet
  const HostWork* last_ = nullptr;                            ///< the work that it saw then
  BoundedQueue<WorkSpan, 1u << 12> spans_;                    ///< those that find no room are unknown
  std::uint64_t flush_ = 0;                                   ///< [mfu-drain]
  double flush_cpu_s_ = 0;                                    ///< [mfu-drain]
  DurationNs long_gaps_ = 0;                                  ///< [mfu-drain] when it was noted last,
  TimeNs noted_at_ = 0;                                       ///< [mfu-drain] when that was,
  TimeNs many_gaps_at_ = 0;                                   ///< [mfu-drain] and when there were many
  enum class Question : std::uint8_t { kNone, kAsked, kAnswered };
  std::atomic<Question> question_{Question::kNone};  ///< of look_now; the two below are of who may answer it
  std::vector<const char*> asked_names_;
  Place place_;
  Wakeup answered_;
  std::atomic<bool> stopping_{false}, asks_{false}, gaps_{true};
  std::atomic<std::uint64_t> over_{~std::uint64_t{0}};  ///< launches when all work was over; ~0: never yet
  std::atomic<TimeNs> over_at_{0};
  std::atomic<double> cpu_s_{0}, answers_cpu_s_{0};
};

}  // namespace mfu

// Pauses tracing and goes on with it, as MFU_BUDGET asks, and keeps the account right meanwhile.
#pragma once

#include <limits>
#include <unordered_map>

#include "core/attribution/record_queue.h"
#include "core/drain/drain.h"
#include "cuda/cupti_session.h"
#include "injection/threads/flush_thread.h"
#include "injection/threads/trace_budget.h"

namespace mfu {

/// [mfu-drain] Windows in which tracing pauses have times of ranges alone, and are in no figure of the whole run.
class TracingSwitch {
 public:
  struct Parts {
    Attribution& attribution;
    const CuptiSession& session;
    FlushThread& flush;
    Ledger& ledger;
    Drain& drain;
    const TickClock& ticks;
  };
  TracingSwitch(double budget, const Parts& parts)
      : parts_(parts), budget_(budget, parts.ledger.origin(), parts.ledger.window_ns()) {}

  /// Once per tick. \param alone no other client has CUPTI's records.
  void tick(TimeNs now, bool alone);
  /// Takes out what has a record and no callback: it was launched while one of the two was off.
  void sort_out(RecordBatch& batch);
  [[nodiscard]] TraceBudget& budget() noexcept { return budget_; }

 private:
  [[nodiscard]] TraceBudget::Progress progress();
  void change(bool on, TimeNs now);
  void look_for_begin(TimeNs now);

  static constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
  static constexpr DurationNs kSettles = 2 * kNsPerSecond;  ///< records of what was launched before have come

  Parts parts_;
  TraceBudget budget_;
  bool by_waits_ = false;  ///< progress is counted by waits of the host
  bool on_ = true;
  TimeNs effect_at_ = 0;    ///< when CUPTI had done it; kNever: it has not yet
  bool waiting_ = false;    ///< for records of what was launched before a pause
  CorrelationId newest_{};  ///< launch, when tracing went on
  bool any_newest_ = false;
  TimeNs traced_from_ = 0;  ///< see TraceBudget::look
  TimeNs sorts_until_ = 0;
  /// By device and stream: when the first work began that was launched since tracing went on.
  std::unordered_map<std::uint64_t, TimeNs> begins_;
};

}  // namespace mfu

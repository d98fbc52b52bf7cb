// Passes boundaries on to the listener, and knows which of them can still be taken back.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/detect/launch_history.h"
#include "core/detect/step_findings.h"

namespace mfu {

/// [one thread]
class StepReporter {
 public:
  StepReporter(StepListener& listener, const LaunchHistory& history) noexcept
      : listener_(listener), history_(history) {}

  /// Reports a boundary before the launch at `p`; no effect unless it lies after all others and within the stream.
  void report(LaunchPosition p, StepKind kind) {
    if (p == 0 || p <= last_ || p >= history_.end()) return;
    if (first_ == 0) first_ = p;
    last_ = p;
    recent_[count_++ % recent_.size()] = p;
    listener_.on_boundary({p, history_.begin_ns(p), kind});
  }
  /// What was reported so far is final: only what follows can be withdrawn.
  void confirm() noexcept {
    first_ = 0;
    before_ = last_;
  }
  /// Takes back everything since the last confirm().
  void withdraw() {
    if (first_ == 0 || last_ < first_) return;
    listener_.on_withdrawal(first_);
    last_ = before_;
    first_ = 0;
  }

  /// The same for what lies at `from` or later only, and was reported lately.
  void withdraw_from(LaunchPosition from) {
    if (first_ == 0 || last_ < std::max(from, first_)) return;
    std::uint64_t kept = count_;
    while (kept > 0 && count_ - kept < recent_.size() && recent_[(kept - 1) % recent_.size()] >= from) --kept;
    if (count_ - kept == recent_.size() || kept == 0 || recent_[(kept - 1) % recent_.size()] < first_) {
      withdraw();
      return;
    }
    listener_.on_withdrawal(from);
    count_ = kept;
    last_ = recent_[(kept - 1) % recent_.size()];
  }

  /// Of the boundaries since the last confirm(); 0: none.
  [[nodiscard]] LaunchPosition first() const noexcept { return first_; }
  /// Of all boundaries; 0: none.
  [[nodiscard]] LaunchPosition last() const noexcept { return last_; }

 private:
  StepListener& listener_;
  const LaunchHistory& history_;
  LaunchPosition first_ = 0, last_ = 0;
  std::array<LaunchPosition, 64> recent_{};  ///< the last boundaries, by number
  std::uint64_t count_ = 0;
  LaunchPosition before_ = 0;  ///< last_ at the last confirm()
};

}  // namespace mfu

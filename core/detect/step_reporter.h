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

  /// Reports a boundary before the launch at `p`; no effect unless it lies after all others and within the stream,
  /// whose end is one once it is over.
  void report(LaunchPosition p, StepKind kind) {
    if (p == 0 || p <= last_ || p >= history_.end() + (over_ ? 1 : 0)) return;
    if (first_ == 0) first_ = p;
    last_ = p;
    recent_[count_++ % recent_.size()] = {p, kind};
    listener_.on_boundary({p, history_.begin_ns(std::min(p, history_.end() - 1)), kind, over_});
  }
  /// What is reported until `false` is known only because the stream is over.
  void stream_is_over(bool over) noexcept { over_ = over; }
  /// What was reported so far is final: only what follows can be withdrawn.
  void confirm() noexcept {
    first_ = 0;
    before_ = last_;
  }
  /// Takes back everything since the last confirm().
  void withdraw() {
    if (first_ == 0 || last_ < first_) return;
    listener_.on_withdrawal(first_);
    const std::uint64_t kept = count_before(first_);
    count_ = count_ - kept == recent_.size() ? 0 : kept;
    last_ = before_;
    first_ = 0;
  }

  /// The same for what lies at `from` or later only, and was reported lately.
  void withdraw_from(LaunchPosition from) {
    if (first_ == 0 || last_ < std::max(from, first_)) return;
    const std::uint64_t kept = count_before(from);
    if (count_ - kept == recent_.size() || kept == 0 || recent(kept).at < first_) {
      withdraw();
      return;
    }
    listener_.on_withdrawal(from);
    count_ = kept;
    last_ = recent(kept).at;
  }

  /// What was reported lately lies `by` launches too late, since its place was not known well: reports it again up to
  /// `until`, and takes back the rest of it.
  void move_earlier(std::int64_t by, LaunchPosition until) {
    if (first_ == 0 || last_ < first_) return;
    const auto moved_to = [by](LaunchPosition at) { return static_cast<std::int64_t>(at) - by; };
    // Of launches that are forgotten nobody knows the time.
    const auto oldest = static_cast<std::int64_t>(std::max<LaunchPosition>(history_.oldest(), 1));
    const auto latest = static_cast<std::int64_t>(until);
    std::array<Told, kRemembered> again;
    std::size_t many = 0;
    LaunchPosition from = last_ + 1;
    // Of many the oldest that is remembered stays: what lies before it is not known.
    for (std::uint64_t i = count_; i > 0 && count_ - i + 1 < recent_.size(); --i) {
      const Told& told = recent(i);
      if (told.at < first_ || moved_to(told.at) < oldest) break;
      from = told.at;
      if (moved_to(told.at) <= latest) again[many++] = told;
    }
    withdraw_from(from);
    for (; many > 0; --many) report(static_cast<LaunchPosition>(moved_to(again[many - 1].at)), again[many - 1].kind);
  }

  /// One was reported lately before the launch at `p`, and stands.
  [[nodiscard]] bool reported_at(LaunchPosition p) const noexcept {
    for (std::uint64_t i = count_; i > 0 && count_ - i < recent_.size(); --i)
      if (recent(i).at <= p) return recent(i).at == p;
    return false;
  }
  /// Of the boundaries since the last confirm(); 0: none.
  [[nodiscard]] LaunchPosition first() const noexcept { return first_; }
  /// Of all boundaries; 0: none.
  [[nodiscard]] LaunchPosition last() const noexcept { return last_; }

 private:
  static constexpr std::size_t kRemembered = 128;
  struct Told {
    LaunchPosition at = 0;
    StepKind kind = StepKind::kNone;
  };

  /// The boundary with this number, counted from 1.
  [[nodiscard]] const Told& recent(std::uint64_t number) const noexcept {
    return recent_[(number - 1) % recent_.size()];
  }
  /// How many lie before `from`, as far as they are remembered.
  [[nodiscard]] std::uint64_t count_before(LaunchPosition from) const noexcept {
    std::uint64_t kept = count_;
    while (kept > 0 && count_ - kept < recent_.size() && recent(kept).at >= from) --kept;
    return kept;
  }

  StepListener& listener_;
  const LaunchHistory& history_;
  LaunchPosition first_ = 0, last_ = 0;
  std::array<Told, kRemembered> recent_{};  ///< the last boundaries, by number
  std::uint64_t count_ = 0;
  LaunchPosition before_ = 0;  ///< last_ at the last confirm()
  bool over_ = false;
};

}  // namespace mfu

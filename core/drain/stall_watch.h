// Whether the GPU's work has stalled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/units.h"

namespace mfu {

/// [mfu-drain] Work has stalled when a launch has not ended, and for long nothing has ended and nothing was launched.
/// Some programs have long kernels, and pipelines have bubbles: ten times the longest wait so far is allowed, and twice
/// as long as a stall that went on by itself. Time in which this was not called counts for 20 s at most, as while the
/// process was stopped.
class StallWatch {
 public:
  enum class Change : std::uint8_t { kNone, kBegins, kEnds };

  /// \param least so long at least [ns]; 0: never.
  explicit StallWatch(DurationNs least) noexcept : least_(least) {}

  /// \param moved grows with each launch and each record of work that ended. \param waits for a record of a launch.
  [[nodiscard]] Change look(TimeNs now, std::uint64_t moved, bool waits) noexcept {
    const DurationNs unseen = std::max<DurationNs>(0, now - std::exchange(looked_at_, now) - kMostBetween);
    if (std::exchange(moved_, moved) == moved && waits) {
      since_ += unseen;
      if (stalled_ || least_ == 0 || now - since_ <= std::max(least_, kUsual * longest_)) return Change::kNone;
      stalled_ = true;
      return Change::kBegins;
    }
    const bool ends = std::exchange(stalled_, false);
    if (waited_) longest_ = std::max(longest_, ends ? (now - since_) * 2 / kUsual : now - since_);
    waited_ = waits;
    since_ = now;
    return ends ? Change::kEnds : Change::kNone;
  }
  /// When something moved last.
  [[nodiscard]] TimeNs since() const noexcept { return since_; }

 private:
  static constexpr DurationNs kUsual = 10;
  static constexpr DurationNs kMostBetween = 20 * kNsPerSecond;  ///< two calls, in a process that runs

  DurationNs least_;
  DurationNs longest_ = 0;  ///< that something was waited for, and came
  TimeNs since_ = 0, looked_at_ = 0;
  std::uint64_t moved_ = 0;
  bool waited_ = false, stalled_ = false;
};

}  // namespace mfu

// What the step detector considers, and why it takes or refuses it, in words: for `mfu replay --detect --explain`.
// Without a log nothing is put together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/detect/launch_history.h"

namespace mfu {

/// Receives one line for each decision.
class DetectionLog {
 public:
  /// \param at number of launches that had come, counted as StepBoundary::launch is
  virtual void say(LaunchPosition at, std::string_view text) = 0;

 protected:
  ~DetectionLog() = default;
};

/// [one thread] A log or none, for the parts of the detector: says nothing twice in a row about one period.
class Explainer {
 public:
  Explainer(DetectionLog* log, const LaunchHistory& history) noexcept : log_(log), history_(history) {}

  [[nodiscard]] bool wanted() const noexcept { return log_ != nullptr; }
  void say(std::string_view text) const {
    if (wanted()) log_->say(history_.end(), text);
  }
  /// The same, unless the last that was said of this period was this verdict.
  void say_of(std::uint32_t period, std::string_view verdict, std::string_view text) {
    if (!wanted()) return;
    for (auto& [known, last] : said_) {
      if (known != period) continue;
      if (last == verdict) return;
      last = verdict;
      log_->say(history_.end(), text);
      return;
    }
    said_[next_++ % said_.size()] = {period, std::string(verdict)};
    log_->say(history_.end(), text);
  }

 private:
  DetectionLog* log_;
  const LaunchHistory& history_;
  std::array<std::pair<std::uint32_t, std::string>, 64> said_{};
  std::size_t next_ = 0;
};

}  // namespace mfu

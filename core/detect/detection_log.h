// Candidates of the step detector, and why it takes or refuses them, in words: for `mfu replay --detect --explain`.
#pragma once

#include <string>
#include <string_view>

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

/// [one thread] A log or none, for the parts of the detector.
class Explainer {
 public:
  Explainer(DetectionLog* log, const LaunchHistory& history) noexcept : log_(log), history_(history) {}

  [[nodiscard]] bool wanted() const noexcept { return log_ != nullptr; }
  void say(const std::string& text) const {
    if (wanted()) log_->say(history_.end(), text);
  }
  /// Why `what` are not taken, unless this was the reason before.
  void refuse(std::string_view what, const char* why) {
    if (!wanted() || why == nullptr || why == last_) return;
    last_ = why;
    say(std::string(what) + " are not taken yet: " + why);
  }

 private:
  DetectionLog* log_;
  const LaunchHistory& history_;
  const char* last_ = nullptr;
};

}  // namespace mfu

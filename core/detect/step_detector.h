// Finds training steps and serving iterations in one device's stream of launches: no range, no clock, no I/O.
//
// A launch is one token. The end of a unit of work has a name or a direction: an update after a backward pass
// (TrainingUnits), a copy to the host after a sample (ServingUnits). Nothing is reported before units agree, so nothing
// is taken back; where two readings are as good, nothing is reported at all.
//
// A boundary is where a step begins or ends, before a launch. It is reported once the step beside it was seen whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/detect/detection_log.h"
#include "core/detect/launch.h"
#include "core/detect/launch_history.h"
#include "core/detect/serving_units.h"
#include "core/detect/step_findings.h"
#include "core/detect/training_units.h"

namespace mfu {

/// [one thread] One process's launches on one device. Memory is fixed at construction, under 3 MB, touched as used.
class StepDetector {
 public:
  static constexpr std::uint32_t kRing = LaunchHistory::kRing;  ///< launches that are remembered

  /// `first`: the index of the first launch that will be added; boundaries are reported by such indices.
  /// `log` hears why, if it is given; both outlive the detector.
  explicit StepDetector(StepListener& listener, std::uint64_t first = 0, DetectionLog* log = nullptr);
  StepDetector(const StepDetector&) = delete;
  StepDetector& operator=(const StepDetector&) = delete;

  void add(const Launch& launch);
  /// The stream is over: reports what can still be reported.
  void finish();

  [[nodiscard]] const StepFindings& findings() const noexcept { return findings_; }
  /// The index of the next launch: how many came, counted from `first`.
  [[nodiscard]] std::uint64_t launches() const noexcept { return history_.end(); }
  [[nodiscard]] std::size_t held_bytes() const noexcept;

 private:
  [[nodiscard]] bool is_of_loader(const Launch& launch) noexcept;
  [[gnu::noinline]] void iteration_ended();
  [[nodiscard]] bool generates_in_training() const noexcept;
  [[nodiscard]] StepKind kind_of(const ServingUnits::End& end) const noexcept;
  void report_iterations(std::uint64_t count);
  [[gnu::noinline]] void unit_ended();
  void report_steps();
  void report(LaunchPosition p, StepKind kind);
  [[nodiscard]] StepFindings findings_of_training() const noexcept;
  [[nodiscard]] StepFindings findings_of_serving() const noexcept;
  void set_findings(const StepFindings& findings);

  StepListener& listener_;
  LaunchHistory history_;
  Explainer explain_;
  TrainingUnits training_;
  ServingUnits serving_;
  bool serving_found_ = false;
  std::uint64_t iterations_ = 0;                   ///< reported
  std::array<std::uint32_t, 2> kernel_threads_{};  ///< that launched kernels last; 0: not known
  LaunchPosition last_reported_ = 0;
  bool over_ = false;
  std::uint32_t steps_ = 0;  ///< reported
  StepFindings findings_;
};

}  // namespace mfu

// Finds training steps and serving iterations in one device's stream of launches: no range, no clock, no I/O.
//
// A launch is one token. While nothing is found, the stream is searched now and then for a cycle that looks like a
// whole step (CycleSearch). Once one is found, each further step is found by aligning the surroundings of its boundary,
// and compared with the step before as a multiset (StepFollower). Serving needs no cycle: samples that are copied to
// the host end iterations (ServingIterations).
//
// A boundary is a cut before a launch: where a step begins or ends. It is reported once the step beside it was seen
// whole, so one step late, and after a first find for the steps before it too. What turns out to be a part of something
// larger (a micro-step under accumulation) is withdrawn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/detect/cycle_search.h"
#include "core/detect/detection_log.h"
#include "core/detect/launch.h"
#include "core/detect/launch_history.h"
#include "core/detect/search_schedule.h"
#include "core/detect/serving_iterations.h"
#include "core/detect/step_findings.h"
#include "core/detect/step_follower.h"
#include "core/detect/step_reporter.h"
#include "core/detect/training_steps.h"

namespace mfu {

/// [one thread] One process's launches on one device. Memory is fixed at construction, under 3 MB; pages of it
/// that no launch came to cost nothing.
class StepDetector {
 public:
  static constexpr std::uint32_t kRing = LaunchHistory::kRing;          ///< launches that are remembered
  static constexpr std::uint32_t kMaxPeriod = CycleSearch::kMaxPeriod;  ///< [launch]

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
  using Position = LaunchPosition;

  [[nodiscard]] bool is_of_loader(const Launch& launch) noexcept;
  [[gnu::noinline]] void iteration_ended();
  [[nodiscard]] bool training_is_over() const noexcept;
  [[nodiscard]] bool may_generate() const noexcept;
  [[nodiscard]] StepKind kind_of(const ServingIterations::End& end) const noexcept;
  void start_serving();
  [[gnu::noinline]] void run_pending(bool final);
  void check_serving();
  [[gnu::noinline]] void step_ended();
  void place_again(std::size_t kept);
  void report_step(std::size_t back);
  void check_training();
  void search(bool final);
  void update_findings();
  void explain_findings();
  void explain_training();

  LaunchHistory history_;
  Explainer explain_;
  SearchSchedule schedule_;
  CycleSearch search_;
  StepReporter reporter_;
  StepFollower follower_;
  TrainingSteps training_;
  bool training_found_ = false;
  bool was_training_ = false;  ///< before a server's iterations took its place
  bool generates_ = false;     ///< these are tokens that a training program generates
  PassesOfStep passes_;        ///< of the training steps, where losses do not tell them
  ServingIterations serving_;
  bool serving_found_ = false;
  std::array<ServingIterations::End, 32> ends_{};  ///< of iterations before they are found
  std::array<std::uint32_t, 2> kernel_threads_{};  ///< that launched kernels last; 0: not known
  Position next_work_ = 0;
  StepFindings findings_;
  StepFindings explained_;  ///< the last that the log was told
  StepFindings followed_;   ///< the last that a step was seen under
};

}  // namespace mfu

// Cuts the launches of one training step into forward, backward and optimizer: pure, linear in the launches.
//
// By host thread first: PyTorch runs every backward pass on a thread of its autograd engine. Where threads say nothing,
// by names: kernels that run in a backward pass alone, losses, optimizers. A step that fits neither picture (forward
// and backward interleaved, as DualPipe does) is not cut at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/detect/launch.h"

namespace mfu {

enum class StepPhase : std::uint8_t { kForward, kBackward, kOptimizer };

/// Launches [begin, end) of a step, counted from its first.
struct PhaseSpan {
  StepPhase phase = StepPhase::kForward;
  std::uint32_t begin = 0, end = 0;
};

/// The rule of the cuts; kNone: there are none.
enum class PhaseRule : std::uint8_t { kNone, kThreads, kNames };

/// [one thread] Keeps its buffers from step to step, so that only the first steps allocate.
class StepPhases {
 public:
  static constexpr std::size_t kMaxSpans = 256;  ///< a step of more is taken for interleaved
  static constexpr std::size_t kMaxThreads = 16;
  static constexpr std::size_t kMaxLaunches = 1u << 17;  ///< longer ones are not cut; as many as the detector remembers

  /// `step`: the launches between two boundaries, in correlation order, which begins with a forward pass (not one
  /// that BoundaryRule::kAnywhere cut). Recomputation inside a backward pass is backward; gradient clipping and loss
  /// scaling belong to the optimizer; copies and communication to what runs around them.
  [[nodiscard]] PhaseRule cut(std::span<const Launch> step);

  /// In order, without gaps, covering the step; empty after kNone. With accumulation forward and backward alternate.
  [[nodiscard]] std::span<const PhaseSpan> spans() const noexcept { return spans_; }

 private:
  struct Run {
    bool backward = false;
    std::uint32_t begin = 0, end = 0;
  };

  [[nodiscard]] PhaseRule cut_by_threads();
  [[nodiscard]] bool cut_by_names();
  [[nodiscard]] bool find_runs();
  [[nodiscard]] bool plausible() const noexcept;
  [[nodiscard]] bool cut_run(const Run& run, bool last);
  [[nodiscard]] bool begins_with_update(const Run& run) const noexcept;
  [[nodiscard]] bool like_forward(const Run& run);
  [[nodiscard]] bool add_pass(std::uint32_t begin, std::uint32_t end);
  [[nodiscard]] bool updates(std::uint32_t i) const noexcept;
  [[nodiscard]] bool begins_again(std::uint32_t at) const noexcept;
  bool add(StepPhase phase, std::uint32_t end);

  std::span<const Launch> step_;
  bool named_optimizer_ = false;
  std::vector<PhaseSpan> spans_;
  std::vector<Run> runs_;
  std::vector<std::uint32_t> forward_keys_, run_keys_, common_keys_;
};

}  // namespace mfu

// Records > launches: the work of one host call is one launch, however many records it has.
#pragma once

#include <cstdint>

#include "core/base/activity_record.h"
#include "core/detect/launch.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {

/// Traits of a record that is no kernel. [pure]
[[nodiscard]] KernelTraits traits_of(const ActivityRecord& record) noexcept;

[[nodiscard]] inline bool is_of_graph(const ActivityRecord& record) noexcept {
  return record.graph != GraphId::kNone || record.kind == ActivityKind::kGraph;
}

/// Those of a graph, of all flags of what runs in it. Operations over lists of tensors update weights where it goes
/// backward too; a server's graphs copy with them. [pure]
[[nodiscard]] constexpr std::uint8_t flags_of_graph(std::uint8_t flags) noexcept {
  const unsigned kept = kFlagOptimizer | kFlagBackward | kFlagLoss | kFlagSampling;
  return static_cast<std::uint8_t>(flags & ((flags & kFlagBackward) != 0 ? kept | kFlagForeach : kept));
}

/// A single record that is no graph's, as LaunchFold has it. Most launches are one. [pure]
/// \param traits of the kernel's name, or traits_of(record)
/// \param thread that launched; 0: not known
[[nodiscard]] inline Launch launch_of(const ActivityRecord& record, const KernelTraits& traits,
                                      std::uint32_t thread) noexcept {
  const bool kernel = record.kind == ActivityKind::kKernel;
  Launch launch;
  launch.name = kernel ? Launch::kFirstKernel + raw(record.name) : static_cast<std::uint32_t>(traits.role);
  launch.thread = thread;
  launch.traits = traits;
  launch.begin_ns = record.begin_ns;
  launch.end_ns = record.end_ns;
  if (kernel) launch.grid = record.grid();
  return launch;
}

/// The records of one correlation id on one device, in the order in which they began.
class LaunchFold {
 public:
  explicit LaunchFold(std::uint32_t thread) noexcept { launch_.thread = thread; }

  void add(const ActivityRecord& record, const KernelTraits& traits) noexcept;

  /// A graph is named by its id, so that it stays the same when some of its records are lost, or by what runs in it
  /// where nobody says its id. It samples, updates weights or goes backward where one of its kernels does.
  [[nodiscard]] Launch launch() const noexcept;

 private:
  /// A call that is no graph's puts a handful of kernels on a stream at most.
  static constexpr std::uint32_t kMostOfOneCall = 8;

  Launch launch_;
  ActivityRecord first_;
  std::uint64_t content_ = 0;  ///< a sum over its records: streams of one graph may finish in any order
  std::uint32_t records_ = 0;
  std::uint8_t flags_ = 0;
};

}  // namespace mfu

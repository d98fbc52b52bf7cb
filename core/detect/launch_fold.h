// Records > launches: what one host call put on the device is one launch, however many records it has.
#pragma once

#include <cstdint>

#include "core/base/activity_record.h"
#include "core/detect/launch.h"
#include "core/kernels/kernel_role.h"

namespace mfu {

/// Traits of a record that is no kernel. [pure]
[[nodiscard]] KernelTraits traits_of(const ActivityRecord& record) noexcept;

/// The records of one correlation id on one device, in the order in which they began.
class LaunchFold {
 public:
  /// \param thread that launched; 0: not known
  explicit LaunchFold(std::uint32_t thread) noexcept { launch_.thread = thread; }

  /// \param traits of the kernel's name, or traits_of(record)
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

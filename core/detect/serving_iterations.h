// Iterations of an inference server in a stream of launches: each ends where a token was sampled and copied to the
// host. An index of a largest value that stays on the device, as detection models take one, ends nothing. No period is
// needed: decode in many batch sizes and prefill in many lengths may alternate as they like.
#pragma once

#include <array>
#include <cstdint>

#include "core/kernels/kernel_role.h"

namespace mfu {

enum class ServingKind : std::uint8_t { kUnknown, kDecode, kPrefillOrMixed };

/// [one thread] Pure: launches in, ends of iterations out. Fixed memory.
class ServingIterations {
 public:
  struct End {
    std::uint64_t launch = 0;  ///< first launch after the iteration
    ServingKind kind = ServingKind::kUnknown;
  };

  /// `begin`: the index of the first launch that will be added.
  explicit ServingIterations(std::uint64_t begin = 0) noexcept : begin_(begin) {}

  /// The launch with index `n`. True: an iteration ended; see last().
  bool add(const KernelTraits& traits, std::uint64_t n) noexcept {
    const bool ended = traits.role != last_class_ && take(traits.role);
    // Work for the host, or a sample: everything else is over in the line above.
    if ((traits.flags & (kFlagSampling | kFlagToHost | kFlagToDevice)) == 0 && n < decide_at_) return ended;
    return mark(traits, n) || ended;  // a graph may sample: begin and end of an iteration
  }
  [[nodiscard]] const End& last() const noexcept { return last_; }

  /// Enough iterations of few kinds whose samples go to the host: they may be told.
  [[nodiscard]] bool found() const noexcept { return ended_ >= kEnough && recurring_ >= 0.6 && talking_ >= 0.8; }
  /// Share of recent iterations whose make-up (classes that occur, length to a factor of two) was known, 0..1.
  [[nodiscard]] double recurring() const noexcept { return recurring_; }
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  /// Launches of one iteration: a moving average.
  [[nodiscard]] double mean_launches() const noexcept { return mean_launches_; }
  /// Of most recent iterations.
  [[nodiscard]] ServingKind usual_kind() const noexcept;
  static constexpr std::uint64_t kEnough = 6;

 private:
  static constexpr std::uint64_t kBurst = 12;  ///< samples and copies this close are of one iteration [launch]
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  bool take(KernelRole role) noexcept;
  bool mark(const KernelTraits& traits, std::uint64_t n) noexcept;
  void end_iteration() noexcept;

  KernelRole last_class_ = KernelRole::kOther;
  std::uint64_t seen_classes_ = 0;  ///< a bit each
  bool talks_ = false;              ///< what was sampled went to the host
  bool sampled_ = false;
  std::uint64_t end_ = 0;             ///< after the last sample or its copy
  std::uint64_t decide_at_ = kNever;  ///< when nothing more can belong to the burst
  std::uint64_t begin_ = 0;
  End last_;
  std::array<std::uint64_t, 64> known_{};
  std::uint64_t ended_ = 0;
  double recurring_ = 0, talking_ = 0, mean_launches_ = 0;
  std::array<std::uint32_t, 3> kinds_{};
};

}  // namespace mfu

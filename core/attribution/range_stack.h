// The NVTX push/pop ranges open on one host thread, over all domains.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/ids.h"

namespace mfu {

/// [owner thread] hot. No lock, no allocation. Push and pop pair up per domain, as NVTX says; regions of all domains
/// nest in the order in which they were opened.
class RangeStack {
 public:
  static constexpr std::uint32_t kMaxDepth = 128;  ///< deeper pushes are counted, not stored

  struct Frame {
    DomainId domain{};
    InstanceId instance = InstanceId::kNone;   ///< opened by this range: an instance, a part of one, or nothing
    InstanceId innermost = InstanceId::kNone;  ///< innermost region instance of the thread while this frame is on top
    RegionId region = RegionId::kNone;         ///< of the range itself
    std::uint16_t name = 0;                    ///< of a range that is no region, see MatchedRange
  };

  /// False below kMaxDepth: the level is counted, so that its pop stays balanced, but not stored.
  bool push(const Frame& frame) noexcept {
    if (depth_ >= kMaxDepth) {
      ++depth_;
      return false;
    }
    open_[depth_++] = frame;
    return true;
  }

  enum class Popped : std::uint8_t { kFrame, kTooDeep, kUnmatched };

  /// Removes the innermost frame of `domain`; `opened` is what it had opened. kTooDeep: it was never stored.
  /// kUnmatched: none is open. Its fields are read one by one: a copy of the whole frame right after its push would
  /// wait for the stores of all of them.
  Popped pop(DomainId domain, InstanceId& opened) noexcept {
    if (depth_ > kMaxDepth) {
      --depth_;
      return Popped::kTooDeep;
    }
    for (std::uint32_t i = depth_; i-- > 0;) {
      if (open_[i].domain != domain) continue;
      opened = open_[i].instance;
      if (i + 1 == depth_) [[likely]]
        --depth_;
      else
        remove(i);
      return Popped::kFrame;
    }
    return Popped::kUnmatched;
  }

  /// Innermost region instance; kNone outside every region.
  [[nodiscard]] InstanceId innermost() const noexcept {
    const std::uint32_t stored = stored_depth();
    return stored == 0 ? InstanceId::kNone : open_[stored - 1].innermost;
  }
  /// The instance of `region` that is open here already: a further range of it is a part, not an instance. A part
  /// whose instance is gone (domains may close out of order) is none.
  [[nodiscard]] InstanceId open_instance_of(RegionId region) const noexcept {
    for (std::uint32_t i = 0; i < stored_depth(); ++i)
      if (open_[i].region == region && open_[i].instance != InstanceId::kNone &&
          open_[i].instance == open_[i].innermost)
        return open_[i].instance;
    return InstanceId::kNone;
  }
  /// Of the innermost range, of no more than kMaxDepth; 0: it is a region, or there is none.
  [[nodiscard]] std::uint16_t name() const noexcept { return depth_ == 0 ? std::uint16_t{0} : open_[depth_ - 1].name; }
  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint32_t stored_depth() const noexcept { return depth_ < kMaxDepth ? depth_ : kMaxDepth; }
  [[nodiscard]] const Frame& frame(std::uint32_t i) const noexcept { return open_[i]; }
  void clear() noexcept { depth_ = 0; }

 private:
  /// Takes a frame out from among others: domains may close out of order.
  [[gnu::noinline]] void remove(std::uint32_t i) noexcept {
    const InstanceId gone = open_[i].instance;
    const InstanceId below = i == 0 ? InstanceId::kNone : open_[i - 1].innermost;
    for (std::uint32_t k = i + 1; k < depth_; ++k) {
      open_[k - 1] = open_[k];
      // Frames above that only inherited the innermost of the removed one now see what lay below it.
      if (gone != InstanceId::kNone && open_[k - 1].innermost == gone) open_[k - 1].innermost = below;
    }
    --depth_;
  }

  std::array<Frame, kMaxDepth> open_{};
  std::uint32_t depth_ = 0;  ///< counts past kMaxDepth too
};

}  // namespace mfu

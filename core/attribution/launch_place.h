// Where a launch went: its stream, the thread that made it, and what kind of launch it was. One word per launch.
#pragma once

#include <cstdint>

namespace mfu {

/// Streams are numbered by StreamLanes; threads by their place in Attribution's table.
class LaunchPlace {
 public:
  static constexpr std::uint32_t kUnknownLane = 0;
  static constexpr std::uint32_t kMaxLane = 0xFFFF, kMaxThread = 0x7FF;

  constexpr LaunchPlace() noexcept = default;
  constexpr explicit LaunchPlace(std::uint32_t word) noexcept : word_(word) {}

  [[nodiscard]] static constexpr LaunchPlace on(std::uint32_t lane) noexcept { return LaunchPlace(lane & kMaxLane); }
  /// A graph: its launch leaves many records.
  [[nodiscard]] constexpr LaunchPlace graph() const noexcept { return LaunchPlace(word_ | kGraph); }
  /// A programmatic dependent launch: it may begin before its predecessor on the stream has ended.
  [[nodiscard]] constexpr LaunchPlace programmatic() const noexcept { return LaunchPlace(word_ | kProgrammatic); }
  /// Made by the thread with this place in the thread table.
  [[nodiscard]] constexpr LaunchPlace by(std::uint32_t thread) const noexcept {
    return LaunchPlace((word_ & ~(kMaxThread << kThreadShift)) | (thread & kMaxThread) << kThreadShift);
  }
  /// [mfu-drain] No record is waited for any more.
  [[nodiscard]] constexpr LaunchPlace given_up() const noexcept { return LaunchPlace(word_ | kGivenUp); }
  /// [mfu-drain] One of its records has no usable time.
  [[nodiscard]] constexpr LaunchPlace untimed() const noexcept { return LaunchPlace(word_ | kUntimed); }

  [[nodiscard]] constexpr std::uint32_t lane() const noexcept { return word_ & kMaxLane; }
  [[nodiscard]] constexpr std::uint32_t thread() const noexcept { return word_ >> kThreadShift & kMaxThread; }
  [[nodiscard]] constexpr bool is_graph() const noexcept { return (word_ & kGraph) != 0; }
  [[nodiscard]] constexpr bool is_programmatic() const noexcept { return (word_ & kProgrammatic) != 0; }
  [[nodiscard]] constexpr bool is_given_up() const noexcept { return (word_ & kGivenUp) != 0; }
  [[nodiscard]] constexpr bool is_untimed() const noexcept { return (word_ & kUntimed) != 0; }
  [[nodiscard]] constexpr std::uint32_t word() const noexcept { return word_; }

 private:
  static constexpr std::uint32_t kThreadShift = 16;
  static constexpr std::uint32_t kGraph = 1u << 27, kProgrammatic = 1u << 28, kGivenUp = 1u << 29, kUntimed = 1u << 30;

  std::uint32_t word_ = 0;
};

}  // namespace mfu

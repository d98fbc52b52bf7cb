// The buffers that CUPTI writes activity records into.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/counters.h"

namespace mfu {

/// A bounded pool. [any thread] hot: CUPTI asks for a buffer on whatever host thread makes the first record of a batch.
///
/// CUPTI is told 256 KiB, since from 13.0 on every launching thread holds a buffer of its own. Each block is 8 MiB of
/// address space: other activity clients in the process may get our block when they take CUPTI over, and some free() it
/// or hand it on as an 8 MiB buffer of their own. Both are in bounds this way, and pages that nobody touches cost nothing.
class ActivityBuffers {
 public:
  static constexpr std::size_t kBlockBytes = (8u << 20) + 4096;
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::size_t kAdvertisedBytes = 256u << 10;  ///< 1,213 kernel records of CUPTI 13.0
  static constexpr std::uint32_t kMaxBlocks = 96;              ///< 24 MiB that CUPTI may fill before records are dropped
  static constexpr std::uint32_t kMaxSpare = 64;             ///< more of them where CUPTI cannot take "none" for an answer
  static constexpr std::size_t kSpareBytes = 16u << 10;

  /// \param null_allowed CUPTI 12.9 and newer drop records when they get no buffer; older ones crash.
  ActivityBuffers(Counters& counters, bool null_allowed) noexcept : counters_(counters), null_allowed_(null_allowed) {}

  /// A buffer of `size` bytes; nullptr and 0 when the cap is reached.
  std::uint8_t* request(std::size_t& size) noexcept;

  enum class Owner : std::uint8_t { kOurs, kSpare, kForeign };
  /// Whether `buffer` is one that was given out and not returned.
  [[nodiscard]] Owner owner_of(const std::uint8_t* buffer) const noexcept;
  /// The buffer is free again.
  void give_back(const std::uint8_t* buffer) noexcept;
  /// Memory that blocks ever advertised [B].
  [[nodiscard]] std::uint64_t advertised_bytes() const noexcept;

 private:
  enum State : std::uint32_t { kEmpty, kFree, kOut, kBusy };
  struct Block {
    std::atomic<std::uint32_t> state{kEmpty};
    std::atomic<std::uint8_t*> data{nullptr};
  };
  static std::uint8_t* allocate() noexcept;
  static std::uint8_t* take(Block* blocks, std::uint32_t count) noexcept;

  Counters& counters_;
  bool null_allowed_;
  std::array<Block, kMaxBlocks> blocks_;
  std::array<Block, kMaxSpare> spares_;
};

}  // namespace mfu

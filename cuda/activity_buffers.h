// The buffers that CUPTI writes activity records into.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/counters.h"

namespace mfu {

/// A bounded pool. [any thread] hot: CUPTI asks for a buffer on whatever host thread makes the first record of a batch.
///
/// CUPTI is told at most 1 MiB, but each block is 8 MiB of address space: other activity clients in the process may get
/// our block when they take CUPTI over, and some free() it or hand it on as an 8 MiB buffer of their own. Both are in
/// bounds this way, and pages that nobody touches cost nothing.
class ActivityBuffers {
 public:
  static constexpr std::size_t kBlockBytes = (8u << 20) + 4096;
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::uint32_t kMaxBlocks = 512;  ///< 31 MiB that CUPTI may fill before records are dropped
  static constexpr std::uint32_t kMaxSpare = 64;    ///< more of them where CUPTI cannot take "none" for an answer
  static constexpr std::size_t kSpareBytes = 64u << 10;

  /// \param null_allowed CUPTI 12.9 and newer drop records when they get no buffer; older ones crash.
  ActivityBuffers(Counters& counters, bool null_allowed) noexcept : counters_(counters), null_allowed_(null_allowed) {}

  /// What CUPTI is told of block `i` [B]. From 13.0 on every thread that launches holds a buffer: the first ones get
  /// 4,854 kernel records each, further ones less, so that hundreds of threads fit into the same memory. The lowest
  /// free block is taken first.
  [[nodiscard]] static constexpr std::size_t size_of_block(std::uint32_t i) noexcept {
    return i < 12 ? 1u << 20 : i < 64 ? 96u << 10 : 32u << 10;
  }

  /// A buffer of `size` bytes; nullptr and 0 when the cap is reached.
  std::uint8_t* request(std::size_t& size) noexcept;

  enum class Owner : std::uint8_t { kOurs, kSpare, kForeign };
  /// Whether `buffer` is one that was given out and not returned; `size`: what CUPTI was told of it.
  [[nodiscard]] Owner owner_of(const std::uint8_t* buffer, std::size_t& size) const noexcept;
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
  static std::uint8_t* take(Block* blocks, std::uint32_t count, std::uint32_t& index) noexcept;

  Counters& counters_;
  bool null_allowed_;
  std::array<Block, kMaxBlocks> blocks_;
  std::array<Block, kMaxSpare> spares_;
};

}  // namespace mfu

// The buffers that CUPTI writes activity records into.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/counters.h"
#include "core/base/units.h"

namespace mfu {

/// A bounded pool. [any thread] hot: CUPTI asks for a buffer on the host thread that makes the first record of a batch.
///
/// Buffers are small at first and grow with the rate of records. CUPTI keeps a buffer back as long as one record in it
/// is incomplete, and on a busy GPU the newest record always is: so a buffer comes back when it is full and the GPU has
/// worked it off, and what is in it is known that much later. A buffer that holds what its thread makes in
/// kFillTime is never more than that behind, however slow the kernels are.
///
/// CUPTI learns of at most kLargest, but each block is 8 MiB of address space: other activity clients in the process
/// may get our block when they take CUPTI over, and some free() it or hand it on as an 8 MiB buffer. Both
/// are in bounds this way, and untouched pages cost nothing.
class ActivityBuffers {
 public:
  static constexpr std::size_t kBlockBytes = (8u << 20) + 4096;
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::uint32_t kMaxBlocks = 512;
  static constexpr std::size_t kSmallest = 32u << 10;  ///< 150 kernel records of CUPTI 13.0
  static constexpr std::size_t kLargest = 1u << 20;    ///< 4,854 of them
  /// Bytes of all blocks beyond kSmallest each: 31 MiB that CUPTI may fill before records are dropped.
  static constexpr std::size_t kMaxGrowth = 15u << 20;
  static constexpr DurationNs kFillTime = 100'000'000;
  static constexpr std::uint32_t kMaxSpare = 64;  ///< more of them where CUPTI cannot take "none" for an answer
  static constexpr std::size_t kSpareBytes = 64u << 10;
  static constexpr std::uint32_t kLanes = 64;
  /// A thread that makes few records gets them back by number: so many in kFillTime, but no fewer than this.
  static constexpr std::uint32_t kFewestRecords = 8;
  static constexpr std::uint32_t kUsualRecord = 216;  ///< a kernel record of CUPTI 13.0 [B]
  static constexpr std::uint32_t kMostCounted = 4;    ///< buffers of a lane that are cut short at a time
  /// No device record of any CUPTI is shorter: a memset of 11.x takes 80 bytes, of 13.x 104.
  static constexpr std::size_t kShortestRecord = 80;

  /// \param null_allowed CUPTI 12.9 and newer drop records when they get no buffer; older ones crash.
  ActivityBuffers(Counters& counters, bool null_allowed) noexcept : counters_(counters), null_allowed_(null_allowed) {}

  /// A buffer of `size` bytes for at most `records` records (0: as many as fit); nullptr and 0 when the cap is reached.
  /// `lane`: any number that distinguishes the calling thread; each lane has a separate rate, since from
  /// CUPTI 13.0 on each thread fills separate buffers.
  std::uint8_t* request(std::uint32_t lane, std::size_t& size, std::size_t& records) noexcept;

  enum class Owner : std::uint8_t { kOurs, kSpare, kForeign };
  /// Whether `buffer` is one that was given out and not returned; `size`: as CUPTI has it.
  [[nodiscard]] Owner owner_of(const std::uint8_t* buffer, std::size_t& size) const noexcept;
  /// The buffer is free again; it came back at `now` with `used` bytes in it.
  void give_back(const std::uint8_t* buffer, std::size_t used, TimeNs now) noexcept;
  /// Memory that blocks ever advertised [B].
  [[nodiscard]] std::uint64_t advertised_bytes() const noexcept;
  /// Room in the buffers that CUPTI has at this moment [B].
  [[nodiscard]] std::uint64_t bytes_out() const noexcept { return bytes_out_.load(std::memory_order_relaxed); }

 private:
  enum State : std::uint32_t { kEmpty, kFree, kOut, kBusy };
  struct Block {
    std::atomic<std::uint32_t> state{kEmpty};
    std::atomic<std::uint32_t> lane{0};
    std::atomic<std::uint32_t> advertised{0};  ///< the size that CUPTI has this time [B]
    std::atomic<std::uint32_t> reached{0};     ///< the largest that it ever had [B]
    std::atomic<std::uint8_t*> data{nullptr};
  };
  struct Lane {
    std::atomic<TimeNs> since{0};
    std::atomic<std::uint64_t> bytes{0};  ///< that came back since then
    std::atomic<std::uint32_t> wanted{kSmallest};
    std::atomic<std::uint32_t> records{0};  ///< most that a buffer is to hold; 0: as many as fit
    std::atomic<std::uint32_t> out{0};      ///< buffers that CUPTI has
  };
  static std::uint8_t* allocate() noexcept;
  static Block* take(Block* blocks, std::uint32_t count) noexcept;
  [[nodiscard]] std::size_t size_for(Block& block, std::size_t wanted) noexcept;

  Counters& counters_;
  bool null_allowed_;
  std::atomic<std::uint64_t> bytes_out_{0};
  std::atomic<std::uint64_t> growth_{0};  ///< sum over the blocks of what they reached beyond kSmallest [B]
  std::array<Lane, kLanes> lanes_;
  std::array<Block, kMaxBlocks> blocks_;
  std::array<Block, kMaxSpare> spares_;
};

}  // namespace mfu

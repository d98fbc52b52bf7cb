// Hand-off of decoded records from CUPTI's callbacks to the drain: fixed memory, never waits.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/base/activity_record.h"
#include "core/base/zeroed_array.h"

namespace mfu {

/// A bounded queue for any number of producers and consumers. push and pop never wait: they fail when it is full or
/// empty. Each cell carries the turn it is in, so a producer and a consumer agree on it without a lock
/// (D. Vyukov's bounded MPMC scheme). Its memory is touched as far as it is used: a cell holds its turn less its index,
/// and so is zero at first. `kSize` is a power of two.
template <typename T, std::size_t kSize>
class BoundedQueue {
  static_assert((kSize & (kSize - 1)) == 0);

 public:
  bool push(const T& value) noexcept {
    return take_turn(tail_, 0, 1, [&value](T& cell) { cell = value; });
  }
  bool pop(T& value) noexcept {
    return take_turn(head_, 1, kSize, [&value](const T& cell) { value = cell; });
  }

 private:
  struct Cell {
    std::atomic<std::size_t> turn;
    T value;
  };

  /// Takes the cell at `end` once its turn is `due` after the number of the cell; it is `next` after it then.
  template <typename Use>
  bool take_turn(std::atomic<std::size_t>& end, std::size_t due, std::size_t next, Use use) noexcept {
    std::size_t at = end.load(std::memory_order_relaxed);
    while (cells_.size() != 0) {
      const std::size_t index = at % kSize;
      Cell& cell = cells_[index];
      const auto ahead = static_cast<std::ptrdiff_t>(cell.turn.load(std::memory_order_acquire) + index - (at + due));
      if (ahead < 0) break;
      if (ahead > 0) {
        at = end.load(std::memory_order_relaxed);
      } else if (end.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        use(cell.value);
        cell.turn.store(at + next - index, std::memory_order_release);
        return true;
      }
    }
    return false;
  }

  ZeroedArray<Cell> cells_{kSize};
  alignas(64) std::atomic<std::size_t> tail_{0};
  alignas(64) std::atomic<std::size_t> head_{0};
};

/// Up to kRecords decoded records.
struct RecordBatch {
  static constexpr std::uint32_t kRecords = 4096;
  std::uint32_t count;
  std::array<ActivityRecord, kRecords> records;
};

/// A fixed number of batches that go round: take an empty one, fill it, send it, receive it, give it back.
class RecordQueue {
 public:
  static constexpr std::size_t kBatches = 64;  ///< 12 MiB, touched only as far as they are ever used at once

  /// [decoding thread] A batch with room for more, or nullptr when all are on their way.
  [[nodiscard]] RecordBatch* take() noexcept {
    RecordBatch* batch = open_.exchange(nullptr, std::memory_order_acq_rel);
    if (batch != nullptr) return batch;
    // The lowest free one: the few that are enough stay in the cache, and the rest of the memory stays untouched.
    std::uint64_t free = free_.load(std::memory_order_acquire);  // pairs with give_back
    do {
      if (free == 0 || batches_.size() == 0) return nullptr;
    } while (!free_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire));
    batch = &batches_[static_cast<std::size_t>(std::countr_zero(free))];
    batch->count = 0;
    return batch;
  }
  /// [decoding thread] A batch with little in it stays open for the next one to add to: CUPTI may hand back hundreds of
  /// buffers with a few records each.
  void send(RecordBatch* batch) noexcept {
    if (batch->count < RecordBatch::kRecords / 2) batch = open_.exchange(batch, std::memory_order_acq_rel);
    if (batch != nullptr) full_.push(batch);  // never full: no more batches than cells
  }
  /// [mfu-drain]
  [[nodiscard]] RecordBatch* receive() noexcept {
    RecordBatch* batch = nullptr;
    return full_.pop(batch) ? batch : open_.exchange(nullptr, std::memory_order_acq_rel);
  }
  void give_back(RecordBatch* batch) noexcept {
    free_.fetch_or(1ull << (batch - batches_.data()), std::memory_order_release);
  }
  [[nodiscard]] std::size_t resident_bytes() const noexcept { return batches_.resident_bytes(); }

 private:
  ZeroedArray<RecordBatch> batches_{kBatches};
  std::atomic<std::uint64_t> free_{~0ull};  ///< bit i: batch i is free
  static_assert(kBatches == 64);
  BoundedQueue<RecordBatch*, kBatches> full_;
  std::atomic<RecordBatch*> open_{nullptr};  ///< sent, and to be filled up
};

}  // namespace mfu

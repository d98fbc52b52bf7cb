#include "cuda/activity_buffers.h"

#include <cstdlib>

namespace mfu {

std::uint8_t* ActivityBuffers::allocate() noexcept {
  // malloc'ed on purpose: a stranger may free() it.
  return static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBlockBytes));
}

std::uint8_t* ActivityBuffers::take(Block* blocks, std::uint32_t count, std::uint32_t& index) noexcept {
  // First-fit keeps the same few blocks, and so the same few touched pages, in use.
  for (std::uint32_t i = 0; i < count; ++i) {
    index = i;
    std::uint32_t expected = kFree;
    if (blocks[i].state.load(std::memory_order_relaxed) == kFree &&
        blocks[i].state.compare_exchange_strong(expected, kOut, std::memory_order_acq_rel))
      return blocks[i].data.load(std::memory_order_relaxed);
    expected = kEmpty;
    if (blocks[i].state.load(std::memory_order_relaxed) != kEmpty ||
        !blocks[i].state.compare_exchange_strong(expected, kBusy, std::memory_order_acq_rel))
      continue;
    std::uint8_t* data = allocate();
    blocks[i].data.store(data, std::memory_order_release);
    blocks[i].state.store(data != nullptr ? kOut : kEmpty, std::memory_order_release);
    return data;
  }
  return nullptr;
}

std::uint8_t* ActivityBuffers::request(std::size_t& size) noexcept {
  std::uint32_t index = 0;
  if (std::uint8_t* data = take(blocks_.data(), kMaxBlocks, index)) {
    size = size_of_block(index);
    return data;
  }
  counters_.add(Counter::kBuffersExhausted);
  size = 0;
  if (null_allowed_) return nullptr;
  // What lands in a spare is thrown away, but CUPTI before 12.9 does not survive an empty answer.
  std::uint8_t* spare = take(spares_.data(), kMaxSpare, index);
  if (spare != nullptr) size = kSpareBytes;
  return spare;
}

ActivityBuffers::Owner ActivityBuffers::owner_of(const std::uint8_t* buffer, std::size_t& size) const noexcept {
  const auto owner = [](const Block& b, Owner ours) {
    return b.state.load(std::memory_order_acquire) == kOut ? ours : Owner::kForeign;
  };
  for (std::uint32_t i = 0; i < kMaxBlocks; ++i) {
    size = size_of_block(i);
    if (blocks_[i].data.load(std::memory_order_acquire) == buffer) return owner(blocks_[i], Owner::kOurs);
  }
  size = kSpareBytes;
  for (const Block& b : spares_)
    if (b.data.load(std::memory_order_acquire) == buffer) return owner(b, Owner::kSpare);
  return Owner::kForeign;
}

void ActivityBuffers::give_back(const std::uint8_t* buffer) noexcept {
  for (Block& b : blocks_)
    if (b.data.load(std::memory_order_acquire) == buffer) b.state.store(kFree, std::memory_order_release);
  for (Block& b : spares_)
    if (b.data.load(std::memory_order_acquire) == buffer) b.state.store(kFree, std::memory_order_release);
}

std::uint64_t ActivityBuffers::advertised_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < kMaxBlocks; ++i)
    if (blocks_[i].data.load(std::memory_order_relaxed) != nullptr) sum += size_of_block(i);
  for (const Block& b : spares_)
    if (b.data.load(std::memory_order_relaxed) != nullptr) sum += kSpareBytes;
  return sum;
}

}  // namespace mfu

#include "cuda/activity_buffers.h"

#include <algorithm>
#include <bit>

namespace mfu {

std::uint8_t* ActivityBuffers::allocate() noexcept {
  // malloc'ed on purpose: a stranger may free() it.
  return static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBlockBytes));
}

ActivityBuffers::Block* ActivityBuffers::take(Block* blocks, std::uint32_t count) noexcept {
  // First-fit keeps the same few blocks, and so the same few touched pages, in use.
  for (std::uint32_t i = 0; i < count; ++i) {
    Block& block = blocks[i];
    const std::uint32_t state = block.state.load(std::memory_order_relaxed);
    std::uint32_t expected = kFree;
    if (state == kFree && block.state.compare_exchange_strong(expected, kBusy, std::memory_order_acq_rel))
      return &block;
    expected = kEmpty;
    if (state != kEmpty || !block.state.compare_exchange_strong(expected, kBusy, std::memory_order_acq_rel)) continue;
    std::uint8_t* data = allocate();
    block.data.store(data, std::memory_order_release);
    if (data != nullptr) return &block;
    block.state.store(kEmpty, std::memory_order_release);
    return nullptr;
  }
  return nullptr;
}

/// As much of `wanted` as the cap on growth allows; a block may always hold what it held before.
std::size_t ActivityBuffers::size_for(Block& block, std::size_t wanted) noexcept {
  const std::size_t reached = block.reached.load(std::memory_order_relaxed);
  if (wanted <= reached) return wanted;
  const std::size_t kept = std::max(reached, kSmallest);
  const std::uint64_t more = wanted - kept;
  if (growth_.fetch_add(more, std::memory_order_relaxed) + more > kMaxGrowth) {
    growth_.fetch_sub(more, std::memory_order_relaxed);
    wanted = kept;
  }
  block.reached.store(static_cast<std::uint32_t>(wanted), std::memory_order_relaxed);
  return wanted;
}

std::uint8_t* ActivityBuffers::request(std::uint32_t lane_index, std::size_t& size, std::size_t& records) noexcept {
  lane_index %= kLanes;
  records = 0;
  if (Block* block = take(blocks_.data(), kMaxBlocks)) {
    // A long backlog (a CUDA graph of thousands of nodes, launched ahead) may come in larger pieces: a 32nd of it at a
    // time is small enough, and the blocks last for 32 times as much.
    const std::size_t backlog = std::bit_floor(std::min(bytes_out() / 32 + 1, std::uint64_t{kLargest}));
    Lane& lane = lanes_[lane_index];
    const std::size_t wanted = std::max<std::size_t>(lane.wanted.load(std::memory_order_relaxed), backlog);
    // Where many wait already, the thread has become faster than it was: no more short ones.
    if (lane.out.fetch_add(1, std::memory_order_relaxed) < kMostCounted)
      records = lane.records.load(std::memory_order_relaxed);
    size = size_for(*block, wanted);
    block->lane.store(lane_index, std::memory_order_relaxed);
    block->advertised.store(static_cast<std::uint32_t>(size), std::memory_order_relaxed);
    bytes_out_.fetch_add(size, std::memory_order_relaxed);
    std::uint8_t* data = block->data.load(std::memory_order_relaxed);
    block->state.store(kOut, std::memory_order_release);
    return data;
  }
  counters_.add(Counter::kBuffersExhausted);
  size = 0;
  if (null_allowed_) return nullptr;
  // Records in a spare are thrown away, but CUPTI before 12.9 does not survive an empty answer.
  Block* spare = take(spares_.data(), kMaxSpare);
  if (spare == nullptr) return nullptr;
  size = kSpareBytes;
  spare->state.store(kOut, std::memory_order_release);
  return spare->data.load(std::memory_order_relaxed);
}

ActivityBuffers::Owner ActivityBuffers::owner_of(const std::uint8_t* buffer, std::size_t& size) const noexcept {
  const auto owner = [](const Block& b, Owner ours) {
    return b.state.load(std::memory_order_acquire) == kOut ? ours : Owner::kForeign;
  };
  size = 0;
  for (const Block& b : blocks_) {
    if (b.data.load(std::memory_order_acquire) != buffer) continue;
    const Owner found = owner(b, Owner::kOurs);
    size = b.advertised.load(std::memory_order_relaxed);
    return found;
  }
  size = kSpareBytes;
  for (const Block& b : spares_)
    if (b.data.load(std::memory_order_acquire) == buffer) return owner(b, Owner::kSpare);
  return Owner::kForeign;
}

void ActivityBuffers::give_back(const std::uint8_t* buffer, std::size_t used, TimeNs now) noexcept {
  for (Block& b : blocks_) {
    if (b.data.load(std::memory_order_acquire) != buffer) continue;
    bytes_out_.fetch_sub(b.advertised.load(std::memory_order_relaxed), std::memory_order_relaxed);
    Lane& lane = lanes_[b.lane.load(std::memory_order_relaxed)];
    b.state.store(kFree, std::memory_order_release);
    lane.out.fetch_sub(1, std::memory_order_relaxed);
    lane.bytes.fetch_add(used, std::memory_order_relaxed);
    TimeNs since = lane.since.load(std::memory_order_relaxed);
    if (now - since < kFillTime || !lane.since.compare_exchange_strong(since, now, std::memory_order_relaxed)) return;
    const std::uint64_t bytes = lane.bytes.exchange(0, std::memory_order_relaxed);
    if (since == 0) return;  // the first one has no rate
    const double fill = static_cast<double>(bytes) * static_cast<double>(kFillTime) / static_cast<double>(now - since);
    const auto wanted = static_cast<std::uint64_t>(std::min(fill, static_cast<double>(kLargest)));
    lane.wanted.store(static_cast<std::uint32_t>(std::bit_floor(std::max<std::uint64_t>(wanted, kSmallest))),
                      std::memory_order_relaxed);
    lane.records.store(
        wanted < kSmallest ? std::max(kFewestRecords, static_cast<std::uint32_t>(wanted / kUsualRecord)) : 0,
        std::memory_order_relaxed);
    return;
  }
  for (Block& b : spares_)
    if (b.data.load(std::memory_order_acquire) == buffer) b.state.store(kFree, std::memory_order_release);
}

std::uint64_t ActivityBuffers::advertised_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Block& b : blocks_) sum += b.reached.load(std::memory_order_relaxed);
  for (const Block& b : spares_)
    if (b.data.load(std::memory_order_relaxed) != nullptr) sum += kSpareBytes;
  return sum;
}

}  // namespace mfu

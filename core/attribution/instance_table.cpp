#include "core/attribution/instance_table.h"

namespace mfu {

InstanceSlot* InstanceTable::claim(InstanceId& id) noexcept {
  if (slots_.size() == 0) return nullptr;
  const std::uint64_t sequence = next_.fetch_add(1, std::memory_order_acq_rel);
  id = id_of(sequence);
  InstanceSlot& s = slot(id);
  // An exchange, since another thread that was held up between claim and publish may be a whole table behind.
  std::uint32_t expected = InstanceSlot::kFree;
  if (!s.state.compare_exchange_strong(expected, InstanceSlot::kClaimed,
                                       std::memory_order_seq_cst,  // pairs with release() and at_sequence()
                                       std::memory_order_relaxed)) {
    refuse(s, sequence);
    id = InstanceId::kNone;
    return nullptr;
  }
  if (s.refused.load(std::memory_order_seq_cst) > sequence) [[unlikely]] {
    // This thread was held up for a whole table: the drain takes it that a claim before a refused one is over.
    s.state.store(InstanceSlot::kFree, std::memory_order_release);
    refuse(s, sequence);
    id = InstanceId::kNone;
    return nullptr;
  }
  s.id = id;
  s.context.store(0, std::memory_order_relaxed);
  s.close_ticks = 0;
  return &s;
}

void InstanceTable::refuse(InstanceSlot& slot, std::uint64_t sequence) noexcept {
  counters_.add(Counter::kInstancesFull);
  std::uint64_t newest = slot.refused.load(std::memory_order_relaxed);
  while (newest <= sequence && !slot.refused.compare_exchange_weak(newest, sequence + 1, std::memory_order_seq_cst,
                                                                   std::memory_order_relaxed)) {
  }
}

void InstanceTable::close(InstanceId id, Ticks ticks, std::uint32_t context) noexcept {
  InstanceSlot& s = slot(id);
  if (s.state.load(std::memory_order_relaxed) != InstanceSlot::kOpen || s.id != id) return;
  s.close_ticks = ticks;
  s.context.store(context, std::memory_order_relaxed);
  s.state.store(InstanceSlot::kClosed, std::memory_order_release);  // pairs with the drain's acquire
}

InstanceSlot* InstanceTable::at_sequence(std::uint64_t sequence, bool& pending) noexcept {
  InstanceSlot& s = slot(id_of(sequence));
  // In this order: a claim that was there before the refusal of a later one is seen in the state.
  const std::uint64_t refused = s.refused.load(std::memory_order_seq_cst);
  const std::uint32_t state = s.state.load(std::memory_order_seq_cst);
  const bool published = state == InstanceSlot::kOpen || state == InstanceSlot::kClosed;
  pending = false;
  if (published && s.id == id_of(sequence)) return &s;
  // The thread that has the slot now may have claimed it before or after: only a refusal says that it never comes.
  if (refused != sequence + 1) pending = state == InstanceSlot::kClaimed || refused <= sequence;
  return nullptr;
}

}  // namespace mfu

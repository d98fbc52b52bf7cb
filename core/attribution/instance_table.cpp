#include "core/attribution/instance_table.h"

namespace mfu {

InstanceSlot* InstanceTable::claim(InstanceId& id) noexcept {
  if (slots_.size() == 0) return nullptr;
  const std::uint32_t sequence = next_.fetch_add(1, std::memory_order_acq_rel);
  id = id_of(sequence);
  InstanceSlot& s = slot(id);
  // An exchange, since another thread that was held up between claim and publish may be a whole table behind.
  std::uint32_t expected = InstanceSlot::kFree;
  if (!s.state.compare_exchange_strong(expected, InstanceSlot::kClaimed,
                                       std::memory_order_acquire,  // pairs with release()
                                       std::memory_order_relaxed)) {
    counters_.add(Counter::kInstancesFull);
    id = InstanceId::kNone;
    return nullptr;
  }
  s.id = id;
  s.context.store(0, std::memory_order_relaxed);
  s.close_ticks = 0;
  s.shape = {};
  return &s;
}

void InstanceTable::close(InstanceId id, Ticks ticks, std::uint32_t context) noexcept {
  InstanceSlot& s = slot(id);
  if (s.state.load(std::memory_order_relaxed) != InstanceSlot::kOpen || s.id != id) return;
  s.close_ticks = ticks;
  s.context.store(context, std::memory_order_relaxed);
  s.state.store(InstanceSlot::kClosed, std::memory_order_release);  // pairs with the drain's acquire
}

InstanceSlot* InstanceTable::at_sequence(std::uint32_t sequence, bool& pending) noexcept {
  InstanceSlot& s = slot(id_of(sequence));
  pending = false;
  const std::uint32_t state = s.state.load(std::memory_order_acquire);
  if (state == InstanceSlot::kFree || state == InstanceSlot::kClaimed) {
    pending = true;  // not published yet
    return nullptr;
  }
  // Another id in the slot means that it was taken when this one was claimed: counted there, never to come.
  return s.id == id_of(sequence) ? &s : nullptr;
}

}  // namespace mfu

#include "core/drain/instance_feed.h"

#include <algorithm>

namespace mfu {

const std::vector<InstanceFeed::Event>& InstanceFeed::take() {
  events_.clear();
  while (chunks_ != table_.chunks_taken()) unpublished_.push_back(table_.chunk(chunks_++));
  std::size_t left = 0;
  for (InstanceTable::Share chunk : unpublished_) {
    for (; chunk.left != 0; ++chunk.next, --chunk.left) {
      InstanceSlot& slot = table_.slot(static_cast<InstanceId>(chunk.next));
      if (slot.state.load(std::memory_order_acquire) == InstanceSlot::kFree) break;
      events_.push_back({clock_.to_ns(slot.open_ticks), Event::kOpen, &slot});
      open_.push_back(&slot);
    }
    if (chunk.left != 0) unpublished_[left++] = chunk;
  }
  unpublished_.resize(left);
  // From the newest on, so that of two that close at one moment the inner one comes first.
  std::size_t kept = open_.size();
  for (std::size_t i = open_.size(); i-- > 0;) {
    InstanceSlot* slot = open_[i];
    if (slot->state.load(std::memory_order_acquire) == InstanceSlot::kClosed)
      events_.push_back({clock_.to_ns(slot->close_ticks),
                         slot->close_ticks > slot->open_ticks ? Event::kCloseEarlier : Event::kClose, slot});
    else
      open_[--kept] = slot;
  }
  open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(kept));
  std::stable_sort(events_.begin(), events_.end(),
                   [](const Event& a, const Event& b) { return a.at != b.at ? a.at < b.at : a.order < b.order; });
  return events_;
}

}  // namespace mfu

#include "core/drain/instance_feed.h"

#include <algorithm>

namespace mfu {

const std::vector<InstanceFeed::Event>& InstanceFeed::take() {
  events_.clear();
  for (const std::uint64_t end = table_.chunks_taken(); chunks_ != end; ++chunks_)
    unpublished_.push_back(table_.chunk(chunks_));
  std::erase_if(unpublished_, [this](InstanceTable::Share& chunk) {
    for (; chunk.left != 0; ++chunk.next, --chunk.left) {
      InstanceSlot& slot = table_.slot(static_cast<InstanceId>(chunk.next));
      if (slot.state.load(std::memory_order_acquire) == InstanceSlot::kFree) return false;
      events_.push_back({clock_.to_ns(slot.open_ticks), Event::kOpen, &slot});
      open_.push_back(&slot);
    }
    return true;
  });
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

#include "core/detect/launch_history.h"

namespace mfu {

/// Its slot, or a new one; nullptr: half of the table is taken.
StretchComparison::Count* StretchComparison::find(std::uint32_t key) noexcept {
  std::uint32_t at = (key * 0x9E37'79B9u) >> (32 - kSlotBits);
  while (counts_[at].key != 0 && counts_[at].key != key + 1) at = (at + 1) % kSlots;
  if (counts_[at].key == 0) {
    if (used_.size() == kSlots / 2) return nullptr;
    counts_[at].key = key + 1;
    used_.push_back(at);
  }
  return &counts_[at];
}

double StretchComparison::likeness(const LaunchHistory& history, LaunchPosition a, LaunchPosition a_end,
                                   LaunchPosition b, LaunchPosition b_end) {
  const std::uint64_t longer = std::max(a_end - a, b_end - b), shorter = std::min(a_end - a, b_end - b);
  if (shorter == 0 || a < history.oldest() || b < history.oldest()) return 0;
  used_.reserve(kSlots / 2);
  bool room = true;
  std::uint64_t common = 0;
  for (LaunchPosition p = a; p < a_end && room; ++p) {
    Count* const count = find(history.key(p));
    room = count != nullptr;
    if (room) ++count->count;
  }
  for (LaunchPosition p = b; p < b_end && room; ++p) {
    Count* const count = find(history.key(p));
    room = count != nullptr;
    if (room && count->count-- > 0) ++common;
  }
  for (const std::uint32_t at : used_) counts_[at] = {};
  used_.clear();
  return room ? static_cast<double>(common) / static_cast<double>(longer) : 0;
}

}  // namespace mfu

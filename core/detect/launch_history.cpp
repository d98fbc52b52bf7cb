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
  std::uint64_t common = 0;
  const auto add = [&](LaunchPosition p, std::int32_t sign) {  // counts: those of the first less those of the second
    Count* const count = find(history.key(p));
    if (count == nullptr) return false;
    common += count->count * sign < 0 ? 1 : 0;
    count->count += sign;
    return true;
  };
  bool room = true;
  for (std::uint64_t i = 0; i < longer && room; ++i) {
    const bool first = i < a_end - a, second = i < b_end - b;
    if (first && second && history.key(a + i) == history.key(b + i))
      ++common;  // as most steps repeat, launch by launch
    else
      room = (!first || add(a + i, 1)) && (!second || add(b + i, -1));
  }
  for (const std::uint32_t at : used_) counts_[at] = {};
  used_.clear();
  return room ? static_cast<double>(common) / static_cast<double>(longer) : 0;
}

}  // namespace mfu

#include "tools/run_dir/seq_set.h"

namespace mfu {

bool SeqSet::insert(std::uint64_t seq) {
  auto after = ranges_.upper_bound(seq);
  const auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
  if (before != ranges_.end() && seq <= before->second) return false;
  const bool joins_before = before != ranges_.end() && before->second + 1 == seq;
  const bool joins_after = after != ranges_.end() && after->first == seq + 1;
  if (joins_before && joins_after) {
    before->second = after->second;
    ranges_.erase(after);
  } else if (joins_before) {
    before->second = seq;
  } else if (joins_after) {
    const std::uint64_t last = after->second;
    ranges_.erase(after);
    ranges_.emplace(seq, last);
  } else if (ranges_.size() < kMostRanges) {
    ranges_.emplace(seq, seq);
  }
  return true;
}

std::uint64_t SeqSet::missing() const noexcept {
  std::uint64_t missing = 0;
  for (auto at = ranges_.begin(); at != ranges_.end() && std::next(at) != ranges_.end(); ++at)
    missing += std::next(at)->first - at->second - 1;
  return missing;
}

std::string SeqSet::missing_text() const {
  constexpr int kShown = 4;
  std::string text;
  int shown = 0;
  for (auto at = ranges_.begin(); at != ranges_.end() && std::next(at) != ranges_.end(); ++at) {
    if (shown++ == kShown) return text + ", ...";
    const std::uint64_t first = at->second + 1, last = std::next(at)->first - 1;
    text += (text.empty() ? "" : ", ") + std::to_string(first) + (first == last ? "" : "-" + std::to_string(last));
  }
  return text;
}

}  // namespace mfu

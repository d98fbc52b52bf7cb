#include "core/drain/held_records.h"

#include <algorithm>
#include <utility>

namespace mfu {

std::span<HeldRecord> HeldRecords::waiting_until(CorrelationId complete) {
  if (!in_order_) put_in_order();
  const auto first = records_.begin() + static_cast<std::ptrdiff_t>(taken_);
  const auto rest = std::partition_point(
      first, records_.end(), [complete](const HeldRecord& held) { return !newer(held.record.correlation, complete); });
  return {first, rest};
}

void HeldRecords::take_all() {
  if (!in_order_) put_in_order();
  taken_ = records_.size();
}

/// Most of them are looked at once, not each time.
TimeNs HeldRecords::earliest_begin() {
  if (front_ >= known_until_) look_at_all();
  const std::size_t next = (front_ - known_from_) / kBlock + 1;
  TimeNs earliest = std::min(later_, earliest_[next]);
  for (std::size_t i = front_; i < std::min(known_from_ + next * kBlock, known_until_); ++i)
    earliest = std::min(earliest, records_[i].record.begin_ns);
  return earliest;
}

void HeldRecords::look_at_all() {
  known_from_ = front_, known_until_ = taken_, later_ = kNone;
  for (const HeldRecord& held : waiting()) later_ = std::min(later_, held.record.begin_ns);
  earliest_.assign((known_until_ - known_from_) / kBlock + 2, kNone);
  for (std::size_t i = known_until_; i-- > known_from_;) {
    const std::size_t block = (i - known_from_) / kBlock;
    earliest_[block] = std::min({earliest_[block], earliest_[block + 1], records_[i].record.begin_ns});
  }
}

/// Most records come in the order of launches, all of one stream's do; the others are taken out and merged.
void HeldRecords::put_in_order() {
  const std::span<HeldRecord> all = std::span(records_).subspan(taken_);
  late_.clear();
  std::size_t kept = 0;
  for (const HeldRecord& held : all) {
    if (kept == 0 || !comes_before(held, all[kept - 1])) {
      all[kept++] = held;
    } else if (kept >= 2 && !comes_before(held, all[kept - 2])) {
      // The one before came too early, as work of a stream does that has nothing else to do.
      late_.push_back(all[kept - 1]);
      all[kept - 1] = held;
    } else {
      late_.push_back(held);
    }
  }
  // Those of another stream that lags behind are in order among themselves.
  if (!std::is_sorted(late_.begin(), late_.end(), comes_before))
    std::stable_sort(late_.begin(), late_.end(), comes_before);
  // From the last one to the first, so that nothing is overwritten that has no place yet.
  for (std::size_t to = all.size(), late = late_.size(); late != 0;) {
    const bool is_late = kept == 0 || !comes_before(late_[late - 1], all[kept - 1]);
    all[--to] = is_late ? late_[--late] : all[--kept];
  }
  in_order_ = true;
}

void HeldRecords::drop_before(const HeldRecord* until) noexcept {
  most_ = std::max(most_, records_.size() - front_);
  front_ = static_cast<std::size_t>(until - records_.data());
  if (front_ != records_.size()) return;
  front_ = taken_ = known_until_ = 0;
  records_.clear();
  // Memory of a burst that is over since the last time is free for others.
  if (std::exchange(most_, 0) * 8 >= used_ || used_ <= kLittle) return;
  used_ = 0;
  std::vector<HeldRecord>().swap(records_);
  std::vector<HeldRecord>().swap(late_);
}

/// Moves what is there to the beginning of the memory: seldom, when a quarter of it was let go of.
void HeldRecords::close_up() {
  records_.erase(records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(front_));
  taken_ -= front_;
  known_from_ -= front_;  // it may wrap; its distance from front_ is right all the same
  known_until_ -= std::min(known_until_, front_);
  front_ = 0;
}

}  // namespace mfu

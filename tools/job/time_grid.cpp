#include "tools/job/time_grid.h"

#include <algorithm>

namespace mfu {
namespace {

void widen(std::optional<double>& lowest, std::optional<double>& highest, std::optional<double> low,
           std::optional<double> high) {
  if (low && (!lowest || *low < *lowest)) lowest = low;
  if (high && (!highest || *high > *highest)) highest = high;
}

}  // namespace

void TimeGrid::Bin::add_instances(const Bin& other, double part) noexcept {
  instances += other.instances * part;
  medians_ns += other.medians_ns * part;
  longest_ns = std::max(longest_ns, other.longest_ns);
}

TimeGrid TimeGrid::like(const TimeGrid& other) {
  TimeGrid grid;
  grid.anchor_ns_ = other.anchor_ns_;
  grid.width_ns_ = other.width_ns_;
  return grid;
}

std::int64_t TimeGrid::index_of(TimeNs t) const noexcept {
  const std::int64_t from = t - anchor_ns_;
  return from >= 0 ? from / width_ns_ : -((-from + width_ns_ - 1) / width_ns_);
}

void TimeGrid::reach(std::int64_t first, std::int64_t last) {
  if (last_ < first_) {
    first_ = first;
    last_ = last;
  } else {
    first_ = std::min(first_, first);
    last_ = std::max(last_, last);
  }
}

void TimeGrid::halve() {
  for (auto& [name, bins] : regions_) {
    Bins wider;
    for (const auto& [index, bin] : bins) {
      Bin& into = wider[index >> 1];
      into.weights.add(bin.weights);
      into.classes_known = into.classes_known && bin.classes_known;
      into.add_instances(bin, 1);
      widen(into.lowest, into.highest, bin.lowest, bin.highest);
    }
    bins = std::move(wider);
  }
  width_ns_ *= 2;
  first_ >>= 1;
  last_ >>= 1;
}

void TimeGrid::add(const std::string& region, Interval window, const Weights& weights, bool classes_known,
                   const LatencySummary& latency) {
  // Times of any file: differences fit in 64 bits.
  constexpr TimeNs kEarliest = -(TimeNs{1} << 60);
  constexpr TimeNs kLatest = TimeNs{1} << 62;
  window = {std::clamp(window.begin_ns, kEarliest, kLatest), std::clamp(window.end_ns, kEarliest, kLatest)};
  if (window.length_ns() == 0) return;
  if (width_ns_ == 0) {
    anchor_ns_ = window.begin_ns;
    width_ns_ = window.length_ns();
  }
  while (std::max(index_of(window.end_ns - 1), last_ < first_ ? INT64_MIN : last_) -
             std::min(index_of(window.begin_ns), last_ < first_ ? INT64_MAX : first_) >=
         kMaxBins)
    halve();
  const std::int64_t first = index_of(window.begin_ns);
  const std::int64_t last = index_of(window.end_ns - 1);
  reach(first, last);
  Bins& bins = regions_[region];
  Bin ended;
  ended.instances = static_cast<double>(latency.count);
  ended.medians_ns = ended.instances * static_cast<double>(latency.p50_ns);
  ended.longest_ns = latency.max_ns;
  for (std::int64_t index = first; index <= last; ++index) {
    const TimeNs begin = std::max(window.begin_ns, anchor_ns_ + index * width_ns_);
    const TimeNs end = std::min(window.end_ns, anchor_ns_ + (index + 1) * width_ns_);
    Bin& bin = bins[index];
    const double part =
        first == last ? 1.0 : static_cast<double>(end - begin) / static_cast<double>(window.length_ns());
    bin.weights.add(weights, part);
    if (latency.count != 0) bin.add_instances(ended, part);
    bin.classes_known = bin.classes_known && classes_known;
  }
}

void TimeGrid::add_rank(TimeGrid rank) {
  if (rank.empty()) return;
  if (width_ns_ == 0) {
    anchor_ns_ = rank.anchor_ns_;
    width_ns_ = rank.width_ns_;
  }
  while (width_ns_ < rank.width_ns_) halve();
  while (rank.width_ns_ < width_ns_) rank.halve();
  reach(rank.first_, rank.last_);
  for (const auto& [name, bins] : rank.regions_) {
    for (const auto& [index, bin] : bins) {
      Bin& into = regions_[name][index];
      into.weights.add(bin.weights);
      into.classes_known = into.classes_known && bin.classes_known;
      into.add_instances(bin, 1);
      const std::optional<double> mfu = bin.weights.mfu();
      widen(into.lowest, into.highest, mfu, mfu);
    }
  }
  while (last_ - first_ >= kMaxBins) halve();
}

}  // namespace mfu

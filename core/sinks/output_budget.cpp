#include "core/sinks/output_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/sinks/row_peak.h"

namespace mfu {
namespace {

constexpr double kNsPerDay = 86400e9;

}  // namespace

OutputBudget::OutputBudget(std::string what, double bytes_per_day)
    : what_(std::move(what)),
      bytes_per_day_(bytes_per_day),
      left_(kAtOnce * bytes_per_day),
      left_for_events_(kForEvents / 2 * bytes_per_day),
      usual_bytes_per_ns_(kSteady * bytes_per_day / kNsPerDay) {}

const WindowSummary* OutputBudget::take(const WindowSummary& window) {
  if (bytes_per_day_ <= 0) return &window;
  const Interval& at = window.window;
  const DurationNs earned = std::max<DurationNs>(0, at.end_ns - (seen_until_ns_ != 0 ? seen_until_ns_ : at.begin_ns));
  seen_until_ns_ = std::max(seen_until_ns_, at.end_ns);
  left_ = std::min(kAtOnce * bytes_per_day_, left_ + static_cast<double>(earned) * usual_bytes_per_ns_);
  const double per_event_day = kForEvents / 2 * bytes_per_day_;
  left_for_events_ =
      std::min(per_event_day, left_for_events_ + static_cast<double>(earned) * (per_event_day / kNsPerDay));
  usual_ns_ = std::max(usual_ns_, at.length_ns());
  if (next_ns_ == 0 && held_windows_ == 0) return &window;
  hold(window);
  return held_.window.length_ns() >= next_ns_ - usual_ns_ / 2 ? merged() : nullptr;
}

const WindowSummary* OutputBudget::rest() { return held_windows_ != 0 ? merged() : nullptr; }

void OutputBudget::hold(const WindowSummary& window) {
  const Interval before = held_.window;
  const bool first = held_windows_++ == 0;
  const bool settled = (first || held_.settled) && window.settled;
  held_.window = {first ? window.window.begin_ns : std::min(before.begin_ns, window.window.begin_ns),
                  first ? window.window.end_ns : std::max(before.end_ns, window.window.end_ns)};
  held_.settled = settled;
  held_.launches = window.launches;
  held_.graphs = window.graphs;
  held_.self = window.self;
  held_.counters = window.counters;
  held_.stall = window.stall;
  for (const RegionSummary& row : window.regions) {
    const auto [at, fresh] = index_.try_emplace({row.region, row.device}, sums_.size());
    if (fresh) sums_.push_back({row.region, {}});
    sums_[at->second].sum.add(row, row_peak(devices_, row));
  }
}

const WindowSummary* OutputBudget::merged() {
  merged_ = std::move(held_);
  merged_.regions.clear();
  // `total` is the last row of a window: readers know by it that the window is complete.
  for (const bool total : {false, true}) {
    for (const Held& held : sums_) {
      if ((held.region == "total") != total) continue;
      merged_.regions.push_back(held.sum.summed().sum);
      merged_.regions.back().window = merged_.window;
    }
  }
  held_ = {};
  held_windows_ = 0;
  sums_.clear();
  index_.clear();
  return &merged_;
}

void OutputBudget::wrote(std::size_t bytes) {
  if (bytes_per_day_ <= 0) return;
  const auto size = static_cast<double>(bytes);
  left_ -= size;
  const DurationNs before = std::exchange(next_ns_, 0);
  const double steady_ns = size / usual_bytes_per_ns_;  // in which one such window is earned
  if (left_ >= kAtOnce / 2 * bytes_per_day_ && (before == 0 || steady_ns <= static_cast<double>(usual_ns_))) return;
  const double wait_ns = std::max(steady_ns, (size - left_) / usual_bytes_per_ns_);
  if (usual_ns_ <= 0 || wait_ns <= static_cast<double>(usual_ns_)) return;
  // Whole windows, and no more of them than a century has.
  next_ns_ = usual_ns_ * static_cast<DurationNs>(std::min(std::ceil(wait_ns / static_cast<double>(usual_ns_)),
                                                          3e18 / static_cast<double>(usual_ns_)));
  if (std::exchange(said_, true)) return;
  notice_ = fmt::format(
      "{}: more than {:g} MB a day (MFU_RUN_DIR_LIMIT) would be written; from now on one window stands for several, "
      "the "
      "next for {:.0f} s; nothing is left out of the sums",
      what_, bytes_per_day_ / 1e6, seconds(next_ns_));
}

bool OutputBudget::allows_event(std::size_t bytes) {
  if (bytes_per_day_ <= 0) return true;
  if (left_for_events_ < static_cast<double>(bytes)) return false;
  left_for_events_ -= static_cast<double>(bytes);
  return true;
}

std::string OutputBudget::take_notice() { return std::exchange(notice_, {}); }

}  // namespace mfu

#include "core/device_timeline.h"

#include <algorithm>
#include <limits>

namespace mfu {

namespace {
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
constexpr std::uint64_t kEndOrder = 1ull << 63;
}  // namespace

DeviceTimeline::DeviceTimeline(std::uint32_t device, TimeNs origin, DurationNs window_ns, TimelineListener& listener)
    : device_(device), origin_(origin), window_ns_(window_ns), listener_(listener), now_(origin) {}

void DeviceTimeline::add(TimeNs begin_ns, TimeNs end_ns, TimeClass time_class, bool is_kernel, bool first_of_launch,
                         KernelNameId name, Instance* instance) {
  for (Instance* i = instance; i != nullptr; i = i->parent) {
    Share& share = i->shares[device_];
    share.last_activity_end_ns = std::max(share.last_activity_end_ns, end_ns);
  }
  incoming_.push_back({begin_ns, end_ns, instance, name, time_class, is_kernel, first_of_launch});
}

void DeviceTimeline::add_open_mark(Instance& instance, TimeNs at) {
  marks_.push({std::max(at, now_), mark_order_++, &instance, false});
}

void DeviceTimeline::add_end_mark(Instance& instance, TimeNs at) {
  marks_.push({std::max(at, now_), kEndOrder | mark_order_++, &instance, true});
}

void DeviceTimeline::take_incoming() {
  if (incoming_.empty()) return;
  const auto by_begin = [](const Activity& a, const Activity& b) { return a.begin_ns < b.begin_ns; };
  if (!std::is_sorted(incoming_.begin(), incoming_.end(), by_begin))
    std::stable_sort(incoming_.begin(), incoming_.end(), by_begin);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(head_));
  head_ = 0;
  const auto middle = static_cast<std::ptrdiff_t>(pending_.size());
  pending_.insert(pending_.end(), incoming_.begin(), incoming_.end());
  incoming_.clear();
  if (middle != 0 && by_begin(pending_[static_cast<std::size_t>(middle)], pending_[static_cast<std::size_t>(middle) - 1]))
    std::inplace_merge(pending_.begin(), pending_.begin() + middle, pending_.end(), by_begin);
}

void DeviceTimeline::advance_to(TimeNs t) noexcept {
  const DurationNs dt = t - now_;
  if (dt <= 0) return;
  std::size_t c = 0;
  while (c < 4 && running_[c] == 0) ++c;
  times_[c] += dt;
  if (running_kernels_ != 0) {
    busy_ns_ += dt;
    kernel_sum_ns_ += dt * static_cast<DurationNs>(running_kernels_);
  }
  now_ = t;
}

void DeviceTimeline::begin(const Activity& a) {
  const auto c = static_cast<std::size_t>(a.time_class);
  listener_.on_activity(device_, a.instance, a.name, a.time_class, a.end_ns - a.begin_ns, a.is_kernel, a.first_of_launch);
  if (a.end_ns <= now_) return;  // no length, or wholly in the past: counted, but no time left to cover
  ++running_[c];
  if (a.is_kernel) {
    ++running_kernels_;
    for (Instance* i = a.instance; i != nullptr; i = i->parent) {
      Share& share = i->shares[device_];
      share.integrate(now_);
      ++share.running;
      if (a.time_class == TimeClass::kMatmul) ++share.running_matmul;
    }
  }
  ends_.push({a.end_ns, a.instance, a.time_class, a.is_kernel});
}

void DeviceTimeline::end(const Running& r) noexcept {
  --running_[static_cast<std::size_t>(r.time_class)];
  if (!r.is_kernel) return;
  --running_kernels_;
  for (Instance* i = r.instance; i != nullptr; i = i->parent) {
    Share& share = i->shares[device_];
    share.integrate(now_);
    --share.running;
    if (r.time_class == TimeClass::kMatmul) --share.running_matmul;
  }
}

void DeviceTimeline::sweep(TimeNs watermark) {
  take_incoming();
  while (true) {
    const TimeNs next_edge = origin_ + (window_ + 1) * window_ns_;
    const TimeNs next_begin = head_ < pending_.size() ? std::max(pending_[head_].begin_ns, now_) : kNever;
    const TimeNs next_end = ends_.empty() ? kNever : ends_.top().end_ns;
    const TimeNs next_mark = marks_.empty() ? kNever : marks_.top().at;
    const TimeNs t = std::min({next_edge, next_begin, next_end, next_mark});
    if (t > watermark || (t == watermark && t == next_begin && t != next_end && t != next_mark && t != next_edge)) break;
    advance_to(t);
    // Half-open intervals: what ends at t is over before anything else at t; a window's last moment is before its
    // edge; what begins at t belongs to the instance that opens at t and to one that ends there (no length left).
    if (next_end == t) {
      end(ends_.top());
      ends_.pop();
    } else if (next_edge == t) {
      listener_.on_edge(device_, window_, t);
      ++window_;
    } else if (next_begin == t) {
      begin(pending_[head_++]);
    } else {
      const Mark mark = marks_.top();
      marks_.pop();
      if (!mark.is_end) {
        listener_.on_open(device_, *mark.instance, t);
      } else if (const TimeNs last = mark.instance->shares[device_].last_activity_end_ns; last > t) {
        marks_.push({last, mark.order, mark.instance, true});  // its work outlives its range
      } else {
        listener_.on_end(device_, *mark.instance, t);
      }
    }
  }
  advance_to(watermark);
}

}  // namespace mfu

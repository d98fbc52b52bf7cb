#include "core/device_timeline.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace mfu {

namespace {
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
constexpr TimeNs kLongAgo = std::numeric_limits<TimeNs>::min();
constexpr std::uint64_t kEndOrder = 1ull << 63;
}  // namespace

DeviceTimeline::DeviceTimeline(std::uint32_t device, TimeNs origin, DurationNs window_ns, TimelineListener& listener)
    : device_(device), origin_(origin), window_ns_(window_ns), listener_(listener), now_(origin) {
  tails_.fill(kLongAgo);
}

void DeviceTimeline::add(TimeNs begin_ns, TimeNs end_ns, TimeClass time_class, bool is_kernel, bool first_of_launch,
                         KernelNameId name, Instance* instance) {
  for (Instance* i = instance; i != nullptr; i = i->parent) {
    Share& share = i->shares[device_];
    share.last_activity_end_ns = std::max(share.last_activity_end_ns, end_ns);
  }
  // The first lane that it can go on with; without a branch per lane, since which one it is cannot be predicted.
  std::uint32_t fits = 1u << std::min(lanes_used_, kLanes - 1);
  for (std::size_t i = 0; i < lanes_used_; ++i) fits |= static_cast<std::uint32_t>(tails_[i] <= begin_ns) << i;
  const auto l = static_cast<std::size_t>(std::countr_zero(fits));
  Lane& lane = lanes_[l];
  if (tails_[l] > begin_ns)
    lane.sorted = false;
  else
    tails_[l] = begin_ns;
  append(lane, {begin_ns, end_ns, instance, name, time_class, is_kernel, first_of_launch});
  lanes_used_ = std::max(lanes_used_, l + 1);
  ++pending_;
}

void DeviceTimeline::append(Lane& lane, const Activity& activity) {
  if (lane.last == nullptr || lane.fill == Chunk::kItems) {
    if (free_chunks_ == nullptr) {
      chunks_.push_back(std::make_unique<Chunk>());
      free_chunks_ = chunks_.back().get();
    }
    Chunk* chunk = free_chunks_;
    free_chunks_ = chunk->next;
    chunk->next = nullptr;
    (lane.last != nullptr ? lane.last->next : lane.first) = chunk;
    if (lane.last == nullptr) lane.head = 0;
    lane.last = chunk;
    lane.fill = 0;
  }
  lane.last->items[lane.fill++] = activity;
}

void DeviceTimeline::recycle(Chunk* chunk) noexcept {
  chunk->next = free_chunks_;
  free_chunks_ = chunk;
}

/// The head of `lane` was swept.
void DeviceTimeline::take_head(std::size_t l) noexcept {
  Lane& lane = lanes_[l];
  --pending_;
  if (++lane.head == (lane.first == lane.last ? lane.fill : Chunk::kItems)) {
    Chunk* done = lane.first;
    lane.first = done->next;
    lane.head = 0;
    if (lane.first == nullptr) lane.last = nullptr;
    recycle(done);
    if (lane.first == nullptr) {
      heads_[l] = kNever;
      tails_[l] = kLongAgo;
      return;
    }
  }
  heads_[l] = lane.first->items[lane.head].begin_ns;
}

void DeviceTimeline::sort_lane(Lane& lane) {
  std::vector<Activity> all;
  while (lane.first != nullptr) {
    Chunk* chunk = lane.first;
    const std::size_t end = chunk == lane.last ? lane.fill : Chunk::kItems;
    all.insert(all.end(), chunk->items.begin() + static_cast<std::ptrdiff_t>(lane.head),
               chunk->items.begin() + static_cast<std::ptrdiff_t>(end));
    lane.head = 0;
    lane.first = chunk->next;
    recycle(chunk);
  }
  lane.last = nullptr;
  std::stable_sort(all.begin(), all.end(),
                   [](const Activity& a, const Activity& b) { return a.begin_ns < b.begin_ns; });
  for (const Activity& activity : all) append(lane, activity);
  lane.sorted = true;
}

void DeviceTimeline::add_open_mark(Instance& instance, TimeNs at) {
  marks_.push({std::max(at, now_), mark_order_++, &instance, false});
}

void DeviceTimeline::add_end_mark(Instance& instance, TimeNs at) {
  marks_.push({std::max(at, now_), kEndOrder | mark_order_++, &instance, true});
}

void DeviceTimeline::prepare_lanes() {
  heads_[0] = kNever;
  for (std::size_t l = 0; l < lanes_used_; ++l) {
    Lane& lane = lanes_[l];
    if (!lane.sorted) sort_lane(lane);
    heads_[l] = lane.empty() ? kNever : lane.first->items[lane.head].begin_ns;
  }
}

TimeNs DeviceTimeline::next_end() const noexcept {
  const TimeNs few = few_ != 0 ? few_running_[few_ - 1].end_ns : kNever;
  return ends_.empty() ? few : std::min(few, ends_.top().end_ns);
}

void DeviceTimeline::end_next() noexcept {
  if (few_ != 0 && (ends_.empty() || few_running_[few_ - 1].end_ns <= ends_.top().end_ns)) {
    end(few_running_[--few_]);
    return;
  }
  end(ends_.top());
  ends_.pop();
}

void DeviceTimeline::find_earliest() noexcept {
  std::size_t best = 0;
  for (std::size_t l = 1; l < lanes_used_; ++l)
    if (heads_[l] < heads_[best]) best = l;
  earliest_ = best;
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
  listener_.on_activity(device_, a.instance, a.name, a.time_class, a.end_ns - a.begin_ns, a.is_kernel,
                        a.first_of_launch);
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
  const Running running{a.end_ns, a.instance, a.time_class, a.is_kernel};
  if (few_ == kFewRunning) {
    ends_.push(running);
    return;
  }
  std::size_t at = few_++;
  for (; at != 0 && few_running_[at - 1].end_ns < a.end_ns; --at) few_running_[at] = few_running_[at - 1];
  few_running_[at] = running;
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
  prepare_lanes();
  find_earliest();
  TimeNs next_edge = origin_ + (window_ + 1) * window_ns_;
  while (true) {
    const TimeNs next_begin = std::max(heads_[earliest_], now_);
    const TimeNs next_end = this->next_end();
    const TimeNs next_mark = marks_.empty() ? kNever : marks_.top().at;
    const TimeNs t = std::min(std::min(next_begin, next_end), std::min(next_edge, next_mark));
    if (t > watermark || (t == watermark && t == next_begin && t != next_end && t != next_mark && t != next_edge))
      break;
    advance_to(t);
    // Half-open intervals: what ends at t is over before anything else at t; a window's last moment is before its
    // edge; what begins at t belongs to the instance that opens at t and to one that ends there (no length left).
    if (next_end == t) {
      end_next();
    } else if (next_edge == t) {
      listener_.on_edge(device_, window_, t);
      ++window_;
      next_edge += window_ns_;
    } else if (next_begin == t) {
      const Lane& lane = lanes_[earliest_];
      begin(lane.first->items[lane.head]);
      take_head(earliest_);
      find_earliest();
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
  while (lanes_used_ != 0 && lanes_[lanes_used_ - 1].empty()) --lanes_used_;
}

}  // namespace mfu

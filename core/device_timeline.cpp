#include "core/device_timeline.h"

#include <algorithm>
#include <limits>

namespace mfu {

namespace {
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
constexpr TimeNs kLongAgo = std::numeric_limits<TimeNs>::min();
constexpr std::uint64_t kEndOrder = 1ull << 63;
}  // namespace

DeviceTimeline::DeviceTimeline(std::uint32_t device, TimeNs origin, DurationNs window_ns, TimelineListener& listener)
    : device_(device),
      origin_(origin),
      window_ns_(window_ns),
      listener_(listener),
      now_(origin),
      next_edge_(origin + window_ns),
      cut_at_(origin) {
  covered_until_.fill(origin);
  tails_.fill(kLongAgo);
}

void DeviceTimeline::add(TimeNs begin_ns, TimeNs end_ns, TimeClass time_class, bool is_kernel, bool first_of_launch,
                         KernelNameId name, Instance* instance) {
  // Activities of one instance come in runs: those around it are told once per run.
  if (instance != added_to_) {
    note_added();
    added_to_ = instance;
    added_end_ns_ = end_ns;
  } else {
    added_end_ns_ = std::max(added_end_ns_, end_ns);
  }
  // The first lane that it can go on with. Lanes are tried in order, so a later one ends earlier; without a branch per
  // lane, since which one it is cannot be predicted.
  std::size_t l = 0;
  const std::size_t last = std::min(lanes_used_, kLanes - 1);
  for (std::size_t i = 0; i < last; ++i) l += static_cast<std::size_t>(tails_[i] > begin_ns);
  Lane& lane = lanes_[l];
  if (tails_[l] > begin_ns)
    lane.sorted = false;  // the very last one takes what fits nowhere
  else
    tails_[l] = begin_ns;
  append(lane, {begin_ns, end_ns, instance, name, time_class, is_kernel, first_of_launch});
  lanes_used_ = std::max(lanes_used_, l + 1);
  ++pending_;
}

void DeviceTimeline::note_added() noexcept {
  for (Instance* i = added_to_; i != nullptr; i = i->parent) {
    Share& share = i->shares[device_];
    if (share.last_activity_end_ns >= added_end_ns_) break;  // then so are those around it
    share.last_activity_end_ns = added_end_ns_;
  }
  added_to_ = nullptr;
}

void DeviceTimeline::add_chunk(Lane& lane) {
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

void DeviceTimeline::recycle(Chunk* chunk) noexcept {
  chunk->next = free_chunks_;
  free_chunks_ = chunk;
}

/// The first chunk of a lane was swept.
void DeviceTimeline::next_chunk(std::size_t l) noexcept {
  Lane& lane = lanes_[l];
  Chunk* done = lane.first;
  lane.first = done->next;
  lane.head = 0;
  recycle(done);
  if (lane.first == nullptr) {
    lane.last = nullptr;
    heads_[l] = kNever;
    return;
  }
  heads_[l] = head_key(lane.first->items[0].begin_ns, l);
}

void DeviceTimeline::sort_lane(Lane& lane) {
  std::vector<Activity> all;
  while (lane.first != nullptr) {
    Chunk* chunk = lane.first;
    const std::size_t end = lane.first_end();
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
    heads_[l] = lane.empty() ? kNever : head_key(lane.first->items[lane.head].begin_ns, l);
  }
}

ClassTimes DeviceTimeline::class_times() const noexcept {
  ClassTimes times{};
  DurationNs before = 0;
  for (std::size_t c = 0; c < kUnions; ++c) {
    const DurationNs until = covered(static_cast<TimeClass>(c));
    times[c] = until - before;
    before = until;
  }
  times[static_cast<std::size_t>(TimeClass::kIdle)] = now_ - origin_ - before;
  return times;
}

void DeviceTimeline::count(const Activity& a) {
  const std::uint32_t chain = a.instance != nullptr ? a.instance->chain : 0;
  if (counts_.size() <= chain) counts_.resize(chain + 1);
  ActivityCounts& counts = counts_[chain];
  counts.launches += static_cast<std::uint64_t>(a.first_of_launch);
  if (!a.is_kernel) return;
  if (counts.kernels.size() <= raw(a.name)) counts.kernels.resize(raw(a.name) + 16);
  KernelStat& stat = counts.kernels[raw(a.name)];
  ++stat.count;
  stat.sum_ns += a.end_ns - a.begin_ns;
}

/// Accounts for [begin, end) of an activity; `begin` is the latest so far.
inline void DeviceTimeline::cover(TimeNs begin, TimeNs end, Instance* instance, TimeClass time_class,
                                  bool is_kernel) noexcept {
  // To its own class and all after it. What adds nothing is an empty interval, not a branch.
  const auto own = static_cast<std::size_t>(time_class);
  for (std::size_t c = 0; c < kUnions; ++c)
    union_ns_[c] += Share::extend(covered_until_[c], begin, own <= c ? end : begin);
  if (is_kernel) {
    kernel_sum_ns_ += end - begin;
    const bool matmul = time_class == TimeClass::kMatmul;
    for (Instance* i = instance; i != nullptr; i = i->parent) {
      Share& share = i->shares[device_];
      share.active = true;
      share.add_kernel(begin, end, matmul);
    }
  } else {
    for (Instance* i = instance; i != nullptr; i = i->parent) i->shares[device_].active = true;
  }
}

/// Begins all activities before `limit`.
void DeviceTimeline::begin_until(TimeNs limit) {
  std::size_t begun = 0;
  TimeNs now = now_;
  while (true) {
    std::int64_t earliest = heads_[0];
    for (std::size_t l = 1; l < lanes_used_; ++l) earliest = std::min(earliest, heads_[l]);
    const std::size_t l = static_cast<std::size_t>(earliest) % kLanes;
    if (earliest == kNever) break;
    Lane& lane = lanes_[l];
    const Activity& a = lane.first->items[lane.head];
    const TimeNs at = std::max(a.begin_ns, now);
    if (at >= limit) break;
    now = at;
    ++begun;
    count(a);
    if (a.end_ns > cut_at_) running_.push_back({a.end_ns, a.instance, a.time_class, a.is_kernel});
    // Wholly in the past, since it came late: counted, but there is no time left to cover.
    cover(at, std::max(at, std::min(a.end_ns, cut_at_)), a.instance, a.time_class, a.is_kernel);
    if (++lane.head == lane.first_end())
      next_chunk(l);
    else
      heads_[l] = head_key((&a)[1].begin_ns, l);
  }
  now_ = now;
  pending_ -= begun;
}

/// Goes on with what was cut at now().
void DeviceTimeline::resume_running() {
  if (running_.empty() || cut_at_ <= now_) return;
  std::swap(running_, resumed_);
  for (const Running& r : resumed_) {
    cover(now_, std::min(r.end_ns, cut_at_), r.instance, r.time_class, r.is_kernel);
    if (r.end_ns > cut_at_) running_.push_back(r);
  }
  resumed_.clear();
}

void DeviceTimeline::sweep(TimeNs watermark) {
  prepare_lanes();
  cut_at_ = std::min(next_edge_, std::max(watermark, now_));
  resume_running();
  while (true) {
    // Half-open intervals: a window's last moment is before its edge; what begins at t belongs to the instance that
    // opens at t and to one that ends there (no length left). At the watermark itself more may begin.
    const TimeNs next_mark = marks_.empty() ? kNever : marks_.top().at;
    begin_until(std::min(next_edge_, next_mark <= watermark ? next_mark + 1 : watermark));
    const TimeNs t = std::min(next_edge_, next_mark);
    if (t > watermark) break;
    now_ = t;
    if (t == next_edge_) {
      listener_.on_edge(device_, window_, t);
      ++window_;
      next_edge_ += window_ns_;
      cut_at_ = std::min(next_edge_, watermark);
      resume_running();
      continue;
    }
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
  now_ = std::max(now_, watermark);
  while (lanes_used_ != 0 && lanes_[lanes_used_ - 1].empty()) tails_[--lanes_used_] = kLongAgo;
}

}  // namespace mfu

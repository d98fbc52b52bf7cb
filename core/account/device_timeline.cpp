#include "core/account/device_timeline.h"

#include <algorithm>
#include <limits>

namespace mfu {
namespace {
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
constexpr TimeNs kLongAgo = std::numeric_limits<TimeNs>::min();
constexpr std::uint64_t kEndOrder = 1ull << 63;

/// [class][union]: all bits set where an activity of the class is part of the union of the classes up to that one.
constexpr auto kInUnion = [] {
  std::array<std::array<DurationNs, kTimeClasses>, kTimeClasses> in{};
  for (std::size_t of = 0; of < kTimeClasses; ++of)
    for (std::size_t c = of; c < kTimeClasses; ++c) in[of][c] = -1;
  return in;
}();
}  // namespace

DeviceTimeline::DeviceTimeline(std::uint32_t device, TimeNs origin, DurationNs window_ns, TimelineListener& listener)
    : device_(device),
      origin_(origin),
      window_ns_(window_ns),
      listener_(listener),
      now_(origin),
      next_edge_(origin + window_ns),
      cut_at_(origin),
      idle_{origin, {}, {}},
      history_(origin) {
  covered_until_.fill(origin);
  tails_.fill(kLongAgo);
}

/// No lane in use fits: the next one, or the very last, which takes what fits nowhere.
std::size_t DeviceTimeline::new_lane(TimeNs begin_ns) noexcept {
  if (lanes_used_ < kLanes) return lanes_used_++;
  lanes_[kLanes - 1].sorted = lanes_[kLanes - 1].sorted && tails_[kLanes - 1] <= begin_ns;
  return kLanes - 1;
}

void DeviceTimeline::note_added() noexcept {
  for (Instance* instance : added_to_) {
    InstanceOnDevice& own = instance->shares[device_];
    own.added_to = false;
    for (Instance* i = instance->parent; i != nullptr; i = i->parent) {
      TimeNs& last = i->shares[device_].last_activity_end_ns;
      if (last >= own.last_activity_end_ns) break;  // then those around it know, or will
      last = own.last_activity_end_ns;
    }
  }
  added_to_.clear();
}

void DeviceTimeline::add_chunk(Lane& lane) {
  if (free_chunks_ == nullptr) {
    chunks_.push_back(std::make_unique<Chunk>());
    free_chunks_ = chunks_.back().get();
  }
  Chunk* chunk = free_chunks_;
  free_chunks_ = chunk->next;
  chunk->next = nullptr;
  if (lane.last != nullptr) {
    lane.last->next = chunk;
  } else {
    lane.first = chunk;
    lane.next = lane.kept = chunk->items.data();
  }
  lane.last = chunk;
  lane.fill = chunk->items.data();
  lane.room = lane.fill + Chunk::kItems;
}

void DeviceTimeline::recycle(Chunk* chunk) noexcept {
  chunk->next = free_chunks_;
  free_chunks_ = chunk;
}

/// The first chunk of a lane was swept.
void DeviceTimeline::next_chunk(std::size_t l) noexcept {
  Lane& lane = lanes_[l];
  Chunk* done = lane.first;
  history_.add(lane.kept, lane.next);
  lane.first = done->next;
  recycle(done);
  if (lane.first == nullptr) {
    lane = Lane{};
    heads_[l] = kNever;
    return;
  }
  lane.next = lane.kept = lane.first->items.data();
  lane.stop = lane.first_stop();
  heads_[l] = head_key(lane.next->begin_ns, l);
}

void DeviceTimeline::sort_lane(Lane& lane) {
  std::vector<Activity> all;
  history_.add(lane.kept, lane.next);
  while (lane.first != nullptr) {
    Chunk* chunk = lane.first;
    all.insert(all.end(), lane.next, lane.first_stop());
    lane.first = chunk->next;
    if (lane.first != nullptr) lane.next = lane.first->items.data();
    recycle(chunk);
  }
  lane = Lane{};
  std::stable_sort(all.begin(), all.end(),
                   [](const Activity& a, const Activity& b) { return a.begin_ns < b.begin_ns; });
  for (const Activity& activity : all) append(lane, activity);
}

void DeviceTimeline::add_open_mark(Instance& instance, TimeNs at) {
  marks_.push({std::max(at, now_), mark_order_++, &instance, false});
}

void DeviceTimeline::add_end_mark(Instance& instance, TimeNs at) {
  marks_.push({std::max(at, now_), kEndOrder | mark_order_++, &instance, true});
}

void DeviceTimeline::prepare_lanes() {
  heads_.fill(kNever);
  for (std::size_t l = 0; l < lanes_used_; ++l) {
    Lane& lane = lanes_[l];
    if (!lane.sorted) sort_lane(lane);
    if (lane.empty()) continue;
    lane.stop = lane.first_stop();
    heads_[l] = head_key(lane.next->begin_ns, l);
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

/// The idle time before the first activity of an instance, and of those around it.
void DeviceTimeline::note_first(Instance* instance, TimeNs begin) noexcept {
  for (Instance* i = instance; i != nullptr && !i->shares[device_].active; i = i->parent) {
    InstanceOnDevice& share = i->shares[device_];
    const DurationNs covered = union_ns_[kUnions - 1] - std::max<DurationNs>(0, covered_until_[kUnions - 1] - begin);
    if (share.begun)
      share.open_portion.idle.before =
          begin - origin_ - covered - share.counted[static_cast<std::size_t>(TimeClass::kIdle)];
    share.add_activity(begin);
  }
}

/// No run begins where something else runs on in an instance around this one: a kernel covers other times in each.
[[gnu::noinline]] void DeviceTimeline::begin_run(Instance* instance, TimeNs begin) noexcept {
  end_run();
  if (instance == nullptr) return;
  note_first(instance, begin);
  // The instances around it cover its kernels' time too: the outermost reaches furthest.
  const TimeNs outermost = instance->root->shares[device_].covered_until_ns;
  if (outermost > begin && outermost != instance->shares[device_].covered_until_ns) return;
  run_ = {.instance = instance, .begin_ns = begin, .covered_until_ns = outermost};
}

[[gnu::always_inline]] inline void DeviceTimeline::end_run() noexcept {
  for (Instance* i = run_.instance; i != nullptr; i = i->parent) {
    InstanceOnDevice& share = i->shares[device_];
    share.add_activity(run_.begin_ns);
    share.kernels += run_.kernels;
    share.covered_until_ns = run_.covered_until_ns;
    share.open_portion.busy_ns += run_.busy_ns;
    share.open_portion.kernel_sum_ns += run_.kernel_sum_ns;
    share.open_portion.matmul_sum_ns += run_.matmul_sum_ns;
  }
  run_.instance = nullptr;
}

/// Accounts for [begin, end) of an activity; `begin` is the latest so far.
[[gnu::always_inline]] inline void DeviceTimeline::cover(TimeNs begin, TimeNs end, Instance* instance,
                                                         TimeClass time_class, bool is_kernel,
                                                         std::uint64_t begun) noexcept {
  // To its own class and all after it. A class that adds nothing gets an empty interval, not a branch, since classes
  // follow no pattern.
  const DurationNs length = end - begin;
  const auto& in_union = kInUnion[static_cast<std::size_t>(time_class)];
  const auto extend = [&](std::size_t c, TimeNs to) {
    const TimeNs from = std::max(covered_until_[c], begin);
    const TimeNs until = std::max(from, to);
    union_ns_[c] += until - from;
    covered_until_[c] = until;
  };
  add_gap(std::max<DurationNs>(0, begin - covered_until_[kUnions - 1]), begin);
  idle_.since = std::max(idle_.since, end);
  extend(0, begin + (length & in_union[0]));
  extend(1, begin + (length & in_union[1]));
  extend(2, begin + (length & in_union[2]));
  extend(3, end);  // of all classes
  static_assert(kUnions == 4);
  kernel_sum_ns_ += is_kernel ? length : 0;
  if (instance == nullptr) return;
  const bool matmul = time_class == TimeClass::kMatmul;
  if (instance == run_.instance) [[likely]] {
    if (!is_kernel) return;
    run_.busy_ns += InstanceOnDevice::extend(run_.covered_until_ns, begin, end);
    run_.kernel_sum_ns += length;
    run_.matmul_sum_ns += matmul ? length : 0;
    run_.kernels += begun;
    return;
  }
  for (Instance* i = instance; i != nullptr; i = i->parent) {
    InstanceOnDevice& share = i->shares[device_];
    share.add_activity(begin);
    if (!is_kernel) continue;
    share.kernels += begun;
    share.add_kernel(begin, end, matmul);
  }
}

void DeviceTimeline::count_product(const Activity& a, ProductStats& products) {
  if (a.first_of_product() && !a.is_attention()) {
    // Queries, keys and values apart: six gradients behind the backward kernel of attention.
    constexpr std::uint32_t kSoon = 6;
    place_ = since_attention_ == 0      ? AfterAttention::kNext
             : since_attention_ < kSoon ? AfterAttention::kSoon
                                        : AfterAttention::kLater;
    since_attention_ = std::min(since_attention_ + 1, kLongSince);
  } else if (since_attention_ == 0) {
    place_ = AfterAttention::kLater;  // a further kernel of a product from before attention
  }
  const DurationNs length = a.end_ns - a.begin_ns;
  ProductStat stat{a.first_of_product() ? 1u : 0u, length};
  if (a.time_class() == TimeClass::kMatmul) stat.matmul_ns = stat.least_ns = length;
  products.add({a.product(), place_, a.form()}, stat);
}

/// Begins all activities before `limit`.
void DeviceTimeline::begin_until(TimeNs limit) {
  if (now_ >= limit) return;
  const std::int64_t limit_key = limit - origin_ < kNever / static_cast<TimeNs>(kLanes) ? head_key(limit, 0) : kNever;
  TimeNs now = now_;
  std::size_t begun = 0;
  const Instance* latest = nullptr;
  ActivityCounts* counts = nullptr;
  while (true) {
    std::int64_t earliest = kNever;
    for (std::size_t l = 0; l < lanes_used_; l += kAtOnce) {
      const std::int64_t a = heads_[l], b = heads_[l + 1], c = heads_[l + 2], d = heads_[l + 3];
      const std::int64_t first = a < b ? a : b, second = c < d ? c : d;
      earliest = first < earliest ? first : earliest;
      earliest = second < earliest ? second : earliest;
    }
    if (earliest >= limit_key) break;
    const std::size_t l = static_cast<std::size_t>(earliest) % kLanes;
    Lane& lane = lanes_[l];
    const Activity& a = *lane.next;
    const TimeNs at = now = std::max(a.begin_ns, now);
    ++begun;
    // Streams take turns, so this branch is guessed wrongly often: all that a change of instance asks for is here.
    if (a.instance != latest || counts == nullptr) {
      latest = a.instance;
      counts = &counts_of(latest != nullptr ? latest->region_path : 0);
      begin_run(a.instance, at);
    } else if (run_.instance != latest) [[unlikely]] {
      begin_run(a.instance, at);
    }
    count(a, *counts);
    if (a.end_ns > cut_at_) running_.push_back({a.end_ns, a.instance, a.time_class(), a.is_kernel()});
    // Wholly in the past, since it came late: counted, but there is no time left to cover.
    cover(at, std::max(at, std::min(a.end_ns, cut_at_)), a.instance, a.time_class(), a.is_kernel(), 1);
    if (++lane.next == lane.stop)
      next_chunk(l);
    else
      heads_[l] = head_key(lane.next->begin_ns, l);
  }
  now_ = now;
  pending_ -= begun;
  end_run();
}

/// Goes on with what was cut at now().
void DeviceTimeline::resume_running() {
  if (running_.empty() || cut_at_ <= now_) return;
  std::swap(running_, resumed_);
  for (const Running& r : resumed_) {
    if (r.instance != run_.instance) begin_run(r.instance, now_);
    cover(now_, std::min(r.end_ns, cut_at_), r.instance, r.time_class, r.is_kernel, 0);
    if (r.end_ns > cut_at_) running_.push_back(r);
  }
  resumed_.clear();
  end_run();
}

std::uint32_t DeviceTimeline::add_late(TimeNs begin_ns, TimeNs end_ns, ActivityTraits traits, Instance* instance,
                                       std::uint32_t region_path) {
  count({traits, begin_ns, end_ns, instance}, counts_of(region_path));
  for (Instance* i = instance; i != nullptr; i = i->parent) {
    InstanceOnDevice& share = i->shares[device_];
    share.add_activity(begin_ns);
    share.kernels += static_cast<std::uint64_t>(traits.is_kernel());
    share.last_activity_end_ns = std::max(share.last_activity_end_ns, end_ns);
  }
  if (end_ns > now_) running_.push_back({end_ns, instance, traits.time_class(), traits.is_kernel()});
  late_.push_back({begin_ns, end_ns, traits.time_class()});
  return static_cast<std::uint32_t>(late_.size()) - 1;
}

void DeviceTimeline::keep_swept() {
  for (std::size_t l = 0; l < lanes_used_; ++l) {
    history_.add(lanes_[l].kept, lanes_[l].next);
    lanes_[l].kept = lanes_[l].next;
  }
}

/// Puts what came late into the time that has been swept.
void DeviceTimeline::correct_past() {
  keep_swept();
  history_.correct(late_, now_, [this](const Corrections& corrections) {
    for (const Correction& c : corrections.list())
      for (auto of = static_cast<std::size_t>(c.to); of < static_cast<std::size_t>(c.from); ++of)
        union_ns_[of] += c.end_ns - c.begin_ns;
    listener_.on_corrected(device_, corrections);
  });
  late_.clear();
}

void DeviceTimeline::sweep(TimeNs watermark) {
  if (!late_.empty()) correct_past();
  prepare_lanes();
  cut_at_ = std::min(next_edge_, std::max(watermark, now_));
  resume_running();
  while (true) {
    // Half-open intervals: a window's last moment is before its edge; an activity that begins at t belongs to the
    // instance that opens at t and to one that ends there (no length left). At the watermark itself more may begin.
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

#include "core/account/latency_stats.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

#include "core/rows/metrics.h"

namespace mfu {

std::optional<std::uint32_t> BatchRange::index_of(std::int64_t batch) noexcept {
  if (batch < 1) return std::nullopt;
  const auto index = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(batch) - 1));
  return index < kCount ? std::optional(index) : std::nullopt;
}

BatchRange BatchRange::of_index(std::uint32_t index) noexcept {
  const std::int64_t max = std::int64_t{1} << index;
  return {max / 2 + 1, max};  // index 0: 1 to 1
}

LatencyStats::Bucket& LatencyStats::bucket(BatchUnit unit, std::uint32_t index) {
  auto it = std::find_if(buckets_.begin(), buckets_.end(),
                         [&](const Bucket& b) { return std::tie(b.unit, b.index) >= std::tie(unit, index); });
  if (it == buckets_.end() || it->unit != unit || it->index != index) {
    it = buckets_.emplace(it);
    it->unit = unit;
    it->index = index;
  }
  return *it;
}

void LatencyStats::add(const EndedInstance& instance) {
  const DurationNs elapsed_ns = instance.time.elapsed_ns;
  elapsed_.add(elapsed_ns);
  slowest_.add(instance.time);
  add_times(time_ns_, instance.time.time_ns);
  const std::int64_t passes = instance.decode.passes;
  if (passes > 0) inter_token_.add(elapsed_ns / passes, static_cast<std::uint64_t>(passes));
  const auto index = BatchRange::index_of(instance.batch);
  if (!index) return;
  Bucket& b = bucket(instance.unit, *index);
  ++b.instances;
  b.tokens += instance.tokens;
  b.elapsed_ns += elapsed_ns;
  if (instance.unit == BatchUnit::kTokens)
    b.latency.add(elapsed_ns);
  else if (passes > 0)
    b.latency.add(elapsed_ns / passes, static_cast<std::uint64_t>(passes));
  b.flop += instance.flop.value_or(0);
  b.bytes += instance.bytes.value_or(0);
  b.flop_known = b.flop_known && instance.flop;
  b.bytes_known = b.bytes_known && instance.bytes;
}

void LatencyStats::add_decode(WaitingPrefills& prefills, TimeNs begin, TimeNs first_activity) {
  bool any = false;
  prefills.decoded(begin, [&](TimeNs end) {
    prefill_to_decode_.add(std::max<DurationNs>(0, first_activity - end));
    any = true;
  });
  after_prefill_ += any ? 1 : 0;
}

void LatencyStats::merge(const LatencyStats& other) {
  elapsed_.merge(other.elapsed_);
  inter_token_.merge(other.inter_token_);
  prefill_to_decode_.merge(other.prefill_to_decode_);
  after_prefill_ += other.after_prefill_;
  add_times(time_ns_, other.time_ns_);
  slowest_.merge(other.slowest_);
  for (const Bucket& from : other.buckets_) {
    Bucket& b = bucket(from.unit, from.index);
    b.instances += from.instances;
    b.tokens += from.tokens;
    b.elapsed_ns += from.elapsed_ns;
    b.latency.merge(from.latency);
    b.flop += from.flop;
    b.bytes += from.bytes;
    b.flop_known = b.flop_known && from.flop_known;
    b.bytes_known = b.bytes_known && from.bytes_known;
  }
}

void LatencyStats::describe(RegionSummary& into, const Peak& peak) const {
  into.latency = elapsed_.summary();
  into.inter_token = inter_token_.summary();
  into.prefill_to_decode = prefill_to_decode_.summary();
  if (into.classes_known && inter_token_.count() != 0) into.after_prefill = after_prefill_;
  for (const Bucket& b : buckets_) {
    const BatchRange range = BatchRange::of_index(b.index);
    BatchLatency out;
    out.unit = b.unit;
    out.batch_min = range.min;
    out.batch_max = range.max;
    out.instances = b.instances;
    out.tokens = b.tokens;
    out.elapsed_ns = b.elapsed_ns;
    out.latency = b.latency.summary();
    if (b.flop_known) out.flop = b.flop;
    if (b.bytes_known) out.bytes = b.bytes;
    out.mfu = share_of_peak(out.flop, peak.flop_per_s, seconds(b.elapsed_ns));
    out.mbu = share_of_peak(out.bytes, peak.bytes_per_s, seconds(b.elapsed_ns));
    into.by_batch.push_back(std::move(out));
  }
  into.slowest = slowest_.beyond(into.latency);
  if (into.slowest.empty()) return;
  // The slowest would move a mean that they are in: a single long stall hides what the others lost.
  ClassTimes mean_ns = time_ns_;
  for (std::size_t c = 0; c < kTimeClasses; ++c) {
    for (const SlowInstance& s : slowest_.all()) mean_ns[c] -= s.time_ns[c];
    mean_ns[c] /= static_cast<DurationNs>(elapsed_.count() - SlowestInstances::kMost);
  }
  for (SlowInstance& s : into.slowest) {
    s.excess_ns = std::numeric_limits<DurationNs>::min();
    for (std::size_t c = 0; c < kTimeClasses; ++c) {
      const DurationNs excess = s.time_ns[c] - mean_ns[c];
      if (excess <= s.excess_ns) continue;
      s.excess_ns = excess;
      s.lost_to = static_cast<TimeClass>(c);
    }
  }
}

}  // namespace mfu

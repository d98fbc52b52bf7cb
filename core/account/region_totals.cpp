#include "core/account/region_totals.h"

#include <algorithm>
#include <numeric>

namespace mfu {

namespace {

constexpr std::size_t kTopKernels = 10;  ///< as many as a row has

bool usable(const std::optional<double>& peak) { return peak && *peak > 0; }

std::optional<double> quotient(bool known, double part, double whole) {
  return known && whole > 0 ? std::optional(part / whole) : std::nullopt;
}

}  // namespace

Weights Weights::of(const RegionSummary& row, const RowPeak& peak) {
  Weights w;
  const double elapsed_s = seconds(row.elapsed_ns);
  const bool at_work = row.instances != 0 || row.open != 0;
  for (std::size_t c = 0; c < kTimeClasses; ++c) w.time_ns[c] = static_cast<double>(row.time_ns[c]);
  if ((row.flop || !at_work) && usable(peak.flop_per_s)) {
    w.with_flop = row.flop ? 1 : 0;
    w.flop = row.flop.value_or(0);
    w.hfu_flop = row.hfu_flop.value_or(w.flop);
    w.flop_at_peak = *peak.flop_per_s * elapsed_s;
    w.flop_at_peak_busy = *peak.flop_per_s * seconds(row.busy_ns);
    w.counted_ns = w.time_ns;
  } else {
    w.left_out = 1;
  }
  if ((row.bytes || !at_work) && usable(peak.bytes_per_s)) {
    w.with_bytes = row.bytes ? 1 : 0;
    w.bytes = row.bytes.value_or(0);
    w.bytes_at_peak = *peak.bytes_per_s * elapsed_s;
  }
  return w;
}

void Weights::add(const Weights& other, double share) {
  flop += share * other.flop;
  hfu_flop += share * other.hfu_flop;
  flop_at_peak += share * other.flop_at_peak;
  flop_at_peak_busy += share * other.flop_at_peak_busy;
  bytes += share * other.bytes;
  bytes_at_peak += share * other.bytes_at_peak;
  for (std::size_t c = 0; c < kTimeClasses; ++c) {
    counted_ns[c] += share * other.counted_ns[c];
    time_ns[c] += share * other.time_ns[c];
  }
  with_flop += share * other.with_flop;
  with_bytes += share * other.with_bytes;
  left_out += share * other.left_out;
}

std::optional<double> Weights::mfu() const { return quotient(with_flop > 0, flop, flop_at_peak); }
std::optional<double> Weights::hfu() const { return quotient(with_flop > 0, hfu_flop, flop_at_peak); }
std::optional<double> Weights::mfu_busy() const { return quotient(with_flop > 0, flop, flop_at_peak_busy); }
std::optional<double> Weights::mbu() const { return quotient(with_bytes > 0, bytes, bytes_at_peak); }

std::optional<std::array<double, kTimeClasses>> Weights::lost() const {
  const std::optional<double> useful = mfu();
  const double elapsed_ns = std::accumulate(counted_ns.begin(), counted_ns.end(), 0.0);
  if (!useful || !(elapsed_ns > 0)) return std::nullopt;
  std::array<double, kTimeClasses> lost{};
  for (std::size_t c = 0; c < kTimeClasses; ++c) lost[c] = counted_ns[c] / elapsed_ns;
  lost[static_cast<std::size_t>(TimeClass::kMatmul)] -= *useful;
  return lost;
}

std::optional<std::array<double, kTimeClasses>> Weights::time_shares() const {
  const double elapsed_ns = std::accumulate(time_ns.begin(), time_ns.end(), 0.0);
  if (!(elapsed_ns > 0)) return std::nullopt;
  std::array<double, kTimeClasses> shares{};
  for (std::size_t c = 0; c < kTimeClasses; ++c) shares[c] = time_ns[c] / elapsed_ns;
  return shares;
}

void LatencySum::add(const LatencySummary& row) {
  for (const auto& [upper_ns, count] : row.histogram) histogram_.add(upper_ns, count);
  max_ns_ = std::max(max_ns_, row.max_ns);
}

void LatencySum::add(const LatencySum& other) {
  histogram_.merge(other.histogram_);
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

LatencySummary LatencySum::summary() const {
  LatencySummary s = histogram_.summary();
  s.max_ns = max_ns_;
  for (DurationNs* p : {&s.p50_ns, &s.p90_ns, &s.p99_ns}) *p = std::min(*p, max_ns_);
  return s;
}

void RegionSum::Batch::add_counts(const BatchLatency& row) {
  sum.unit = row.unit;
  sum.batch_min = row.batch_min;
  sum.batch_max = row.batch_max;
  sum.instances += row.instances;
  sum.tokens += row.tokens;
  sum.elapsed_ns += row.elapsed_ns;
}

void RegionSum::Batch::add(const BatchLatency& row, const RowPeak& peak) {
  add_counts(row);
  latency.add(row.latency);
  if (row.flop && usable(peak.flop_per_s)) {
    flop += *row.flop;
    flop_at_peak += *peak.flop_per_s * seconds(row.elapsed_ns);
  }
  if (row.bytes && usable(peak.bytes_per_s)) {
    bytes += *row.bytes;
    bytes_at_peak += *peak.bytes_per_s * seconds(row.elapsed_ns);
  }
}

void RegionSum::Batch::add(const Batch& other) {
  add_counts(other.sum);
  latency.add(other.latency);
  flop += other.flop;
  flop_at_peak += other.flop_at_peak;
  bytes += other.bytes;
  bytes_at_peak += other.bytes_at_peak;
}

BatchLatency RegionSum::Batch::totals() const {
  BatchLatency b = sum;
  b.latency = latency.summary();
  b.mfu = quotient(true, flop, flop_at_peak);
  b.mbu = quotient(true, bytes, bytes_at_peak);
  if (b.mfu) b.flop = flop;
  if (b.mbu) b.bytes = bytes;
  return b;
}

void RegionSum::Part::add_counts(const RegionSummary& row) {
  if (rows == 0) {
    sum.region = row.region;
    sum.device = row.device;
    sum.window = row.window;
    sum.classes_known = row.classes_known;
  } else {
    if (sum.device != row.device) sum.device.reset();
    sum.window.begin_ns = std::min(sum.window.begin_ns, row.window.begin_ns);
    sum.window.end_ns = std::max(sum.window.end_ns, row.window.end_ns);
  }
  sum.instances += row.instances;
  sum.tokens += row.tokens;
  sum.elapsed_ns += row.elapsed_ns;
  sum.busy_ns += row.busy_ns;
  sum.kernel_sum_ns += row.kernel_sum_ns;
  sum.kernels += row.kernels;
  sum.launches += row.launches;
  sum.comm_kernels += row.comm_kernels;
  sum.comm_sum_ns += row.comm_sum_ns;
  if (row.after_prefill) sum.after_prefill = sum.after_prefill.value_or(0) + *row.after_prefill;
  sum.overlapped = sum.overlapped || row.overlapped;
  for (std::size_t c = 0; c < kTimeClasses; ++c) sum.time_ns[c] += row.time_ns[c];
  if (sum.named_by.empty()) sum.named_by = row.named_by;
  if (!sum.detected) sum.detected = row.detected;
}

void RegionSum::Part::add(const RegionSummary& row, const RowPeak& peak) {
  const TimeNs latest = rows == 0 ? row.window.end_ns : sum.window.end_ns;
  if (row.window.end_ns > latest) sum.open = 0;
  if (row.window.end_ns >= latest) sum.open += row.open;
  add_counts(row);
  ++rows;
  weights.add(Weights::of(row, peak));
  if (!row.suspect.empty() && row.elapsed_ns > suspect_ns) {
    sum.suspect = row.suspect;
    suspect_ns = row.elapsed_ns;
  }
  for (const TopKernel& kernel : row.top_kernels) {
    TopKernel& into = kernels.try_emplace(kernel.name, TopKernel{kernel.name, kernel.kernel_class, 0, 0}).first->second;
    into.count += kernel.count;
    into.sum_ns += kernel.sum_ns;
  }
  latency.add(row.latency);
  inter_token.add(row.inter_token);
  prefill_to_decode.add(row.prefill_to_decode);
  for (const BatchLatency& b : row.by_batch) by_batch[{b.unit, b.batch_min}].add(b, peak);
  for (const SlowInstance& s : row.slowest) slowest.add(s);
  bound_ns[static_cast<std::size_t>(row.bound)] += row.elapsed_ns;
  if (row.clock_ratio) {
    clock_weighted += *row.clock_ratio * seconds(row.elapsed_ns);
    clock_s += seconds(row.elapsed_ns);
  }
  if (row.roofline_s) {
    roofline_s += *row.roofline_s;
    ++with_roofline;
  }
}

void RegionSum::Part::add(const Part& other) {
  if (other.rows == 0) return;
  sum.open += other.sum.open;
  add_counts(other.sum);
  rows += other.rows;
  weights.add(other.weights);
  if (other.suspect_ns > suspect_ns) {
    suspect_ns = other.suspect_ns;
    sum.suspect = other.sum.suspect;
  }
  for (const auto& [name, kernel] : other.kernels) {
    TopKernel& into = kernels.try_emplace(name, TopKernel{name, kernel.kernel_class, 0, 0}).first->second;
    into.count += kernel.count;
    into.sum_ns += kernel.sum_ns;
  }
  latency.add(other.latency);
  inter_token.add(other.inter_token);
  prefill_to_decode.add(other.prefill_to_decode);
  for (const auto& [range, batch] : other.by_batch) by_batch[range].add(batch);
  slowest.merge(other.slowest);
  for (std::size_t b = 0; b < bound_ns.size(); ++b) bound_ns[b] += other.bound_ns[b];
  clock_weighted += other.clock_weighted;
  clock_s += other.clock_s;
  roofline_s += other.roofline_s;
  with_roofline += other.with_roofline;
}

RegionTotals RegionSum::Part::totals() const {
  RegionTotals t;
  t.sum = sum;
  t.weights = weights;
  t.rows = rows;
  RegionSummary& s = t.sum;
  s.latency = latency.summary();
  s.inter_token = inter_token.summary();
  s.prefill_to_decode = prefill_to_decode.summary();
  for (const auto& [range, batch] : by_batch) s.by_batch.push_back(batch.totals());
  s.slowest = slowest.beyond(s.latency);
  const auto longest = std::max_element(bound_ns.begin() + 1, bound_ns.end());
  s.bound = *longest > 0 ? static_cast<Bound>(longest - bound_ns.begin()) : Bound::kUnknown;
  if (clock_s > 0) s.clock_ratio = clock_weighted / clock_s;
  if (with_roofline != 0) s.roofline_s = roofline_s;
  for (const auto& [name, kernel] : kernels) s.top_kernels.push_back(kernel);
  std::stable_sort(s.top_kernels.begin(), s.top_kernels.end(),
                   [](const TopKernel& a, const TopKernel& b) { return a.sum_ns > b.sum_ns; });
  if (s.top_kernels.size() > kTopKernels) s.top_kernels.resize(kTopKernels);
  if (weights.with_flop > 0) {
    s.flop = weights.flop;
    s.hfu_flop = weights.hfu_flop;
  }
  if (weights.with_bytes > 0) s.bytes = weights.bytes;
  s.mfu = weights.mfu();
  s.hfu = weights.hfu();
  s.mbu = weights.mbu();
  if (s.classes_known) {
    s.mfu_busy = weights.mfu_busy();
    s.lost = weights.lost();
  }
  return t;
}

void RegionSum::add(const RegionSummary& row, const RowPeak& peak) {
  only_ = empty() ? std::optional(row) : std::nullopt;
  (row.classes_known ? seen_ : blind_).add(row, peak);
}

void RegionSum::add(const RegionSum& other) {
  if (other.empty()) return;
  only_ = empty() ? other.only_ : std::nullopt;
  seen_.add(other.seen_);
  blind_.add(other.blind_);
}

RegionTotals RegionSum::totals() const {
  RegionTotals t = seen_.rows != 0 ? seen_.totals() : blind_.totals();
  if (only_) t.sum = *only_;  // quotients as they were written, not as they are worked out again
  return t;
}

}  // namespace mfu

#include "core/rows/region_totals.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "core/rows/idle_causes.h"
#include "core/rows/metrics.h"

namespace mfu {
namespace {

constexpr std::size_t kMostComponents = 48;  ///< as many as a row of a whole run has

bool usable(const std::optional<double>& peak) { return peak && *peak > 0; }

std::optional<double> quotient(bool known, double part, double whole) {
  return known && whole > 0 ? std::optional(part / whole) : std::nullopt;
}

/// Of all classes together; none where they took no time.
std::optional<std::array<double, kTimeClasses>> shares_of(std::array<double, kTimeClasses> times_ns) {
  const double elapsed_ns = std::accumulate(times_ns.begin(), times_ns.end(), 0.0);
  if (!(elapsed_ns > 0)) return std::nullopt;
  for (double& time : times_ns) time /= elapsed_ns;
  return times_ns;
}

/// The bound of most of the time.
Bound longest(const std::array<DurationNs, 3>& by_bound) {
  const auto most = std::max_element(by_bound.begin() + 1, by_bound.end());
  return *most > 0 ? static_cast<Bound>(most - by_bound.begin()) : Bound::kUnknown;
}

/// A sum that is too large is the largest number: rows may come from a made-up file.
template <typename Number>
void add_to(Number& into, Number more) noexcept {
  if constexpr (std::is_integral_v<Number>) {
    if (__builtin_add_overflow(into, more, &into))
      into = more < 0 ? std::numeric_limits<Number>::min() : std::numeric_limits<Number>::max();
  } else {
    into += more;
  }
}

template <typename T>
void add_field(AddsUp how, T& into, const T& from) {
  if constexpr (std::is_same_v<T, bool>) {
    if (how == AddsUp::kAny) into = into || from;
  } else if constexpr (std::is_same_v<T, std::optional<bool>>) {
    if (how == AddsUp::kAll && from) into = into.value_or(true) && *from;
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (how == AddsUp::kSum) add_to(into, from);
  } else if constexpr (std::is_same_v<T, ClassTimes>) {
    for (std::size_t c = 0; c < kTimeClasses; ++c) add_to(into[c], from[c]);
  } else if constexpr (std::is_same_v<T, std::optional<std::uint32_t>>) {
    if (how == AddsUp::kSame && into != from) into.reset();
  } else if constexpr (requires { *into += *from; }) {
    if (how == AddsUp::kSum && from) into = into ? *into + *from : *from;
  } else if constexpr (std::is_enum_v<T>) {
    if (how == AddsUp::kFirst && into == T{}) into = from;
  } else if constexpr (requires { into.has_value(); }) {
    if (how == AddsUp::kFirst && !into) into = from;
    if (how != AddsUp::kSum || !from) return;
    if constexpr (kHasFields<typename T::value_type>) {
      if (!into) into.emplace();
      for_each_field<typename T::value_type>(
          [&](const auto& field) { add_field(field.adds_up, field.of(*into), field.of(*from)); });
    }
  } else if constexpr (requires { into.empty(); }) {
    if (how == AddsUp::kFirst && into.empty()) into = from;
  }
}

/// Calls `each` with the number of every field that adds up to a mean, and the field.
template <typename Each>
void for_each_mean(Each each) {
  std::size_t index = 0;
  for_each_field<RegionSummary>([&](const auto& field) {
    using T = std::remove_cvref_t<decltype(field.of(std::declval<const RegionSummary&>()))>;
    if constexpr (std::is_same_v<T, std::optional<double>>)
      if (field.adds_up == AddsUp::kMean) each(index++, field);
  });
}

/// Fields that only one of the two has are passed over.
template <typename Row>
void add_fields(Row& into, const Row& from) {
  for_each_field<RegionSummary>([&](const auto& field) {
    using Get = std::remove_cvref_t<decltype(field.get)>;
    if constexpr (std::is_same_v<Get, WindowBegin>) {
      if constexpr (std::is_same_v<Row, RegionSummary>) field.of(into) = std::min(field.of(into), field.of(from));
    } else if constexpr (std::is_same_v<Get, WindowEnd>) {
      if constexpr (std::is_same_v<Row, RegionSummary>) field.of(into) = std::max(field.of(into), field.of(from));
    } else if constexpr (std::is_invocable_v<Get, Row&>) {
      add_field(field.adds_up, field.of(into), field.of(from));
    }
  });
}

}  // namespace

void add_up(RegionCounts& into, const RegionCounts& from) { add_fields(into, from); }
void add_up(RegionSummary& into, const RegionSummary& from) { add_fields(into, from); }

Weights Weights::of(const RegionSummary& row, const RowPeak& peak) {
  Weights w;
  const double elapsed_s = seconds(row.elapsed_ns);
  const bool at_work = row.instances != 0 || row.open != 0;
  for (std::size_t c = 0; c < kTimeClasses; ++c) w.time_ns[c] = static_cast<double>(row.time_ns[c]);
  // Where times are missing, the FLOP count if it is known how long their instances took.
  const bool flop_counts = row.flop && (row.untimed == 0 || row.mfu);
  const bool bytes_count = row.bytes && (row.untimed == 0 || row.mbu);
  if ((flop_counts || !at_work) && usable(peak.flop_per_s)) {
    w.with_flop = flop_counts ? 1 : 0;
    w.flop = row.flop.value_or(0);
    w.hfu_flop = row.hfu_flop.value_or(w.flop);
    w.flop_at_peak = *peak.flop_per_s * elapsed_s;
    w.flop_at_peak_busy = *peak.flop_per_s * seconds(row.busy_ns);
    w.counted_ns = w.time_ns;
    w.graph_ns = static_cast<double>(row.graph_sum_ns);
    if (row.gemm_loss)
      for (const auto part : kGemmLossParts) w.gemm_loss_ns.*part = *row.gemm_loss.*part * elapsed_s * 1e9;
  } else {
    w.left_out = 1;
  }
  if ((bytes_count || !at_work) && usable(peak.bytes_per_s)) {
    w.with_bytes = bytes_count ? 1 : 0;
    w.bytes = row.bytes.value_or(0);
    w.bytes_at_peak = *peak.bytes_per_s * elapsed_s;
  }
  if (row.executed) {
    w.ideal_ns = static_cast<double>(row.executed->ideal_ns);
    w.covered_ns = static_cast<double>(row.executed->covered_ns);
    w.matmul_ns = static_cast<double>(row.executed->matmul_ns);
    w.executed_elapsed_ns = static_cast<double>(row.elapsed_ns);
  }
  return w;
}

void Weights::add(const Weights& other, double share) {
  for (double Weights::*const sum :
       {&Weights::flop, &Weights::hfu_flop, &Weights::flop_at_peak, &Weights::flop_at_peak_busy, &Weights::bytes,
        &Weights::bytes_at_peak, &Weights::with_flop, &Weights::with_bytes, &Weights::left_out, &Weights::graph_ns,
        &Weights::ideal_ns, &Weights::covered_ns, &Weights::matmul_ns, &Weights::executed_elapsed_ns})
    this->*sum += share * other.*sum;
  for (const auto part : kGemmLossParts) gemm_loss_ns.*part += share * other.gemm_loss_ns.*part;
  for (std::size_t c = 0; c < kTimeClasses; ++c) {
    counted_ns[c] += share * other.counted_ns[c];
    time_ns[c] += share * other.time_ns[c];
  }
}

std::optional<double> Weights::mfu() const { return quotient(with_flop > 0, flop, flop_at_peak); }
std::optional<double> Weights::hfu() const {
  if (hfu_is_executed()) return quotient(true, ideal_ns, executed_elapsed_ns);
  return quotient(with_flop > 0, hfu_flop, flop_at_peak);
}
std::optional<double> Weights::mfu_busy() const { return quotient(with_flop > 0, flop, flop_at_peak_busy); }
std::optional<double> Weights::mbu() const { return quotient(with_bytes > 0, bytes, bytes_at_peak); }

std::optional<std::array<double, kTimeClasses>> Weights::lost() const {
  const std::optional<double> useful = mfu();
  const auto shares = shares_of(counted_ns);
  return useful && shares ? lost_of(*shares, *useful, graph_ns > 0) : std::nullopt;
}

std::optional<GemmLoss> Weights::gemm_loss(double lost_matmul) const {
  const double elapsed_ns = std::accumulate(counted_ns.begin(), counted_ns.end(), 0.0);
  GemmLoss loss;
  bool any = false;
  for (const auto part : kGemmLossParts) {
    loss.*part = elapsed_ns > 0 ? gemm_loss_ns.*part / elapsed_ns : 0;
    any = any || loss.*part > 0;
  }
  if (!any) return std::nullopt;
  loss.fit(lost_matmul);
  return loss;
}

std::optional<std::array<double, kTimeClasses>> Weights::time_shares() const { return shares_of(time_ns); }

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

void KernelSums::add(const TopKernel& kernel) {
  TopKernel& into = by_name_.try_emplace(kernel.name, TopKernel{kernel.name, kernel.kernel_class, 0, 0}).first->second;
  add_to(into.count, kernel.count);
  add_to(into.sum_ns, kernel.sum_ns);
}

void KernelSums::add(const KernelSums& other) {
  for (const auto& [name, kernel] : other.by_name_) add(kernel);
}

std::vector<TopKernel> KernelSums::top() const {
  std::vector<TopKernel> top;
  for (const auto& [name, kernel] : by_name_) top.push_back(kernel);
  std::ranges::stable_sort(top, std::greater{}, &TopKernel::sum_ns);
  if (top.size() > kTopKernels) top.resize(kTopKernels);
  return top;
}

void ComponentSums::Sum::add(const Sum& other) {
  sum.calls += other.sum.calls;
  sum.shapes = std::max(sum.shapes, other.sum.shapes);  // mostly the same ones; how many are not is unknown
  sum.time_ns += other.sum.time_ns;
  if (other.sum.flop) sum.flop = sum.flop.value_or(0) + *other.sum.flop;
  ideal_ns += other.ideal_ns;
  with_peak_ns += other.with_peak_ns;
  flop_ns += other.flop_ns;
  for (const auto part : kGemmLossParts) loss_ns.*part += other.loss_ns.*part;
  any_loss = any_loss || other.any_loss;
  for (std::size_t b = 0; b < bound_ns.size(); ++b) bound_ns[b] += other.bound_ns[b];
}

Component ComponentSums::Sum::total() const {
  Component c = sum;
  c.flop_per_s = quotient(c.flop.has_value(), c.flop.value_or(0), flop_ns * 1e-9);
  c.of_peak = quotient(true, ideal_ns, with_peak_ns);
  c.bound = longest(bound_ns);
  c.loss.reset();
  if (any_loss && c.of_peak.value_or(2) <= 1) {
    c.loss = loss_ns;
    for (const auto part : kGemmLossParts) *c.loss.*part /= with_peak_ns;
    c.loss->fit(1 - *c.of_peak);
  }
  return c;
}

void ComponentSums::add(const Component& component) {
  Sum one;
  one.sum = component;
  const auto time = static_cast<double>(component.time_ns);
  if (component.of_peak) {
    one.ideal_ns = *component.of_peak * time;
    one.with_peak_ns = time;
  }
  if (component.flop) one.flop_ns = time;
  if (component.loss) {
    one.any_loss = true;
    for (const auto part : kGemmLossParts) one.loss_ns.*part = *component.loss.*part * time;
  }
  one.bound_ns[static_cast<std::size_t>(component.bound)] = component.time_ns;
  const auto [known, inserted] = by_name_.try_emplace({component.name, component.pass}, one);
  if (!inserted) known->second.add(one);
}

void ComponentSums::add(const ComponentSums& other) {
  for (const auto& [name, sum] : other.by_name_) {
    const auto [known, inserted] = by_name_.try_emplace(name, sum);
    if (!inserted) known->second.add(sum);
  }
}

std::vector<Component> ComponentSums::list(std::size_t most) const {
  std::vector<const Sum*> order;
  Sum rest;
  rest.sum.name = "other";
  bool any_rest = false;
  for (const auto& [name, sum] : by_name_) {
    if (name.first == "other") {
      rest.add(sum);
      any_rest = true;
    } else {
      order.push_back(&sum);
    }
  }
  std::ranges::stable_sort(order, std::greater{}, [](const Sum* sum) { return sum->sum.time_ns; });
  std::vector<Component> out;
  for (const Sum* sum : order) {
    if (out.size() < most) {
      out.push_back(sum->total());
    } else {
      rest.add(*sum);
      any_rest = true;
    }
  }
  if (any_rest) out.push_back(rest.total());
  return out;
}

void RegionTotals::Batch::add_counts(const BatchLatency& row) {
  sum.unit = row.unit;
  sum.batch_min = row.batch_min;
  sum.batch_max = row.batch_max;
  add_to(sum.instances, row.instances);
  add_to(sum.tokens, row.tokens);
  add_to(sum.elapsed_ns, row.elapsed_ns);
}

void RegionTotals::Batch::add(const BatchLatency& row, const RowPeak& peak) {
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

void RegionTotals::Batch::add(const Batch& other) {
  add_counts(other.sum);
  latency.add(other.latency);
  flop += other.flop;
  flop_at_peak += other.flop_at_peak;
  bytes += other.bytes;
  bytes_at_peak += other.bytes_at_peak;
}

BatchLatency RegionTotals::Batch::totals() const {
  BatchLatency b = sum;
  b.latency = latency.summary();
  b.mfu = quotient(true, flop, flop_at_peak);
  b.mbu = quotient(true, bytes, bytes_at_peak);
  if (b.mfu) b.flop = flop;
  if (b.mbu) b.bytes = bytes;
  return b;
}

void RegionTotals::Part::merge(const RegionSummary& row) {
  if (rows == 0) {
    sum.region = row.region;
    sum.device = row.device;
    sum.window = row.window;
    sum.classes_known = row.classes_known;
  }
  sum.classes_known = sum.classes_known && (row.classes_known || row.untimed == 0);
  add_up(sum, row);
  if (row.hfu_flop || row.flop) sum.hfu_flop = sum.hfu_flop.value_or(0) + row.hfu_flop.value_or(row.flop.value_or(0));
}

void RegionTotals::Part::add(const RegionSummary& row, const RowPeak& peak) {
  const TimeNs latest = rows == 0 ? row.window.end_ns : sum.window.end_ns;
  if (row.window.end_ns > latest) sum.open = 0;
  if (row.window.end_ns >= latest) sum.open += row.open;
  merge(row);
  ++rows;
  weights.add(Weights::of(row, peak));
  if (!row.suspect.empty() && row.elapsed_ns > suspect_ns) {
    sum.suspect = row.suspect;
    suspect_ns = row.elapsed_ns;
  }
  for (const TopKernel& kernel : row.top_kernels) kernels.add(kernel);
  for (const Component& component : row.components) components.add(component);
  for (const IdleCause& cause : row.idle_by) add_cause(idle_by, cause);
  latency.add(row.latency);
  inter_token.add(row.inter_token);
  prefill_to_decode.add(row.prefill_to_decode);
  for (const BatchLatency& b : row.by_batch) by_batch[{b.unit, b.batch_min}].add(b, peak);
  for (const SlowInstance& s : row.slowest) slowest.add(s);
  add_to(bound_ns[static_cast<std::size_t>(row.bound)], row.elapsed_ns);
  for_each_mean([&](std::size_t index, const auto& field) {
    if (const std::optional<double>& value = field.of(row)) means[index].add(*value, seconds(row.elapsed_ns));
  });
}

void RegionTotals::Part::merge_histograms(const Part& other) {
  latency.add(other.latency);
  inter_token.add(other.inter_token);
  prefill_to_decode.add(other.prefill_to_decode);
  for (const auto& [range, batch] : other.by_batch) by_batch[range].add(batch);
}

void RegionTotals::Part::add(const Part& other) {
  if (other.rows == 0) return;
  sum.open += other.sum.open;
  merge(other.sum);
  rows += other.rows;
  weights.add(other.weights);
  if (other.suspect_ns > suspect_ns) {
    suspect_ns = other.suspect_ns;
    sum.suspect = other.sum.suspect;
  }
  kernels.add(other.kernels);
  components.add(other.components);
  for (const IdleCause& cause : other.idle_by) add_cause(idle_by, cause);
  merge_histograms(other);
  slowest.merge(other.slowest);
  for (std::size_t b = 0; b < bound_ns.size(); ++b) add_to(bound_ns[b], other.bound_ns[b]);
  for (std::size_t i = 0; i < means.size(); ++i) means[i].add(other.means[i]);
}

/// Histograms as an output has them.
void RegionTotals::Part::describe(RegionSummary& into) const {
  into.latency = latency.summary();
  into.inter_token = inter_token.summary();
  into.prefill_to_decode = prefill_to_decode.summary();
  into.idle_by = idle_by;
  keep_longest(into.idle_by, kMostIdleCauses);
  into.by_batch.clear();
  for (const auto& [range, batch] : by_batch) into.by_batch.push_back(batch.totals());
}

SummedRegion RegionTotals::Part::summed() const {
  SummedRegion t{sum, weights, rows};
  RegionSummary& s = t.sum;
  describe(s);
  s.slowest = slowest.beyond(s.latency);
  s.bound = longest(bound_ns);
  for_each_mean([&](std::size_t index, const auto& field) { field.of(s) = means[index].mean(); });
  complete_energy(s);
  s.top_kernels = kernels.top();
  s.components = components.list(kMostComponents);
  if (weights.with_flop > 0) {
    s.flop = weights.flop;
    s.hfu_flop = weights.hfu_flop;
  }
  if (weights.with_bytes > 0) s.bytes = weights.bytes;
  s.mfu = weights.mfu();
  s.hfu = weights.hfu();
  s.mbu = weights.mbu();
  if (s.untimed != 0) {
    s.forget_kernel_times();
  } else if (s.classes_known) {
    s.mfu_busy = weights.mfu_busy();
    s.lost = weights.lost();
    if (s.lost) s.gemm_loss = weights.gemm_loss((*s.lost)[static_cast<std::size_t>(TimeClass::kMatmul)]);
  }
  return t;
}

void RegionTotals::add(const RegionSummary& row, const RowPeak& peak) {
  only_ = empty() ? std::optional(row) : std::nullopt;
  (row.classes_known || row.untimed != 0 ? seen_ : blind_).add(row, peak);
}

void RegionTotals::add(const RegionTotals& other) {
  if (other.empty()) return;
  only_ = empty() ? other.only_ : std::nullopt;
  seen_.add(other.seen_);
  blind_.add(other.blind_);
}

void RegionTotals::add_beside(const RegionSummary& row, const RowPeak& peak) {
  RegionTotals one;
  one.add(row, peak);
  add(one);
}

SummedRegion RegionTotals::summed() const {
  SummedRegion t = seen_.rows != 0 ? seen_.summed() : blind_.summed();
  if (only_) t.sum = *only_;  // quotients as they were written, not as they are worked out again
  doubt_impossible(t.sum);
  return t;
}

RegionSummary RegionTotals::everything() const {
  if (only_) return *only_;
  Part all = seen_;
  if (blind_.rows != 0) {
    all.merge(blind_.sum);
    all.merge_histograms(blind_);
  }
  all.describe(all.sum);
  all.sum.idle_by = std::move(all.idle_by);  // all of them, in the order in which they appeared
  return std::move(all.sum);
}

}  // namespace mfu

#include "tools/serve/exposition.h"

#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/rows/region_fields.h"
#include "tools/job/cost.h"
#include "tools/job/hang.h"
#include "tools/job/model_facts.h"
#include "tools/job/straggler.h"
#include "tools/job/totals.h"

namespace mfu {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

/// Families in order of their first sample.
class Families {
 public:
  void gauge(const char* name, const char* help, Labels labels, const std::optional<double>& value) {
    if (!value || !std::isfinite(*value)) return;
    ClientMetric& metric = add(name, help, MetricType::Gauge, std::move(labels));
    metric.gauge.value = *value;
  }
  void counter(const char* name, const char* help, Labels labels, double value) {
    add(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
  }
  ClientMetric& histogram(const char* name, const char* help, Labels labels) {
    return add(name, help, MetricType::Histogram, std::move(labels));
  }
  [[nodiscard]] std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  ClientMetric& add(const char* name, const char* help, MetricType type, Labels labels) {
    const auto [at, fresh] = index_.try_emplace(name, families_.size());
    if (fresh) families_.push_back({name, help, type, {}});
    auto& metrics = families_[at->second].metric;
    metrics.emplace_back();
    metrics.back().label = std::move(labels);
    for (ClientMetric::Label& label : metrics.back().label) label.value = printable(label.value, kLongestLabel);
    return metrics.back();
  }
  static constexpr std::size_t kLongestLabel = 1000;

  std::vector<MetricFamily> families_;
  std::map<std::string, std::size_t> index_;
};

Labels with(Labels labels, std::initializer_list<ClientMetric::Label> more) {
  labels.insert(labels.end(), more);
  return labels;
}

/// Octaves from 0.26 ms to 69 s: edges of the library's buckets (eight to an octave), so that counts are exact.
constexpr int kFirstEdgeBit = 18, kLastEdgeBit = 36;

void fill_histogram(ClientMetric& metric, const LatencySummary& latency, DurationNs sum_ns) {
  auto& histogram = metric.histogram;
  auto it = latency.histogram.begin();
  std::uint64_t seen = 0;
  for (int bit = kFirstEdgeBit; bit <= kLastEdgeBit; ++bit) {
    const DurationNs edge = (DurationNs{1} << bit) - 1;
    for (; it != latency.histogram.end() && it->first <= edge; ++it) seen += it->second;
    histogram.bucket.push_back({seen, static_cast<double>(edge) / 1e9});  // divided: nearest to the decimal label
  }
  for (; it != latency.histogram.end(); ++it) seen += it->second;
  histogram.bucket.push_back({seen, std::numeric_limits<double>::infinity()});
  histogram.sample_count = seen;
  histogram.sample_sum = seconds(sum_ns);
}

std::optional<double> metric_value(double value, Unit) { return value; }
std::optional<double> metric_value(std::integral auto value, Unit unit) {
  return unit == Unit::kSeconds ? seconds(static_cast<DurationNs>(value)) : static_cast<double>(value);
}

/// The metrics of one kind that region_fields.h names, for one row.
void field_metrics(Families& out, Metric::Kind kind, const RegionSummary& row, const Labels& labels) {
  for_each_field<RegionSummary>([&](const auto& field) {
    const Metric& metric = field.metric;
    if (metric.kind != kind) return;
    const auto put = [&](const std::optional<double>& value, Labels with_class) {
      if (!value) return;
      if (field.unit == Unit::kRatio && !is_possible(*value)) return;  // mfu_suspect has the cause
      if (kind == Metric::Kind::kGauge)
        out.gauge(metric.name, metric.help, std::move(with_class), *value);
      else if (*value != 0 || field.key != "tokens")
        out.counter(metric.name, metric.help, std::move(with_class), *value);
    };
    const auto& value = field.of(row);
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (kIsByClass<T>) {
      for (std::size_t c = 0; c < kTimeClasses; ++c) {
        const Labels of_class = with(labels, {{"class", std::string(kTimeClassNames[c])}});
        if constexpr (std::is_same_v<T, ClassTimes>)
          put(metric_value(value[c], field.unit), of_class);
        else if (value)
          put(metric_value((*value)[c], field.unit), of_class);
      }
    } else if constexpr (std::is_same_v<T, std::vector<IdleCause>>) {
      // In the order in which they appeared, so that what has a series keeps it and no counter falls.
      constexpr std::size_t kMost = 16;
      std::vector<std::pair<std::string, DurationNs>> by_cause{{"other", 0}};
      for (const IdleCause& c : value) {
        const std::string& name = c.cause.empty() ? "unknown" : c.cause;
        auto at =
            std::find_if(by_cause.begin(), by_cause.end(), [&](const auto& known) { return known.first == name; });
        if (at == by_cause.end()) at = by_cause.size() < kMost ? by_cause.insert(at, {name, 0}) : by_cause.begin();
        at->second += c.ns;
      }
      for (const auto& [name, ns] : by_cause)
        if (ns != 0) put(seconds(ns), with(labels, {{"cause", name}}));
    } else if constexpr (std::is_arithmetic_v<T>) {
      put(metric_value(value, field.unit), labels);
    } else if constexpr (requires { metric_value(*value, field.unit); }) {
      if (value) put(metric_value(*value, field.unit), labels);
    }
  });
}

/// Why ratios of a row are missing: they would be above 100 %, or its work is in doubt for another cause.
void suspect_metric(Families& out, const RegionSummary& row, const Labels& labels) {
  if (!row.suspect.empty())
    out.gauge("mfu_suspect", "1: the figures of the newest window are in doubt; a ratio above 100 % is left out",
              with(labels, {{"cause", row.suspect.substr(0, row.suspect.find(':'))}}), 1);
}

/// The ratios of the newest window that a large job is watched by.
void short_rank_metrics(Families& out, const Rank& rank, const Labels& process) {
  if (rank.state != RankState::kLive || !rank.last) return;
  for (const RegionSummary& r : rank.last->regions) {
    const Labels region = with(process, {{"gpu", r.device ? std::to_string(*r.device) : ""}, {"region", r.region}});
    for_each_field<RegionSummary>([&](const auto& field) {
      const auto& value = field.of(r);
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::optional<double>>) {
        if (field.metric.kind == Metric::Kind::kGauge)
          out.gauge(field.metric.name, field.metric.help, region, possible(value));
      }
    });
    suspect_metric(out, r, region);
  }
}

void rank_metrics(Families& out, const Rank& rank, const Labels& process, PerRank per_rank) {
  const bool live = rank.state == RankState::kLive;
  const RunInfo& run = *rank.run;
  out.gauge("mfu_rank_up", "1: the rank wrote within its last three windows; 0: it is stale or has ended", process,
            live || rank.state == RankState::kStarting ? 1 : 0);
  if (per_rank == PerRank::kMfu) {
    short_rank_metrics(out, rank, process);
    return;
  }
  out.gauge("mfu_last_line_timestamp_seconds", "When the rank wrote its newest line, by its host's clock", process,
            seconds(rank.last_line_ns));
  if (rank.state == RankState::kStale) return;

  const auto labels_of = [&](std::optional<std::uint32_t> device) {
    const DeviceInfo* info = device ? rank.device(device) : nullptr;
    return with(process, {{"gpu", device ? std::to_string(*device) : ""}, {"uuid", info != nullptr ? info->uuid : ""}});
  };
  for (const DeviceInfo& d : run.devices) {
    const Labels gpu = labels_of(d.device);
    out.gauge("mfu_info", "1; what the figures stand on",
              with(gpu, {{"version", run.version},
                         {"convention", run.convention},
                         {"peak_source", d.peak_source},
                         {"dtype", d.dtype},
                         {"model", model_facts(run).family},
                         {"gpu_name", d.name},
                         {"level", run.level}}),
              1);
    out.gauge("mfu_peak_flops", "FLOP/s that MFU divides by", gpu, d.peak_flop_per_s);
    out.gauge("mfu_peak_bytes_per_second", "Memory bandwidth that MBU divides by", gpu, d.peak_bytes_per_s);
  }
  if (rank.last) {
    // Of ended ranks too: a run that is over keeps what it counted.
    out.counter("mfu_dropped_records_total", "Activity records that CUPTI or the library lost", process,
                static_cast<double>(rank.dropped_records()));
    const SelfCost& self = rank.shown()->self;
    out.counter("mfu_overhead_seconds_total", "CPU time of the library's own threads", process, self.cpu_s);
  }
  if (live && rank.last) {
    out.gauge("mfu_overhead_ratio", "Share of the host program's time that the library took, so far", process,
              rank.last->self.overhead);
    out.gauge("mfu_window_seconds", "Length of the newest window", process, seconds(rank.last->window.length_ns()));
    std::set<std::uint32_t> clocked;
    for (const RegionSummary& r : rank.last->regions) {
      const Labels region = with(labels_of(r.device), {{"region", r.region}});
      field_metrics(out, Metric::Kind::kGauge, r, region);
      suspect_metric(out, r, region);
      if (r.classes_known && r.elapsed_ns > 0)
        out.gauge("mfu_busy_ratio", "Time with a kernel running / elapsed, of the newest window", region,
                  static_cast<double>(r.busy_ns) / static_cast<double>(r.elapsed_ns));
      if (r.clock_ratio && r.device && clocked.insert(*r.device).second)
        out.gauge("mfu_clock_ratio", "SM clock / the clock that the peak stands for", labels_of(r.device),
                  r.clock_ratio);
    }
  }
  for (const auto& [key, totals] : rank.sums) {
    const Labels region = with(labels_of(key.second), {{"region", key.first}});
    const RegionSummary sum = totals.everything();
    field_metrics(out, Metric::Kind::kCounter, sum, region);
    if (sum.flop) {
      out.counter("mfu_executed_flops_total", "Model FLOP and recomputed FLOP done", region,
                  sum.hfu_flop.value_or(*sum.flop));
      if (totals.flop_at_peak() > 0)
        out.counter("mfu_possible_flops_total", "Peak x elapsed of the windows whose FLOP are known", region,
                    totals.flop_at_peak());
    }
    if (sum.energy) out.counter("mfu_energy_joules_total", "Energy that the board took", region, sum.energy->joules);
    if (key.first != "total" && sum.latency.count != 0)
      fill_histogram(out.histogram("mfu_step_seconds", "Durations of the region's instances", region), sum.latency,
                     sum.elapsed_ns);
    for (const BatchLatency& batch : sum.by_batch)
      fill_histogram(out.histogram("mfu_iteration_seconds",
                                   "Durations by size of the batch: of decode passes by sequences, of others by tokens",
                                   with(region, {{"batch_unit", std::string(word(batch.unit))},
                                                 {"batch_max", std::to_string(batch.batch_max)}})),
                     batch.latency, batch.elapsed_ns);
  }
}

/// The parts of the job's time, and a stall.
void life_metrics(Families& out, const LiveJob& job, const Labels& whole) {
  const JobLife life = job.life();
  for (const auto& [factor, ratio] : {std::pair{"job", life.job_mfu()},
                                      {"in_steps", life.mfu},
                                      {"productive", life.productive()},
                                      {"alive", life.alive()}})
    out.gauge("mfu_job_life_ratio", "MFU of the whole life of the job (factor job) = in_steps x productive x alive",
              with(whole, {{"factor", factor}}), ratio);
  for (std::size_t part = 0; part < kLifeParts; ++part)
    out.gauge("mfu_job_gpu_seconds", "GPU time of the job so far by what it went into; the parts sum to GPUs x wall",
              with(whole, {{"part", std::string(kLifePartNames[part])}}), life.gpu_s(static_cast<LifePart>(part)));
  out.gauge("mfu_job_attempts", "How often the job was started", whole, static_cast<double>(life.attempts.size()));
  if (const std::optional<Hang> hang = find_hang(job)) {
    const Labels of_rank = with(whole, {{"rank", hang->rank ? std::to_string(*hang->rank) : ""},
                                        {"hostname", hang->host},
                                        {"saves", hang->saves ? "1" : "0"}});
    out.gauge("mfu_job_stalled_seconds",
              "How long ranks have waited for work that does not end; by the rank that they "
              "wait for, and whether it writes a checkpoint",
              of_rank, hang->since_s);
    out.gauge("mfu_job_stalled_gpu_seconds", "What that has cost so far", of_rank, hang->gpu_s);
  }
}

}  // namespace

std::vector<MetricFamily> exposition(const LiveJob& job, const std::string& job_label, PerRank per_rank) {
  Families out;
  const JobTotals totals = job_totals(job.ranks());
  const Labels whole{{"job", job_label}};
  for (const auto& [state, count] :
       {std::pair{"live", totals.live}, std::pair{"starting", totals.starting}, std::pair{"stale", totals.stale},
        std::pair{"ended", totals.ended}, std::pair{"unreadable", totals.unreadable}})
    out.gauge("mfu_job_ranks", "Processes of the job by state", with(whole, {{"state", state}}),
              static_cast<double>(count));
  if (totals.world_size != 0)
    out.gauge("mfu_job_world_size", "Ranks that the job has, as its launcher says", whole,
              static_cast<double>(totals.world_size));
  if (!totals.whole_run && totals.counted != 0) {
    out.gauge("mfu_job_ratio", "FLOP / sum(peak x elapsed) over the newest windows of the live ranks", whole,
              possible(totals.mfu));
    out.gauge("mfu_job_hfu_ratio", "With recomputed FLOP", whole, possible(totals.hfu));
    out.gauge("mfu_job_mbu_ratio", "Bytes / sum(peak bandwidth x elapsed)", whole, possible(totals.mbu));
    out.gauge("mfu_job_busy_ratio", "Time with a kernel running / elapsed", whole, totals.busy);
    if (totals.lost)
      for (std::size_t c = 0; c < kTimeClasses; ++c)
        out.gauge("mfu_job_lost_ratio", "Share lost to the class; with mfu_job_ratio they sum to 1",
                  with(whole, {{"class", std::string(kTimeClassNames[c])}}), (*totals.lost)[c]);
    out.gauge("mfu_job_flops_per_second", "Model FLOP/s of all live ranks", whole, totals.flop_per_s);
    out.gauge("mfu_job_tokens_per_second", "Tokens per second of all live ranks", whole, totals.tokens_per_s);
    if (job.price()) {
      const LiveCost cost = live_cost(totals, *job.price());
      out.gauge("mfu_job_cost_per_hour", "Price of the job's devices for an hour", whole, cost.per_hour);
      out.gauge("mfu_job_idle_cost_per_hour", "Of that, idle time", whole, cost.idle_per_hour);
      out.gauge("mfu_job_comm_cost_per_hour", "Of that, exposed communication", whole, cost.comm_per_hour);
      out.gauge("mfu_job_cost_per_million_tokens", "At the rate of the newest windows", whole, cost.per_million_tokens);
    }
  }
  life_metrics(out, job, whole);
  double bad_lines = 0;
  for (const Rank* rank : job.ranks()) bad_lines += static_cast<double>(rank->bad_lines);
  out.counter("mfu_unreadable_lines_total", "Lines of the run directory that could not be read", whole, bad_lines);

  constexpr std::size_t kInFull = 128;
  if (per_rank == PerRank::kAuto) per_rank = job.ranks().size() <= kInFull ? PerRank::kAll : PerRank::kMfu;
  std::map<std::pair<std::string, std::int64_t>, int> seen;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, int> same_pid;
  std::map<const Rank*, Labels> labels;
  for (const Rank* rank : job.ranks()) {
    if (!rank->run || rank->state == RankState::kReplaced) continue;
    const RunInfo& run = *rank->run;
    Labels process = with(whole, {{"rank", std::to_string(run.rank)},
                                  {"local_rank", run.local_rank ? std::to_string(*run.local_rank) : ""},
                                  {"hostname", run.host}});
    // Programs that no launcher numbered are all rank 0: series must differ none the less.
    if (seen[{run.host, run.rank}]++ != 0) process.push_back({"pid", std::to_string(run.pid)});
    // Containers with one host name may have one pid as well.
    if (same_pid[{run.host, run.rank, run.pid}]++ != 0) process.push_back({"start_ns", std::to_string(run.t_ns)});
    if (per_rank != PerRank::kNone) rank_metrics(out, *rank, process, per_rank);
    labels[rank] = std::move(process);
  }
  for (const Straggler& s : find_stragglers(job.ranks(), job.clocks(), totals.mfu)) {
    const Labels at = with(labels[s.rank], {{"gpu", s.device ? std::to_string(*s.device) : ""}, {"region", s.region}});
    out.gauge("mfu_straggler_wait_ratio", "Share of the region's time that the others wait for this rank", at,
              s.lost_share);
    if (job.price())
      out.gauge("mfu_straggler_cost_per_hour", "Price of what the others wait for this rank, an hour of the region", at,
                live_cost(totals, *job.price()).per_hour * s.lost_share);
    out.gauge("mfu_straggler_cost_ratio", "MFU that the job would have more if this rank came with the others", at,
              s.cost_mfu);
  }
  return out.take();
}

}  // namespace mfu

#include "tools/job/region_figures.h"

namespace mfu {

namespace {

template <typename Get>
std::optional<double> of_device_activity(const JobRegion& r, Get get) {
  return r.sum().classes_known ? std::optional<double>(get(r.sum())) : std::nullopt;
}

/// A quantile of a LatencySummary of the region; none where it is empty.
template <LatencySummary RegionSummary::*of, DurationNs LatencySummary::*quantile>
std::optional<double> quantile_s(const JobRegion& r) {
  const LatencySummary& l = r.sum().*of;
  return l.count != 0 ? std::optional(seconds(l.*quantile)) : std::nullopt;
}

template <std::size_t c>
std::optional<double> lost(const JobRegion& r) {
  return r.sum().lost && r.sum().classes_known ? std::optional((*r.sum().lost)[c]) : std::nullopt;
}

template <std::size_t c>
std::optional<double> time_s(const JobRegion& r) {
  return of_device_activity(r, [](const RegionSummary& s) { return seconds(s.time_ns[c]); });
}

std::optional<double> number(std::uint64_t n) { return static_cast<double>(n); }

}  // namespace

std::optional<double> tokens_per_s(const RegionSummary& row) {
  if (row.tokens == 0 || row.elapsed_ns == 0) return std::nullopt;
  return static_cast<double>(row.tokens) / seconds(row.elapsed_ns);
}

std::optional<double> each_s(const RegionSummary& row) {
  if (row.instances == 0 || row.region == "total") return std::nullopt;
  return seconds(row.elapsed_ns) / static_cast<double>(row.instances);
}

const std::vector<RegionFigure>& region_figures() {
  using R = const JobRegion&;
  static const std::vector<RegionFigure> kFigures{
      {"mfu", [](R r) { return r.sum().mfu; }},
      {"mfu_busy", [](R r) { return r.sum().mfu_busy; }},
      {"hfu", [](R r) { return r.sum().hfu; }},
      {"mbu", [](R r) { return r.sum().mbu; }},
      {"lost.matmul", lost<0>},
      {"lost.other", lost<1>},
      {"lost.comm", lost<2>},
      {"lost.memcpy", lost<3>},
      {"lost.idle", lost<4>},
      {"tokens_per_s", [](R r) { return tokens_per_s(r.sum()); }},
      {"each_s", [](R r) { return each_s(r.sum()); }},
      {"latency.count", [](R r) { return number(r.sum().latency.count); }},
      {"latency.p50_s", quantile_s<&RegionSummary::latency, &LatencySummary::p50_ns>},
      {"latency.p90_s", quantile_s<&RegionSummary::latency, &LatencySummary::p90_ns>},
      {"latency.p99_s", quantile_s<&RegionSummary::latency, &LatencySummary::p99_ns>},
      {"latency.max_s", quantile_s<&RegionSummary::latency, &LatencySummary::max_ns>},
      {"inter_token_s.p50", quantile_s<&RegionSummary::inter_token, &LatencySummary::p50_ns>},
      {"inter_token_s.p90", quantile_s<&RegionSummary::inter_token, &LatencySummary::p90_ns>},
      {"inter_token_s.p99", quantile_s<&RegionSummary::inter_token, &LatencySummary::p99_ns>},
      {"inter_token_s.max", quantile_s<&RegionSummary::inter_token, &LatencySummary::max_ns>},
      {"prefill_to_decode_s.p50", quantile_s<&RegionSummary::prefill_to_decode, &LatencySummary::p50_ns>},
      {"prefill_to_decode_s.p90", quantile_s<&RegionSummary::prefill_to_decode, &LatencySummary::p90_ns>},
      {"prefill_to_decode_s.p99", quantile_s<&RegionSummary::prefill_to_decode, &LatencySummary::p99_ns>},
      {"prefill_to_decode_s.max", quantile_s<&RegionSummary::prefill_to_decode, &LatencySummary::max_ns>},
      {"after_prefill", [](R r) { return r.sum().after_prefill ? number(*r.sum().after_prefill) : std::nullopt; }},
      {"elapsed_s", [](R r) { return std::optional(seconds(r.sum().elapsed_ns)); }},
      {"busy_s", [](R r) { return of_device_activity(r, [](const auto& s) { return seconds(s.busy_ns); }); }},
      {"kernel_sum_s",
       [](R r) { return of_device_activity(r, [](const auto& s) { return seconds(s.kernel_sum_ns); }); }},
      {"comm_sum_s", [](R r) { return of_device_activity(r, [](const auto& s) { return seconds(s.comm_sum_ns); }); }},
      {"time_s.matmul", time_s<0>},
      {"time_s.other", time_s<1>},
      {"time_s.comm", time_s<2>},
      {"time_s.memcpy", time_s<3>},
      {"time_s.idle", time_s<4>},
      {"instances", [](R r) { return number(r.sum().instances); }},
      {"open", [](R r) { return number(r.sum().open); }},
      {"tokens", [](R r) { return std::optional(static_cast<double>(r.sum().tokens)); }},
      {"kernels", [](R r) { return number(r.sum().kernels); }},
      {"launches", [](R r) { return number(r.sum().launches); }},
      {"comm_kernels", [](R r) { return number(r.sum().comm_kernels); }},
      {"flop", [](R r) { return r.sum().flop; }},
      {"bytes", [](R r) { return r.sum().bytes; }},
      {"roofline_s", [](R r) { return r.sum().roofline_s; }},
      {"clock_ratio", [](R r) { return r.sum().clock_ratio; }},
      {"ranks", [](R r) { return number(r.processes); }},
  };
  return kFigures;
}

const RegionFigure* find_figure(std::string_view key) {
  for (const RegionFigure& figure : region_figures())
    if (figure.key == key || (figure.key.starts_with("latency.") && figure.key.substr(8) == key && key != "count"))
      return &figure;
  return nullptr;
}

}  // namespace mfu

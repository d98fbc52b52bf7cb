// Histories made up for the tests of reports.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/rows/metrics.h"
#include "tools/job/job_report.h"

namespace mfu::testing_job {

inline constexpr TimeNs kStart = 1'795'289'438'000'000'000;

inline RunInfo run_info(std::int64_t rank) {
  RunInfo run;
  run.t_ns = kStart;
  run.host = "node";
  run.pid = 100 + rank;
  run.rank = rank;
  run.world_size = rank + 1;
  run.version = "0.1.0";
  run.level = "full";
  run.model_json = "{\"family\":\"gpt2\"}";
  run.convention = "exact";
  DeviceInfo device;
  device.name = "NVIDIA H100 80GB HBM3";
  device.peak_flop_per_s = 1000e12;
  device.peak_bytes_per_s = 3e12;
  device.dtype = "bf16";
  device.peak_source = "table: H100";
  run.devices = {device};
  return run;
}

/// A region's row with `share` (in percent) of each class and the FLOP that make `mfu`.
inline RegionSummary row(const std::string& region, Interval window, std::array<int, kTimeClasses> share, double mfu,
                         std::uint64_t instances = 10) {
  RegionSummary r;
  r.region = region;
  r.device = 0;
  r.window = window;
  r.instances = instances;
  r.tokens = 1000;
  for (std::size_t c = 0; c < kTimeClasses; ++c) r.elapsed_ns += r.time_ns[c] = window.length_ns() / 100 * share[c];
  r.busy_ns = r.elapsed_ns - r.time_ns[4];
  r.kernel_sum_ns = r.busy_ns;
  r.kernels = 1000;
  r.launches = 900;
  r.flop = mfu * 1000e12 * seconds(r.elapsed_ns);
  r.hfu_flop = r.flop;
  DurationHistogram latency;
  for (std::uint64_t i = 0; i < instances; ++i) latency.add(r.elapsed_ns / static_cast<DurationNs>(instances));
  r.latency = latency.summary();
  r.top_kernels = {{"gemm", KernelClass::kGemm, 100, r.time_ns[0]}, {"softmax", KernelClass::kOther, 50, r.time_ns[1]}};
  r.named_by = region == "total" ? NamedBy::kNobody : NamedBy::kRange;
  Peak peak;
  peak.flop_per_s = 1000e12;
  peak.bytes_per_s = 3e12;
  complete_metrics(r, Phase::kTrain, peak);
  return r;
}

inline RunHistory history(std::int64_t rank, std::array<int, kTimeClasses> share, double mfu, bool ended = true) {
  RunHistory h;
  h.source = "dir/node-" + std::to_string(rank) + ".jsonl";
  h.run = run_info(rank);
  constexpr int kWindows = 4;
  for (int w = 0; w < kWindows; ++w) {
    WindowSummary window;
    window.window = {kStart + w * kNsPerSecond, kStart + (w + 1) * kNsPerSecond};
    window.regions = {row("step", window.window, share, mfu), row("total", window.window, share, mfu)};
    h.windows.push_back(window);
  }
  if (ended) {
    WindowSummary end;
    end.final_run = true;
    end.window = {kStart, kStart + kWindows * kNsPerSecond};
    end.regions = {row("step", end.window, share, mfu, 40), row("total", end.window, share, mfu, 40)};
    end.launches = {4000, 3990, 6, 3, 1};
    end.self = {0.5, 10'000'000, 0.001};
    end.counters = {{"records_unmatched", 7}};
    h.end = end;
  }
  return h;
}

/// A run of a server: `rank` more ms in its slowest pass.
inline RunHistory serving(std::int64_t rank) {
  RunHistory h = history(rank, {60, 20, 0, 0, 20}, 0.5);
  const auto fill = [&](RegionSummary& r) {
    if (r.region != "step") return;
    r.inter_token = r.prefill_to_decode = r.latency;
    r.after_prefill = 4;
    BatchLatency b;
    b.batch_min = 5;
    b.batch_max = 8;
    b.instances = 10;
    b.tokens = 80;
    b.elapsed_ns = r.elapsed_ns;
    b.latency = r.latency;
    b.flop = r.flop;
    b.mfu = 0.5;
    r.by_batch = {b};
    const DurationNs slow_ns = (500 + rank) * 1'000'000;
    r.slowest = {{3, r.window.begin_ns, slow_ns, {0, 0, slow_ns / 2, 0, slow_ns / 2}, TimeClass::kComm, 70'000'000}};
  };
  for (WindowSummary& window : h.windows) std::for_each(window.regions.begin(), window.regions.end(), fill);
  std::for_each(h.end->regions.begin(), h.end->regions.end(), fill);
  return h;
}

inline Job job_of(const std::vector<RunHistory>& histories) {
  JobBuilder builder("dir", false);
  for (const RunHistory& h : histories) builder.add(h);
  return builder.finish();
}

}  // namespace mfu::testing_job

#include "tools/report/outputs/markdown.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "core/base/number_text.h"
#include "core/rows/idle_causes.h"
#include "core/sinks/component_text.h"
#include "core/sinks/sink_text.h"
#include "tools/job/region_figures.h"
#include "tools/report/escape.h"
#include "tools/report/opportunities.h"

namespace mfu {
namespace {

std::string batches_markdown(const Job& job) {
  std::string text;
  for (const JobRegion& region : job.regions) {
    for (const BatchLatency& b : region.sum().by_batch) {
      const auto tokens_per_s = b.tokens != 0 && b.elapsed_ns > 0
                                    ? std::optional(static_cast<double>(b.tokens) / seconds(b.elapsed_ns))
                                    : std::nullopt;
      text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", markdown_text(region.name),
                          batch_range(b), word(b.unit), b.instances, duration_text(seconds(b.latency.p50_ns)),
                          duration_text(seconds(b.latency.p90_ns)), duration_text(seconds(b.latency.p99_ns)),
                          duration_text(seconds(b.latency.max_ns)), percent_text(b.mfu), percent_text(b.mbu),
                          scaled_text(tokens_per_s, "token/s"));
    }
  }
  if (text.empty()) return "";
  return "\n## Latency by batch\n\n| region | batch | in | instances | p50 | p90 | p99 | max | MFU | MBU | tokens |\n"
         "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n" +
         text;
}

std::string slowest_markdown(const Job& job) {
  std::string text;
  for (const JobRegion& region : job.regions) {
    const RegionSummary& r = region.sum();
    for (std::size_t i = 0; i < region.slowest_at.size(); ++i) {
      const SlowInstance& s = r.slowest[i];
      text +=
          fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", markdown_text(region.name),
                      markdown_text(region.slowest_at[i]), s.nth, duration_text(seconds(s.t0_ns - job.span.begin_ns)),
                      duration_text(seconds(s.elapsed_ns)), r.classes_known ? word(s.lost_to) : "-",
                      duration_text(r.classes_known ? std::optional(seconds(s.excess_ns)) : std::nullopt));
    }
  }
  if (text.empty()) return "";
  return "\n## Slowest instances\n\n| region | where | nth | began after | took | lost to | more than the others |\n"
         "|---|---|--:|--:|--:|---|--:|\n" +
         text;
}

/// With the share of the matmul time that is seen, where it is of the products that ran.
std::string hfu_cell(const RegionSummary& r) {
  if (!r.executed || !r.executed->enough() || !r.hfu || !is_possible(*r.hfu)) return percent_text(r.hfu);
  return fmt::format("{} (of {:.0f} % seen)", percent_text(r.hfu), std::floor(100 * r.executed->coverage() + 1e-9));
}

/// Of each region: its idle time, its energy, what was found; and what it costs.
std::string notes_markdown(const Job& job) {
  std::string text;
  constexpr std::size_t kIdleColumns = 200;
  for (const JobRegion& r : job.regions)
    if (const std::string causes = idle_text(r.sum(), kIdleColumns); !causes.empty())
      text += fmt::format("- {} idle: {}\n", markdown_text(r.name), markdown_text(causes));
  for (const JobRegion& r : job.regions)
    if (const std::string energy = energy_text(r.sum(), true); !energy.empty())
      text += fmt::format("- {} energy: {}\n", markdown_text(r.name), energy);
  for (const std::string& line : job.costs) text += fmt::format("- {}\n", markdown_text(line));
  for (const JobRegion& r : job.regions)
    for (const Finding& finding : r.sum().findings)
      text += fmt::format("- {}: {}\n", markdown_text(r.name), markdown_text(finding.text));
  return text;
}

}  // namespace

std::string job_markdown(const Job& job) {
  std::string text = fmt::format("# MFU of {}\n\n", markdown_text(job.path));
  text += fmt::format("{} process{}, {}", job.processes.size(), job.processes.size() == 1 ? "" : "es",
                      duration_text(seconds(job.span.length_ns())));
  std::set<std::string> peaks, conventions;
  for (const JobProcess& p : job.processes) {
    for (const DeviceInfo& d : p.run.devices)
      peaks.insert(fmt::format("{}: {} {}{}, {} ({})", markdown_text(d.name), scaled_text(d.peak_flop_per_s, "FLOP/s"),
                               markdown_text(d.dtype), d.sparse ? " sparse" : "",
                               scaled_text(d.peak_bytes_per_s, "B/s"),
                               markdown_text(d.peak_source.substr(0, d.peak_source.find(';')))));
    if (!p.run.convention.empty()) conventions.insert(markdown_text(p.run.convention));
  }
  for (const std::string& peak : peaks) text += "; peak of " + peak;
  for (const std::string& convention : conventions) text += "; FLOP counted: " + convention;
  text += "\n\n| region | instances | each | p50 | p99 | MFU | HFU | MBU | matmul | other | comm | copy | idle |\n";
  text += "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const JobRegion& region : job.regions) {
    const RegionSummary& r = region.sum();
    const bool latency = r.latency.count != 0;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |", markdown_text(region.name + origin(r)),
                        r.instances, duration_text(each_s(r)),
                        duration_text(latency ? std::optional(seconds(r.latency.p50_ns)) : std::nullopt),
                        duration_text(latency ? std::optional(seconds(r.latency.p99_ns)) : std::nullopt),
                        percent_text(r.mfu, r.mfu_lower), hfu_cell(r), percent_text(r.mbu, r.mbu_lower));
    const auto shares = r.lost ? r.lost : region.totals.weights.time_shares();
    for (std::size_t c = 0; c < kTimeClasses; ++c)
      text +=
          fmt::format(" {} |", percent_text(shares && r.classes_known ? std::optional((*shares)[c]) : std::nullopt));
    text += "\n";
  }
  text +=
      "\nThe last five columns are shares of the elapsed time; where MFU is known, `matmul` is what its kernels lost "
      "to the peak, and MFU and the five add up to 100 %.\n\n";
  if (const std::string life = job.life.text(); !life.empty()) text += fmt::format("- {}\n", markdown_text(life));
  for (const std::string& note : job.rank_notes) text += fmt::format("- {}\n", markdown_text(note));
  constexpr std::size_t kOpportunities = 5;
  const std::vector<Opportunity> found = opportunities(job);
  for (std::size_t i = 0; i < std::min(kOpportunities, found.size()); ++i)
    text += fmt::format("- {} {}\n", markdown_text(opportunity_text(found[i]) + "."), markdown_text(found[i].advice));
  for (const JobRegion& r : job.regions) {
    if (!r.sum().suspect.empty())
      text += fmt::format("- {} is suspect: {}\n", markdown_text(r.name), markdown_text(r.sum().suspect));
    if (!r.why_no_mfu.empty())
      text += fmt::format("- {} {}: {}\n", r.sum().mfu_lower ? "only a bound of the MFU of" : "no MFU of",
                          markdown_text(r.name), markdown_text(r.why_no_mfu));
  }
  text += notes_markdown(job);
  text += batches_markdown(job) + slowest_markdown(job);
  for (const JobRegion& region : job.regions) {
    const RegionSummary& r = region.sum();
    if (r.top_kernels.empty() || (region.name == "total" && job.regions.size() > 1)) continue;
    text += fmt::format(
        "\n## Kernels of {}\n\n| kernel | class | count | time | of its kernel time |\n|---|---|--:|--:|--:|\n",
        markdown_text(region.name));
    for (const TopKernel& k : r.top_kernels)
      text += fmt::format("| {} | {} | {} | {} | {} |\n", markdown_text(k.name), name(k.kernel_class), k.count,
                          duration_text(seconds(k.sum_ns)),
                          percent_text(r.kernel_sum_ns > 0 ? std::optional(static_cast<double>(k.sum_ns) /
                                                                           static_cast<double>(r.kernel_sum_ns))
                                                           : std::nullopt));
  }
  if (job.processes_without_account < job.processes.size()) {
    const LaunchAccount& l = job.launches;
    text += fmt::format("\nLaunches: {} = {} attributed + {} outside every region + {} unattributed + {} dropped\n",
                        l.seen, l.attributed, l.outside, l.unattributed, l.dropped);
  }
  if (!job.warnings.empty()) text += "\n## Caveats\n\n";
  for (const JobWarning& w : job.warnings)
    text += fmt::format("- {}: {}{}{}\n", markdown_text(w.kind), markdown_text(w.message),
                        w.source.empty() ? "" : " (" + markdown_text(file_name(w.source)) + ")",
                        w.count > 1 ? fmt::format(", {} times", w.count) : "");
  return text;
}

}  // namespace mfu

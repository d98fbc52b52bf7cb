#include "tools/report/rank_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/number_text.h"
#include "tools/job/live_job.h"
#include "tools/job/outliers.h"
#include "tools/job/straggler.h"

namespace mfu {
namespace {

constexpr std::size_t kNamed = 5;

std::string who(const JobProcess& process, const RegionSummary& row) {
  const std::string label = row_label(process, row);
  return process.run.host.empty() ? label : fmt::format("{} ({})", label, process.run.host);
}

/// By the newest windows, as `mfu top` finds them.
std::vector<std::string> straggler_lines(const Job& job, const std::optional<double>& mfu) {
  std::vector<std::string> lines;
  LiveJob live({job.path}, RunFile::From::kTail);
  // Without clocks: a job that was killed long ago is looked at as it was then.
  if (!live.refresh(/*mono_ns=*/0, /*utc_ns=*/0)) return lines;
  for (const Straggler& s : find_stragglers(live.ranks(), live.clocks(), mfu)) {
    if (lines.size() == kNamed) break;
    lines.push_back(straggler_text(s));
    const double devices = static_cast<double>(job.regions.back().devices);
    if (job.gpu_hour)
      lines.back() +=
          fmt::format(", {:.3g} an hour at {:g} per GPU-hour", *job.gpu_hour * devices * s.lost_share, *job.gpu_hour);
  }
  return lines;
}

}  // namespace

std::vector<std::string> rank_notes(const Job& job) {
  std::vector<std::string> notes;
  if (job.processes.size() < 2) return notes;
  const JobRegion* region = job.regions.empty() ? nullptr : &job.regions.front();
  if (region == nullptr) return notes;
  if (!job.trace) notes = straggler_lines(job, region->sum().mfu);
  bool any_mfu = false;
  for (const JobProcess& p : job.processes)
    for (const SummedRegion& t : p.regions) any_mfu = any_mfu || (t.sum.region == region->name && t.sum.mfu);
  std::vector<std::string> labels;
  std::vector<std::optional<double>> values;
  std::size_t unknown = 0;
  for (const JobProcess& p : job.processes) {
    for (const SummedRegion& t : p.regions) {
      const RegionSummary& r = t.sum;
      if (r.region != region->name) continue;
      labels.push_back(who(p, r));
      values.push_back(any_mfu                ? r.mfu
                       : r.latency.count != 0 ? std::optional(seconds(r.latency.p50_ns))
                                              : std::nullopt);
      unknown += values.back() ? 0 : 1;
    }
  }
  const auto text = [&](double value) { return any_mfu ? percent_text(value) : duration_text(value); };
  std::optional<std::size_t> slowest;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    if (!slowest || (any_mfu ? *values[i] < *values[*slowest] : *values[i] > *values[*slowest])) slowest = i;
  }
  const std::vector<std::size_t> odd = outliers(values);
  const std::optional<double> median = median_of_known(values);
  constexpr double kWorthSaying = 0.005;
  if (slowest && std::abs(*values[*slowest] - *median) > kWorthSaying * std::abs(*median))
    notes.push_back(fmt::format("slowest: {} with {} in {}; the median is {}", labels[*slowest],
                                text(*values[*slowest]), region->name, text(*median)));
  if (odd.size() > 1 || (odd.size() == 1 && odd.front() != slowest)) {
    std::string line = odd.size() == 1 ? "differs from the others: " : "differ from the others: ";
    for (std::size_t i = 0; i < std::min(kNamed, odd.size()); ++i)
      line += fmt::format("{}{} {}", i == 0 ? "" : ", ", labels[odd[i]], text(*values[odd[i]]));
    if (odd.size() > kNamed) line += fmt::format(" and {} more", odd.size() - kNamed);
    notes.push_back(std::move(line));
  }
  if (unknown != 0)
    notes.push_back(fmt::format("{} of {} ranks have no {}", unknown, values.size(), any_mfu ? "MFU" : "duration"));
  return notes;
}

}  // namespace mfu

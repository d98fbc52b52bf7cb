#include "tools/report/outputs/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/printable.h"
#include "core/rows/layers.h"
#include "core/sinks/sink_text.h"
#include "tools/report/escape.h"
#include "tools/report/opportunities.h"

namespace mfu {
namespace {

/// `text` in lines of 120 columns behind the log's prefix, those after the first behind `indent` spaces.
std::string folded(const std::string& text, std::size_t indent) {
  constexpr std::size_t kColumns = 114;
  return fmt::format("{}\n", fmt::join(wrapped(text, kColumns - indent), "\n" + std::string(indent, ' ')));
}

}  // namespace

std::string job_text(const Job& job) {
  WindowSummary window = job_window(job);
  // Of several ranks or devices the table cannot say whose: below it.
  std::string slowest;
  for (std::size_t i = 0; i < job.regions.size(); ++i) {
    const JobRegion& r = job.regions[i];
    if (r.devices < 2 || r.slowest_at.empty() || layer_name(r.name)) continue;
    window.regions[i].slowest.clear();
    slowest += fmt::format("slowest of {}:", r.name);
    for (std::size_t k = 0; k < std::min(SlowestInstances::kMost, r.slowest_at.size()); ++k)
      slowest += fmt::format("{} {} {}", k == 0 ? "" : ",", r.slowest_at[k],
                             slow_instance(r.sum().slowest[k], r.sum().classes_known));
    slowest += "\n";
  }
  std::string text = region_table(window) + "\n" + slowest;
  if (job.processes_without_account == job.processes.size()) {  // none has an end line
    const std::size_t account = text.find("\nlaunches ");
    if (account != std::string::npos) text.erase(account, text.find('\n', account + 1) - account);
  }
  if (const std::string life = job.life.text(); !life.empty()) text += folded(life, 2);
  for (const std::string& note : job.rank_notes) text += printable(note) + "\n";
  for (const std::string& line : job.costs) text += printable(line) + "\n";
  constexpr std::size_t kOpportunities = 3;
  const std::vector<Opportunity> found = opportunities(job);
  for (std::size_t i = 0; i < std::min(kOpportunities, found.size()); ++i)
    text +=
        (i == 0 ? "worth doing: " : "             ") + folded(opportunity_text(found[i]) + ". " + found[i].advice, 13);
  std::set<std::string> reasons;
  for (const JobRegion& r : job.regions)
    if (!r.why_no_mfu.empty() && reasons.insert(r.why_no_mfu).second)
      text += fmt::format("{} {}: {}\n", r.sum().mfu_lower ? "only a bound of the MFU of" : "no MFU of", r.name,
                          r.why_no_mfu);
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(kShown, job.warnings.size()); ++i) {
    const JobWarning& w = job.warnings[i];
    const std::string line =
        printable(fmt::format("{}: {}{}{}", w.kind, w.message, w.source.empty() ? "" : " [" + file_name(w.source) + "]",
                              w.count > 1 ? fmt::format(" ({} times)", w.count) : ""));
    text += w.kind == "suspect" ? folded(line, 2) : line + "\n";
  }
  if (job.warnings.size() > kShown) text += fmt::format("... and {} more remarks\n", job.warnings.size() - kShown);
  return text;
}

}  // namespace mfu

#include "tools/job/cost.h"

#include <fmt/format.h>

namespace mfu {

std::vector<std::string> cost_lines(const Job& job, double gpu_hour) {
  std::vector<std::string> lines;
  for (const JobRegion& region : job.regions) {
    const RegionSummary& row = region.sum();
    const double price = gpu_hour * seconds(row.elapsed_ns) / 3600;
    if (!(price > 0)) continue;
    const bool total = region.name == "total";
    std::string text = total ? fmt::format("cost at {:g} per GPU-hour: {:.4g} in all", gpu_hour, price)
                             : fmt::format("cost of {}: {:.4g}", region.name, price);
    if (!total && row.instances > 0) text += fmt::format(", {:.3g} each", price / static_cast<double>(row.instances));
    if (row.tokens > 0)
      text += fmt::format(", {:.4g} per million tokens", 1e6 * price / static_cast<double>(row.tokens));
    const double devices = static_cast<double>(region.devices);
    for (const auto& [c, word] : {std::pair{TimeClass::kIdle, "idle"}, std::pair{TimeClass::kComm, "communication"}})
      if (const double share = seconds(row.time_ns[static_cast<std::size_t>(c)]) / seconds(row.elapsed_ns);
          total && share > 0.0005)
        text += fmt::format(", {} {:.4g} an hour", word, gpu_hour * devices * share);
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace mfu

#include "tools/job/cost.h"

#include <fmt/format.h>

#include <cstdlib>

#include "core/base/number_text.h"
#include "tools/job/region_figures.h"

namespace mfu {

Result<std::optional<double>> gpu_hour(const std::optional<double>& option) {
  const char* price = std::getenv("MFU_GPU_HOUR");
  if (option || price == nullptr) return option;
  const std::optional<double> number = parse_number(price);
  if (number.value_or(0) > 0) return number;
  return Error{std::string("MFU_GPU_HOUR: expected a price above 0, got \"") + price + "\""};
}

void price_job(Job& job, double gpu_hour) {
  job.gpu_hour = gpu_hour;
  std::int64_t output_tokens = 0;
  for (JobRegion& region : job.regions) {
    const RegionSummary& row = region.sum();
    const bool total = region.name == "total";
    region.cost = gpu_hour * seconds(row.elapsed_ns) / 3600;
    if (region.name == "decode") output_tokens = row.tokens;
    region.output_tokens = total || region.name == "decode" ? output_tokens : 0;  // the total comes last
    if (!(region.cost > 0)) continue;
    std::string text = total ? fmt::format("cost at {:g} per GPU-hour: {:.4g} in all", gpu_hour, *region.cost)
                             : fmt::format("cost of {}: {:.4g}", region.name, *region.cost);
    const auto add = [&](const char* figure, const char* format) {
      if (const auto value = find_figure(figure)->of(region)) text += fmt::format(fmt::runtime(format), *value);
    };
    add("cost_each", ", {:.3g} each");
    add("cost_per_million_tokens", ", {:.4g} per million tokens");
    if (total) add("cost_per_million_output_tokens", ", {:.4g} per million output tokens");
    const double devices = static_cast<double>(region.devices);
    for (const auto& [c, word] : {std::pair{TimeClass::kIdle, "idle"}, std::pair{TimeClass::kComm, "communication"}})
      if (const double share = seconds(row.time_ns[static_cast<std::size_t>(c)]) / seconds(row.elapsed_ns);
          total && share > 0.0005)
        text += fmt::format(", {} {:.4g} an hour", word, gpu_hour * devices * share);
    job.costs.push_back(std::move(text));
  }
}

LiveCost live_cost(const JobTotals& totals, double gpu_hour) {
  LiveCost cost{gpu_hour, std::nullopt, gpu_hour * static_cast<double>(totals.devices), 0, 0};
  if (totals.tokens_per_s > 0) cost.per_million_tokens = 1e6 * cost.per_hour / 3600 / totals.tokens_per_s;
  cost.idle_per_hour = cost.per_hour * totals.time_share[static_cast<std::size_t>(TimeClass::kIdle)];
  cost.comm_per_hour = cost.per_hour * totals.time_share[static_cast<std::size_t>(TimeClass::kComm)];
  return cost;
}

}  // namespace mfu

// The price of a job, from the price of a GPU for an hour: price x device-seconds / 3600. In any currency.
#pragma once

#include <optional>

#include "core/base/result.h"
#include "tools/job/job_report.h"
#include "tools/job/totals.h"

namespace mfu {

/// `option`, else MFU_GPU_HOUR; none where neither is there. Error: that is no price.
[[nodiscard]] Result<std::optional<double>> gpu_hour(const std::optional<double>& option);

/// Gives regions their price, and the job its lines of `costs`: the run and what its idle and communication time costs
/// an hour; of each region its price per step or pass and per million tokens.
void price_job(Job& job, double gpu_hour);

/// The price of a job while it runs.
struct LiveCost {
  double gpu_hour = 0;
  std::optional<double> per_million_tokens;     ///< none without tokens
  double per_hour = 0;                          ///< of all devices,
  double idle_per_hour = 0, comm_per_hour = 0;  ///< and of their idle and exposed communication time
};
[[nodiscard]] LiveCost live_cost(const JobTotals& totals, double gpu_hour);

}  // namespace mfu

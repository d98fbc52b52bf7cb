// A job's price: GPU-hours by region, per token, and what lies idle.
#pragma once

#include <string>
#include <vector>

#include "tools/job/job_report.h"

namespace mfu {

/// Lines of a job at `gpu_hour` for one GPU and hour, in any currency: the run and what its idle and
/// communication time costs an hour; of each region its price per step or pass and per million tokens. From the GPUs'
/// time alone: price x device-seconds / 3600.
[[nodiscard]] std::vector<std::string> cost_lines(const Job& job, double gpu_hour);

}  // namespace mfu

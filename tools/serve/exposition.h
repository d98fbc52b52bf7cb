// A job as Prometheus metrics.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "tools/job/live_job.h"
#include "tools/serve/server_module.h"

namespace mfu {

/// Every metric of every rank, and the job's. Names, labels and units: tools/serve/README.md. Ratios 0..1, base units,
/// counters end in `_total` and are sums over the whole file. A rank that is stale keeps `mfu_rank_up` 0 and the time
/// of its last line, and nothing else; one that has ended keeps its counters.
[[nodiscard]] std::vector<prometheus::MetricFamily> exposition(const LiveJob& job, const std::string& job_label,
                                                               PerRank per_rank = PerRank::kAuto);

}  // namespace mfu

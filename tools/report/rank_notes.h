// The first question about a job of many ranks: is one of them not like the others?
#pragma once

#include <string>
#include <vector>

#include "tools/job/job_report.h"

namespace mfu {

/// One sentence each: stragglers (`find_stragglers` over the last windows of the run directory `path`; none of traces),
/// the slowest rank, ranks whose MFU (median instance where it is unknown) differs from the others', ranks without
/// MFU. Of the region that took most time.
[[nodiscard]] std::vector<std::string> rank_notes(const Job& job);

}  // namespace mfu

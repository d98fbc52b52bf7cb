// A job as lines for a terminal.
#pragma once

#include <string>

#include "tools/job/job_report.h"

namespace mfu {

/// The table of the log's end, and in words where the time went.
[[nodiscard]] std::string job_text(const Job& job);

}  // namespace mfu

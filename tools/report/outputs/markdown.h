// A job as Markdown, to paste into an issue or a pull request.
#pragma once

#include <string>

#include "tools/job/job_report.h"

namespace mfu {

[[nodiscard]] std::string job_markdown(const Job& job);

}  // namespace mfu

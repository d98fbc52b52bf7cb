// The report as one HTML file that needs nothing else: figures, charts, style and the chart library are in it.
#pragma once

#include <string>
#include <string_view>

#include "tools/job/job_report.h"
#include "tools/report/compare.h"

namespace mfu {

/// One run. `version`: of this program; `refresh_s`: seconds after which the page loads itself again, 0: never.
[[nodiscard]] std::string run_page(const Job& job, std::string_view version, int refresh_s = 0);
/// Two runs side by side.
[[nodiscard]] std::string compare_page(const Comparison& comparison, std::string_view version);

/// What the page of a run reads: {"kind": "run", "job": job_json, and what only the page shows: "series", "rows" (per
/// rank and device), "devices", ...}.
[[nodiscard]] std::string run_page_data(const Job& job, std::string_view version);

/// JSON that may stand in a <script> element, whatever its strings hold: no `<` in it.
[[nodiscard]] std::string script_safe(std::string_view json);
/// Text of an element or an attribute.
[[nodiscard]] std::string html_text(std::string_view text);

}  // namespace mfu

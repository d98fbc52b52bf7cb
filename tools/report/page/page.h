// The report as one HTML file that needs nothing else: figures, charts, style and the chart library are in it.
#pragma once

#include <string>
#include <string_view>

#include "tools/job/job_report.h"
#include "tools/report/compare.h"
#include "tools/report/timelines.h"

namespace mfu {

struct PageOptions {
  const Timelines* timelines = nullptr;  ///< single instances; nullptr: none
  int refresh_s = 0;                     ///< seconds after which the page loads itself again; 0: never
};

/// One run. `version`: of this program.
[[nodiscard]] std::string run_page(const Job& job, std::string_view version, const PageOptions& options = {});
/// Two runs side by side.
[[nodiscard]] std::string compare_page(const Comparison& comparison, std::string_view version);

/// The data of a run's page: {"kind": "run", "job": job_json, and what only the page shows: "series", "rows" (per
/// rank and device), "devices", ...}.
[[nodiscard]] std::string run_page_data(const Job& job, std::string_view version, const PageOptions& options = {});
/// `gpt2 124 M: 40.9 % MFU in step, demo1`.
[[nodiscard]] std::string run_page_title(const Job& job);

/// JSON that may stand in a <script> element, with any strings in it: it has no `<`.
[[nodiscard]] std::string script_safe(std::string_view json);
/// Text of an element or an attribute.
[[nodiscard]] std::string html_text(std::string_view text);

}  // namespace mfu

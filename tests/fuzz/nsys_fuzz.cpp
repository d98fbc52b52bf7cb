// Any bytes as an Nsight Systems SQLite export: an Error or figures, never a crash.
#include <sqlite3.h>

#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/fuzz/follow_regions.h"
#include "tests/fuzz/trace_digest.h"
#include "tools/replay/trace_figures.h"
#include "tools/trace/nsys.h"

/// SQLite's own locks and statistics of its memory are of no use to a single thread.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = mfu::read_nsys_bytes({reinterpret_cast<const char*>(data), size}, "fuzz.sqlite");
  if (!trace) {
    if (trace.error().message.empty()) std::abort();
    return 0;
  }
  if (came_before(trace.value())) return 0;
  const mfu::TraceReport report = mfu::make_report(trace.value());
  for (const mfu::ProcessFigures& process : report.processes) {
    const auto& l = process.launches;
    if (l.gpu_ops_with_launch + l.gpu_ops_without_launch != process.totals[mfu::Figure::kGpuOps]) std::abort();
  }
  follow_regions(trace.value());
  return mfu::report_json({report}).empty() ? 1 : 0;
}

// Any bytes as a Kineto trace, plain or gzip: an Error or figures, never a crash. The figures are worked out too, and
// the accounts that must add up are checked.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/follow_regions.h"
#include "tests/fuzz/trace_digest.h"
#include "tools/replay/trace_figures.h"
#include "tools/trace/kineto.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = mfu::read_kineto_text({reinterpret_cast<const char*>(data), size}, "fuzz.json");
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

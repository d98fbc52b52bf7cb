// The reference figures of a trace: the GPU time of every process, stream, range and profiler step.
//
// A GPU operation is a kernel, a copy or a set. Its launch is the host record with the same correlation id in the same
// process. A range holds the operations whose launch starts inside it: `by_thread` those launched on the range's own
// thread, `by_process` those launched on any thread of the process. Busy is the length of a union of intervals, per
// device and then added. All times are ns, all intervals half-open.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/trace/trace.h"

namespace mfu {

/// The figures of one set of GPU operations, in the order in which they are printed.
enum class Figure : std::uint8_t {
  kKernels,
  kKernelSum,
  kKernelBusy,
  kGpuOps,
  kGpuBusy,
  kComputeKernels,
  kComputeSum,
  kComputeBusy,
  kNcclKernels,
  kNcclSum,
  kNcclBusy,
  kNcclExposed,        ///< the set's NCCL union that no compute kernel of the set covers
  kNcclExposedDevice,  ///< the same against every compute kernel of the process on that device
  kMemcpyOps,
  kMemcpySum,
  kMemsetOps,
  kMemsetSum,
  kSpan,  ///< last end minus first begin
  kIdle,  ///< span minus busy
};
inline constexpr auto kFigureNames = std::to_array<std::string_view>(
    {"kernels", "kernel_sum_ns", "kernel_busy_ns", "gpu_ops", "gpu_busy_ns", "compute_kernels", "compute_sum_ns",
     "compute_busy_ns", "nccl_kernels", "nccl_sum_ns", "nccl_busy_ns", "nccl_exposed_ns", "nccl_exposed_device_ns",
     "memcpy_ops", "memcpy_sum_ns", "memset_ops", "memset_sum_ns", "span_ns", "idle_ns"});

/// One number per Figure [count or ns].
struct SetFigures {
  std::array<std::int64_t, kFigureNames.size()> values{};

  std::int64_t& operator[](Figure f) noexcept { return values[static_cast<std::size_t>(f)]; }
  std::int64_t operator[](Figure f) const noexcept { return values[static_cast<std::size_t>(f)]; }
  SetFigures& operator+=(const SetFigures& other) noexcept;
};

/// One range instance, or every instance of one name added up.
struct RangeFigures {
  std::string name;
  TimeNs start_ns = 0;  ///< of the (first) instance
  std::int64_t instances = 0;
  DurationNs wall_ns = 0;
  DurationNs window_busy_ns = 0;  ///< union of all operations of the process, cut to the range
  DurationNs window_idle_ns = 0;  ///< wall x devices (at least one) - window_busy
  SetFigures by_thread;
  SetFigures by_process;
};

struct LaunchFigures {
  std::int64_t host_calls = 0;  ///< distinct correlation ids of host records
  std::int64_t gpu_ops_with_launch = 0;
  std::int64_t gpu_ops_without_launch = 0;
  DurationNs gpu_ops_without_launch_sum_ns = 0;
  std::int64_t kernel_launches = 0;         ///< 0 where graphs are captured: their kernels do not run then
  std::int64_t kernel_launches_unseen = 0;  ///< of those, without a record of their work
  std::int64_t graph_launches = 0;
  std::int64_t gpu_ops_from_graphs = 0;
  std::int64_t kernels_from_graphs = 0;
};

struct StreamFigures {
  std::string device;
  std::string stream;
  std::int64_t gpu_ops = 0;
  std::int64_t kernels = 0;
  DurationNs sum_ns = 0;
  DurationNs busy_ns = 0;
};

struct UnattributedFigures {
  std::int64_t by_thread_gpu_ops = 0;
  DurationNs by_thread_sum_ns = 0;
  std::int64_t by_process_gpu_ops = 0;
  DurationNs by_process_sum_ns = 0;
};

struct ProcessFigures {
  std::string process;
  std::int64_t devices = 0;  ///< that ran anything
  TraceNotes notes;
  SetFigures totals;
  LaunchFigures launches;
  std::vector<std::pair<std::string, std::int64_t>> gpu_ops_by_launching_thread;  ///< most operations first
  std::vector<StreamFigures> streams;                                             ///< most operations first
  std::vector<RangeFigures> ranges;  ///< by name, by start of the first instance
  std::vector<RangeFigures> steps;   ///< each `ProfilerStep#N`, by start
  UnattributedFigures unattributed;
};

/// Figures of every process of the trace, in the trace's order. O(n log n) in operations and ranges.
[[nodiscard]] std::vector<ProcessFigures> process_figures(const Trace& trace);

/// All that is kept of a trace once its figures are worked out.
struct TraceReport {
  TraceFacts facts;
  std::vector<ProcessFigures> processes;
};
[[nodiscard]] TraceReport make_report(const Trace& trace);

/// `processes[]` and what is known of each file as one JSON object (text). One trace: its facts at the top, as
/// `trace, format, rank, ..., processes`. Several: `traces` with the facts of each, `processes` of all together,
/// each with its `trace`.
/// \param more further members of the object: key and value as JSON text
[[nodiscard]] std::string report_json(const std::vector<TraceReport>& reports,
                                      const std::vector<std::pair<std::string, std::string>>& more = {});

}  // namespace mfu

// The script of the simulated GPU: everything that SIMGPU_* variables say. Read once per process. See README.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mfu::sim {

/// One simulated device. Defaults: an H100 SXM.
struct DeviceSpec {
  std::string name = "Simulated H100 80GB HBM3";
  std::uint32_t sm_count = 132;
  std::uint32_t clock_khz = 1'980'000;
  std::uint32_t memory_clock_khz = 2'619'000;
  std::uint32_t bus_bits = 5120;
  std::uint32_t cc_major = 9, cc_minor = 0;
  std::uint64_t memory_bytes = 80ull << 30;
  double flop_per_s = 989.4e12;  ///< rate of `flop_per_block` kernels at an efficiency of 1
  double bytes_per_s = 3.35e12;  ///< the same for `bytes_per_block`
};

/// The fault of a named CUPTI function, instead of its work.
struct FunctionFault {
  int result = 0;               ///< returned at once when not 0
  std::int64_t delay_ms = 0;    ///< slept before anything else
  bool hang = false;            ///< never returns
  std::uint64_t from_call = 1;  ///< first call (counted from 1) that is affected
};

/// A foreign CUPTI client that acts on its own thread, at times counted from the first subscription or enabled kind
/// [ms].
struct ForeignClient {
  std::string kind;  ///< old_kineto, new_kineto, monitor, resiliency, freer, first
  std::int64_t start_ms = 0;
  std::int64_t stop_ms = -1;  ///< -1: never
};

struct Settings {
  // device
  std::vector<DeviceSpec> devices{DeviceSpec{}};
  std::uint32_t driver_version = 13000;  ///< cuDriverGetVersion
  // timeline
  std::int64_t default_kernel_ns = 2000;
  std::int64_t launch_latency_ns = 3000;  ///< from the call to the start on an idle stream
  std::int64_t gap_ns = 800;              ///< between an activity and the next one behind it on a stream or in a graph
  std::int64_t launch_cost_ns = 0;        ///< CPU time that every launch call burns
  std::int64_t pdl_overlap_ns = 2000;     ///< how early a programmatic dependent launch starts
  std::uint32_t queue_depth = 1024;       ///< launches in flight per stream before the call waits; 0: no limit
  double time_scale = 1;                  ///< multiplies every duration
  double bytes_per_thread = 0;  ///< a kernel without a cost line lasts at least as long as moving so much takes
  std::vector<std::pair<std::string, double>> flop_per_block;  ///< of kernels without PTX text, by a part of their name
  bool memory_contents = false;                                ///< device memory holds what was copied there
  // cost of tracing for the host: CPU time that CUPTI and the driver burn inside a launch [ns]
  std::int64_t traced_launch_ns = 0;  ///< while kernel records are on
  std::int64_t callback_ns = 0;       ///< per callback of an API call, entry and exit each
  std::int64_t traced_node_ns = 0;    ///< per node of a launched graph whose nodes leave records
  // script
  bool strict = true;
  std::string trace;  ///< SIMGPU_TRACE
  std::uint32_t correlation_start = 0;
  double fail_launch_rate = 0;
  int fail_launch_error = 1;
  bool kernel_before_exit = false;
  double clock_jump_s = 0, clock_jump_after_s = 0;
  // CUPTI
  std::string cupti_version;  ///< `12.6` or a number as cuptiGetVersion gives it; empty: as built
  std::map<std::string, FunctionFault> functions;
  std::vector<std::uint32_t> refused_kinds;
  int refused_kinds_result = 21;
  int per_thread = -1;  ///< -1: by version
  bool flush_on_worker = false;
  bool flush_keeps_open = true;            ///< an unforced flush leaves partly filled buffers to CUPTI
  bool zero_buffers = true;                ///< a buffer is zeroed on the thread that asked for it
  bool graph_buffers_recycled = false;     ///< below 13.3 too
  std::uint64_t graph_buffer_records = 0;  ///< of one device buffer; 0: as many as its size holds
  bool graph_level_ends = false;           ///< nodes come back once whole-graph records are switched off
  bool graph_level_late = false;           ///< whole-graph records of graphs from before they were switched on, too
  bool shuffle = false;
  double drop_rate = 0;
  std::uint64_t drop_every = 0, drop_burst = 0;
  double truncate_rate = 0, zero_rate = 0, negative_rate = 0, unknown_kind_rate = 0, null_name_rate = 0;
  std::uint32_t long_name_bytes = 0;
  bool stale_names = false, poison_buffers = false, timestamp_bug = false;
  double lose_rate = 0;                    ///< records that are lost and not counted
  double silent_rate = 0;                  ///< launches without a callback
  double early_rate = 0;                   ///< records whose times are `early_ns` too early
  std::int64_t early_ns = 0, skew_ns = 0;  ///< skew: of all times
  bool unfit = false;                      ///< CUPTI cannot work with this driver, in any version
  std::int64_t worker_delay_ms = 0;
  std::vector<ForeignClient> foreign;
};

/// Settings of this process, read from the environment at the first call. A value that cannot be read aborts with one
/// line on stderr: a test must not pass because its script had a typing error.
const Settings& settings();

/// True in `rate` of all cases; which ones follows from `counter` and `salt` alone.
[[nodiscard]] bool hit(double rate, std::uint64_t counter, std::uint64_t salt) noexcept;

/// Keeps the calling thread busy for so long [ns].
void burn(std::int64_t ns) noexcept;

/// Aborts with one line on stderr: the client broke a rule of the real libraries. Nothing happens when SIMGPU_STRICT=0.
void rule_broken(const char* what) noexcept;

}  // namespace mfu::sim

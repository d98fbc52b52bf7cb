// The cost of one range or one kernel kind of a trace, and its MFU on three time bases.
//
//   wall          of a range its elapsed time, by the rules of regions; of kernels their first start to their last end
//   kernel_sum    sum of the kernels' durations
//   kernel_union  length of the union of the kernels
//
// All three are in device-seconds: summed over the devices that took part, so that several GPUs scale the peak.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/config/config.h"
#include "core/rows/region_summary.h"
#include "tools/trace/trace.h"

namespace mfu {

/// What is asked. `range`, `kernel` or both.
struct TraceQuery {
  std::string range;                    ///< ranges whose name contains this; empty: the whole trace
  bool exact = false;                   ///< ranges whose name is this
  std::optional<std::int64_t> nth;      ///< the n-th occurrence only, from 1; without a range the n-th kernel launch
  std::optional<std::uint32_t> device;  ///< on this device only
  std::optional<Phase> phase;           ///< absent: as the rules name the range, else the config's workload
  std::optional<double> flop;           ///< of one occurrence of the range; with a kernel of one launch [FLOP]
  std::optional<std::int64_t> gpus;     ///< GPUs that share these FLOP; absent: those that took part
  std::string kernel;                   ///< regular expression (PCRE2), found anywhere in a demangled kernel name
  std::string kernel_kind;              ///< a word of kKernelKinds: the model says a kernel's FLOP
  bool per_pass = false;                ///< an occurrence's kernels are one pass over all layers; else a launch a layer
  std::optional<std::int64_t> m, n, k;  ///< of kernel_kind gemm
};

enum class TimeBase : std::uint8_t { kWall, kKernelSum, kKernelUnion };
inline constexpr std::array<std::string_view, 3> kTimeBaseNames{"wall", "kernel_sum", "kernel_union"};

/// One occurrence, or all of them together.
struct BaseFigures {
  std::array<DurationNs, 3> time_ns{};  ///< by TimeBase, device-ns
  std::uint64_t kernels = 0;
  std::optional<double> flop;                   ///< [FLOP]
  std::array<std::optional<double>, 3> mfu;     ///< by TimeBase, 0..1
  std::array<std::optional<double>, 3> flop_s;  ///< by TimeBase, of one device [FLOP/s]
  std::string suspect;                          ///< why the figure is not to be believed; empty: nothing found
};

struct KernelCount {
  std::string name;  ///< demangled
  std::uint64_t count = 0;
  DurationNs sum_ns = 0;
};

struct Occurrence {
  std::int64_t index = 0;  ///< from 1, per process in order of time
  std::string process;
  std::string name;  ///< of its range
  Interval hull;     ///< first begin to last end, times of the file made UTC where it says its base
  std::uint32_t devices = 0;
  BaseFigures figures;
  std::vector<RegionSummary> regions;  ///< a range's, one per device, with the waterfall
};

/// The answer about a range, or about kernels.
struct QueryAnswer {
  std::vector<Occurrence> occurrences;
  std::uint32_t devices = 0;  ///< that took part
  std::int64_t gpus = 0;      ///< that share the FLOP
  std::optional<double> peak_flop_per_s;
  std::string peak_source;
  std::string dtype;
  BaseFigures sum;
  std::optional<RegionSummary> region;  ///< of a range: the sum over occurrences and devices, with the waterfall
  std::vector<KernelCount> names;       ///< of kernels: those that matched, longest first
  std::optional<double> flop_per_launch;
  std::optional<std::int64_t> layers;  ///< of a kernel kind: layers that have it
  std::vector<std::string> notes;      ///< for a person, one line each
};

struct QueryAnswers {
  std::optional<QueryAnswer> range, kernel;
};

/// Error: the expression is none (with the position), nothing matches (with the nearest names), no such occurrence or
/// device, or the FLOP of the kernel kind are not known.
[[nodiscard]] Result<QueryAnswers> answer_query(const Trace& trace, const Config& config, const TraceQuery& query);

/// Members `range` and `kernel` of `mfu replay --json`: key and value as JSON text.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> query_json(const TraceQuery& query,
                                                                          const QueryAnswers& answers);
/// The same as tables for a person.
[[nodiscard]] std::string query_text(const TraceQuery& query, const QueryAnswers& answers);

}  // namespace mfu

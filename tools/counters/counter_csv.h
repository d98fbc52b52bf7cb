// CSV files of Nsight Compute and of `nsys stats`, as counted and as timed kernels.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"

namespace mfu {

/// One launch as Nsight Compute counted it. Absent: the file has no value for it (`n/a` counts as none).
struct CountedKernel {
  std::string name;
  std::vector<std::string> ranges;       ///< NVTX ranges that were open, outermost first, without their domains
  std::map<DType, double> tensor_flop;   ///< by source operand [FLOP]
  std::optional<double> cuda_core_flop;  ///< FP32 and FP64 [FLOP]
  std::optional<double> seconds;         ///< while it was counted, at the clock of `sm_hz`
  std::optional<double> sm_hz;
  std::optional<double> sm_pct, dram_pct;  ///< of the peak that can be sustained, 0..100
};

/// One row of a sum of `nsys stats`: launches of one kernel, within one NVTX range where the sum is by range.
struct TimedKernels {
  std::string name;
  std::string range;  ///< empty: not by range
  std::uint64_t launches = 0;
  double seconds = 0;
};

struct CounterFile {
  std::vector<CountedKernel> counted;  ///< of Nsight Compute
  std::vector<TimedKernels> timed;     ///< of nsys stats
  bool by_range = false;               ///< of `timed`
  std::string device;                  ///< the GPU's name where the file has it
};

/// Reads either kind. `--page raw` has a column per metric and a row of units, `--page details` a row per metric. What
/// Nsight Compute printed before the table (`==PROF== ...`) is left out.
/// \param place the file's name, for the Error: neither kind, or none of the columns that are needed.
[[nodiscard]] Result<CounterFile> read_counters(std::istream& in, const std::string& place);

/// A kernel's name without namespaces, casts of template arguments and parameters, which the two tools print
/// differently: `void cutlass::Kernel2<cutlass_80_x>(T1::Params)` and `void Kernel2<cutlass_80_x>(Params)` become
/// `Kernel2<cutlass_80_x>`.
[[nodiscard]] std::string plain_kernel_name(const std::string& name);

}  // namespace mfu

// Windows of made-up time, and kernels of a known class.
#pragma once

#include "core/base/units.h"
#include "core/rows/region_summary.h"

namespace mfu {

inline constexpr TimeNs kOrigin = 1000;  ///< where the first window begins
inline constexpr DurationNs kWindow = 1000;

inline const char* kernel_of(TimeClass c) {
  return c == TimeClass::kMatmul ? "ampere_bf16_s16816gemm_bf16_128x128"
         : c == TimeClass::kComm ? "ncclDevKernel_AllReduce_Sum_f32"
                                 : "vectorized_elementwise_kernel";
}

}  // namespace mfu

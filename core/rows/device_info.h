// A device of a run, with the peak that its rows are divided by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/peak/peak.h"

namespace mfu {

/// A device as the `start` line describes it.
struct DeviceInfo {
  std::uint32_t device = 0;
  std::string name;
  std::string uuid;
  std::optional<double> peak_flop_per_s;   ///< [FLOP/s]
  std::optional<double> peak_bytes_per_s;  ///< [B/s]
  std::string peak_source;                 ///< `table: ...`, `override`, `derived`, `unknown`
  std::string dtype;                       ///< of the peak
  std::string dtype_source;                ///< `config`, `model`, `kernels` (their names), or `assumed`
  bool sparse = false;
};

/// \param device index in the process; `peak` is that of `facts` for `operands`.
[[nodiscard]] DeviceInfo describe_device(std::uint32_t device, const DeviceFacts& facts, const Peak& peak,
                                         const OperandDType& operands);

}  // namespace mfu

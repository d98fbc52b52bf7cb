// What MFU divides by: (device, dtype) > peak FLOP/s and B/s, each with its source.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.h"

namespace mfu {

/// What the driver says of a device. Zero or empty: it did not say.
struct DeviceFacts {
  std::string name;                   ///< as cuDeviceGetName or NVML prints it
  std::uint32_t sm_count = 0;         ///< of this device, or of the MIG slice
  std::uint32_t clock_khz = 0;        ///< maximum SM clock
  std::uint32_t cc_major = 0, cc_minor = 0;
  std::uint32_t memory_clock_khz = 0;
  std::uint32_t memory_bus_bits = 0;
  std::uint64_t memory_bytes = 0;
};

/// The denominators for one device.
struct Peak {
  std::optional<double> flop_per_s;   ///< [FLOP/s]; none: unknown device, and nobody said
  std::optional<double> bytes_per_s;  ///< [B/s]
  DType dtype = DType::kBf16;
  bool sparse = false;
  std::string source;                 ///< `table: H100 SXM data sheet ...`, `override`, `derived`, `unknown`
};

struct PeakConfig;  // core/config.h

/// Peak of `device` for matmuls in `dtype`. The override of `config` always wins, then the table, then what SM count,
/// clock and FLOP per clock imply (`derived`); otherwise none.
[[nodiscard]] Peak find_peak(const DeviceFacts& device, DType dtype, const PeakConfig& config);

}  // namespace mfu

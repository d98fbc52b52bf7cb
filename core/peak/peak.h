// The divisor of MFU: (device, dtype) > peak FLOP/s and B/s, each with its source.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/dtype.h"
#include "core/base/result.h"

namespace mfu {

/// The driver's facts about a device. Zero or empty: unknown.
struct DeviceFacts {
  std::string name;             ///< as cuDeviceGetName or NVML prints it
  std::uint32_t sm_count = 0;   ///< of this device, or of the MIG slice
  std::uint32_t clock_khz = 0;  ///< maximum SM clock
  std::uint32_t cc_major = 0, cc_minor = 0;
  std::uint32_t memory_clock_khz = 0;
  std::uint32_t memory_bus_bits = 0;
  std::uint64_t memory_bytes = 0;
};

/// The `peak` block and the MFU_PEAK_* variables.
struct PeakOptions {
  std::optional<DType> dtype;    ///< dtype of the matmul operands; absent: from the model config, else from kernels
  bool sparse = false;           ///< divide by the 2:4 sparse peak
  std::optional<double> tflops;  ///< override [1e12 FLOP/s]
  std::optional<double> gbps;    ///< override [1e9 B/s]
};

/// The denominators for one device.
struct Peak {
  std::optional<double> flop_per_s;   ///< [FLOP/s]; none: unknown device, and no override
  std::optional<double> bytes_per_s;  ///< [B/s]
  DType dtype = DType::kBf16;
  bool sparse = false;
  std::uint32_t clock_khz = 0;  ///< SM clock of flop_per_s; 0: not known (override)
  std::uint32_t sm_count = 0;   ///< 0: not known
  std::string source;           ///< `table: H100 SXM data sheet ...`, `override`, `derived`, `unknown`
  /// Dense rates of the device by DType, for what ran in another dtype than `dtype` [FLOP/s]; 0: not known. All are
  /// flop_per_s where that is an override.
  std::array<double, kDTypes> by_dtype{};

  /// The rate that a product with such operands could have; that of `dtype` where the device's is not known.
  [[nodiscard]] std::optional<double> rate_of(DType operands) const noexcept {
    const double rate = by_dtype[static_cast<std::size_t>(operands)];
    return rate > 0 ? std::optional(rate) : flop_per_s;
  }
};

struct PeakRow;  // core/peak/peak_table.h

/// The table's row for a device name as the driver or NVML prints it; nullptr: none. Laptop parts have rows of
/// their own or none; parts that only share a piece of a name (T4G, A100X, RTX A1000) have none.
[[nodiscard]] const PeakRow* find_peak_row(std::string_view device_name) noexcept;

/// The names that a person may type for a device: its printed name, the row's id (`h100-sxm`) or its name in the table.
[[nodiscard]] const PeakRow* find_peak_row_by_any_name(std::string_view name) noexcept;

/// The row that a person means by a short or ambiguous name: `A100` (the SXM part with 80 GB), `4090`, `RTX PRO 6000`.
/// nullptr: none. find_peak falls back to it and says so in `source`.
[[nodiscard]] const PeakRow* find_usual_peak_row(std::string_view name) noexcept;

/// Ids of the rows whose names are nearest to what was typed, nearest first: `h100-sxm, h100-pcie, h100-nvl`.
[[nodiscard]] std::string nearest_peak_rows(std::string_view name, std::size_t most = 3);

/// Whose word on the dtype of the matmul operands is taken.
struct OperandDType {
  DType dtype = DType::kBf16;
  std::string_view source = "assumed";  ///< `config`, `model`, `kernels` (their names), or `assumed`
};
[[nodiscard]] OperandDType operand_dtype(std::optional<DType> config, std::optional<DType> model,
                                         std::optional<DType> kernels = std::nullopt) noexcept;

/// Peak of `device` for matmuls in `dtype`. The override of `config` always wins, then the table, then what SM count,
/// clock and FLOP per clock imply (`derived`: 6 to 16 % too high where the sheet uses a lower tensor clock); otherwise
/// none. Where the device has no rate for `dtype`, the dtype that its kernels then compute in is used and named: bf16
/// before 8.0 runs on the FP32 vector units, fp8 before 8.9 and 4-bit formats before 10.0 in 16 bit. A MIG slice gets
/// its share: SMs for FLOP, memory slices for bandwidth.
[[nodiscard]] Peak find_peak(const DeviceFacts& device, DType dtype, const PeakOptions& config);

/// Peak of the GPU that a person named. Error: neither the table nor `config` has one; it names the nearest GPUs.
[[nodiscard]] Result<Peak> find_peak_of_name(const std::string& gpu, DType dtype, const PeakOptions& config);

}  // namespace mfu

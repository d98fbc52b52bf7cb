// Published peak rates of NVIDIA GPUs. The rows are in peak_table.cpp, which core/peak/generate_peak_table.py writes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace mfu {

/// Columns of the table. FP32-accumulate tensor rates; kFp32 is the vector rate, kFp64Tensor the tensor rate.
enum class PeakColumn : std::uint8_t { kFp64, kFp64Tensor, kFp32, kTf32, kFp16, kBf16, kFp8, kInt8, kFp6, kFp4 };
inline constexpr std::size_t kPeakColumns = 10;

/// One value per column; 0: the part has no such rate.
using PeakRates = std::array<double, kPeakColumns>;

/// A piece of a device name, matched without regard to case. It must begin at a word boundary.
struct DeviceNamePattern {
  std::string_view text;
  bool word_end = true;                          ///< must end at a word boundary
  bool name_end = false;                         ///< must end the name
  std::array<std::string_view, 2> not_before{};  ///< must not be followed by one of these
};

struct PeakRow {
  std::string_view id;
  std::string_view name;
  std::uint32_t cc_major, cc_minor;
  std::array<DeviceNamePattern, 6> patterns;  ///< empty text: unused
  std::uint32_t sm_count;                     ///< 0: not known
  std::uint32_t tensor_clock_mhz;             ///< clock that the published tensor peak implies; 0: not known
  double mem_gb_per_s;
  std::uint32_t memory_gb;  ///< largest variant
  PeakRates dense_tflops;
  PeakRates sparse_tflops;
  std::string_view source;
};

/// Dense FLOP per clock and SM of a compute capability.
struct ArchRates {
  std::uint32_t cc_major, cc_minor;
  PeakRates full;
  PeakRates geforce;  ///< parts that accumulate in FP32 at half rate; all 0: no such class
};

[[nodiscard]] std::span<const PeakRow> peak_rows() noexcept;
[[nodiscard]] std::span<const ArchRates> arch_rates() noexcept;

}  // namespace mfu

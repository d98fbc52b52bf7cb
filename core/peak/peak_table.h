// Published peak rates of NVIDIA GPUs, read from gpu_peaks.json, which is built into the program.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mfu {

/// Columns of the table. FP32-accumulate tensor rates; kFp32 is the vector rate, kFp64Tensor the tensor rate.
enum class PeakColumn : std::uint8_t { kFp64, kFp64Tensor, kFp32, kTf32, kFp16, kBf16, kFp8, kInt8, kFp6, kFp4 };
inline constexpr std::size_t kPeakColumns = 10;

/// One value per column; 0: the part has no such rate.
using PeakRates = std::array<double, kPeakColumns>;

struct PeakRow {
  std::string_view id;
  std::string_view name;
  std::uint32_t cc_major, cc_minor;
  /// Pieces of a device name, matched without regard to case between word boundaries. `$` at the end: the name ends
  /// there; `*`: anything may follow.
  std::vector<std::string_view> match;
  std::vector<std::string_view> not_before;   ///< none of them may follow a piece
  std::vector<std::string_view> short_names;  ///< that several parts share, of which most people have this one
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

/// Both are read at the first call and stay until the process ends. Empty: there is no memory to read them.
[[nodiscard]] std::span<const PeakRow> peak_rows() noexcept;
[[nodiscard]] std::span<const ArchRates> arch_rates() noexcept;

}  // namespace mfu

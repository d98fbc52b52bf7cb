// One matrix product of a simulated math library: the kernel that it launches, and its line in the log.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace mfu::sim {

/// cudaDataType_t, as far as the libraries are asked for products of it.
enum class DataType : int {
  kF32 = 0,
  kF64 = 1,
  kF16 = 2,
  kI8 = 3,
  kC64 = 4,
  kC128 = 5,
  kI32 = 10,
  kBf16 = 14,
  kE4m3 = 28,
  kE5m2 = 29,
  kUe8m0 = 30,
  kE2m1 = 33,
};

/// cublasComputeType_t: 64 and 65 half, 68 and 69 float, 70 and 71 double, 72 and 73 int32, 74 to 79 fast float.
inline constexpr int kComputeF32 = 68, kComputeF64 = 70, kComputeTf32 = 77, kComputeI32 = 72;

/// D(m, n) = A(m, k) B(k, n), `batch` times, in column-major order.
struct Product {
  const char* call = "";  ///< the function that was called
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;
  DataType a = DataType::kF32, b = DataType::kF32, d = DataType::kF32;
  int compute = kComputeF32;
};

/// Launches what the real library would: nothing if the result is empty, mostly one kernel, and two where the sum over
/// k is split. Writes the line. CUDA_SUCCESS, or what the launch said.
CUresult run_product(const Product& product, CUstream stream);

/// A kernel of any other kind from such a library, at least `bytes` of traffic and `flop` long.
CUresult run_kernel(const char* name, double flop, double bytes, std::uint64_t blocks, CUstream stream);

}  // namespace mfu::sim

/// The end of every function of the real library that is not simulated: one line the first time, then `result`.
extern "C" [[gnu::visibility("hidden")]] int simgpu_not_simulated(const char* function, int result);

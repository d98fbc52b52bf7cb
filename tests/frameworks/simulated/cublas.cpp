// The simulated libcublas: handles, and every product as a kernel and a line in the log (see product.h). Signatures
// follow cublas_v2.h; enumerations are passed as their values. All else is a stub made from the real library's
// exports.
#include <cstdint>

#include "tests/frameworks/simulated/product.h"
#include "tools/simgpu/interface.h"

namespace {

using namespace mfu::sim;

constexpr int kSuccess = 0, kNotInitialized = 1, kInvalidValue = 7, kExecutionFailed = 13;
constexpr int kTensorOpTf32 = 3;  // CUBLAS_TF32_TENSOR_OP_MATH

struct Handle {
  CUstream stream = nullptr;
  int math_mode = 0, pointer_mode = 0, atomics_mode = 0, sm_target = 0;
};

int run(void* handle, const char* call, int transpose_a, int transpose_b, std::int64_t m, std::int64_t n,
        std::int64_t k, std::int64_t batch, int a, int b, int d, int compute) {
  auto* h = static_cast<Handle*>(handle);
  if (h == nullptr) return kNotInitialized;
  if (m < 0 || n < 0 || k < 0 || batch < 0) return kInvalidValue;
  Product p{call, m, n, k, batch, transpose_a != 0, transpose_b != 0, DataType{a}, DataType{b}, DataType{d}, compute};
  if (p.a == DataType::kF32 && h->math_mode == kTensorOpTf32 && p.compute == kComputeF32) p.compute = kComputeTf32;
  return run_product(p, h->stream) == CUDA_SUCCESS ? kSuccess : kExecutionFailed;
}

int solve(void* handle, const char* kernel, int side, int m, int n, int batch, double element_bytes) {
  auto* h = static_cast<Handle*>(handle);
  if (h == nullptr) return kNotInitialized;
  if (m < 0 || n < 0 || batch < 0) return kInvalidValue;
  if (m == 0 || n == 0 || batch == 0) return kSuccess;
  const double order = side == 0 ? m : n, cells = static_cast<double>(m) * n * batch;
  return run_kernel(kernel, order * cells, 2 * cells * element_bytes, static_cast<std::uint64_t>(batch), h->stream) ==
                 CUDA_SUCCESS
             ? kSuccess
             : kExecutionFailed;
}

int compute_of(DataType type) {
  return type == DataType::kF64 || type == DataType::kC128 ? kComputeF64 : type == DataType::kF16 ? 64 : kComputeF32;
}

}  // namespace

// Handles --------------------------------------------------------------------------------------------------------

SIM_EXPORT int cublasCreate_v2(void** handle) {
  *handle = new Handle;
  return kSuccess;
}
SIM_EXPORT int cublasDestroy_v2(void* handle) {
  delete static_cast<Handle*>(handle);
  return kSuccess;
}
SIM_EXPORT int cublasGetVersion_v2(void*, int* version) {
  *version = 130400;
  return kSuccess;
}
SIM_EXPORT int cublasGetProperty(int type, int* value) {
  *value = type == 0 ? 13 : type == 1 ? 4 : 0;
  return kSuccess;
}
SIM_EXPORT const char* cublasGetStatusString(int) { return "a status of the simulated cuBLAS"; }
SIM_EXPORT const char* cublasGetStatusName(int) { return "CUBLAS_STATUS_SIMULATED"; }

#define SIM_FIELD(name, set, get)                      \
  SIM_EXPORT int set(void* handle, int value) {        \
    if (handle == nullptr) return kNotInitialized;     \
    static_cast<Handle*>(handle)->name = value;        \
    return kSuccess;                                   \
  }                                                    \
  SIM_EXPORT int get(void* handle, int* value) {       \
    if (handle == nullptr) return kNotInitialized;     \
    *value = static_cast<const Handle*>(handle)->name; \
    return kSuccess;                                   \
  }
SIM_FIELD(math_mode, cublasSetMathMode, cublasGetMathMode)
SIM_FIELD(pointer_mode, cublasSetPointerMode_v2, cublasGetPointerMode_v2)
SIM_FIELD(atomics_mode, cublasSetAtomicsMode, cublasGetAtomicsMode)
SIM_FIELD(sm_target, cublasSetSmCountTarget, cublasGetSmCountTarget)

SIM_EXPORT int cublasSetStream_v2(void* handle, CUstream stream) {
  if (handle == nullptr) return kNotInitialized;
  static_cast<Handle*>(handle)->stream = stream;
  return kSuccess;
}
SIM_EXPORT int cublasGetStream_v2(void* handle, CUstream* stream) {
  if (handle == nullptr) return kNotInitialized;
  *stream = static_cast<const Handle*>(handle)->stream;
  return kSuccess;
}
SIM_EXPORT int cublasSetWorkspace_v2(void* handle, void*, std::size_t) {
  return handle == nullptr ? kNotInitialized : kSuccess;
}

// Products -------------------------------------------------------------------------------------------------------

// The functions of one element type, with 32-bit and with 64-bit sizes.
#define SIM_TYPED_SIZES(letter, type, Int, suffix)                                                                 \
  SIM_EXPORT int cublas##letter##gemm##suffix(void* handle, int ta, int tb, Int m, Int n, Int k, const void*,      \
                                              const void*, Int, const void*, Int, const void*, void*, Int) {       \
    return run(handle, "cublas" #letter "gemm", ta, tb, m, n, k, 1, type, type, type, compute_of(DataType{type})); \
  }                                                                                                                \
  SIM_EXPORT int cublas##letter##gemv##suffix(void* handle, int t, Int m, Int n, const void*, const void*, Int,    \
                                              const void*, Int, const void*, void*, Int) {                         \
    return run(handle, "cublas" #letter "gemv", t, 0, t != 0 ? n : m, 1, t != 0 ? m : n, 1, type, type, type,      \
               compute_of(DataType{type}));                                                                        \
  }                                                                                                                \
  SIM_EXPORT int cublas##letter##dot##suffix(void* handle, Int n, const void*, Int, const void*, Int, void*) {     \
    return run(handle, "cublas" #letter "dot", 1, 0, 1, 1, n, 1, type, type, type, compute_of(DataType{type}));    \
  }
#define SIM_BATCHED_SIZES(letter, type, Int, suffix)                                                                 \
  SIM_EXPORT int cublas##letter##gemmStridedBatched##suffix(                                                         \
      void* handle, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, long long, const void*, Int, \
      long long, const void*, void*, Int, long long, Int batch) {                                                    \
    return run(handle, "cublas" #letter "gemmStridedBatched", ta, tb, m, n, k, batch, type, type, type,              \
               compute_of(DataType{type}));                                                                          \
  }                                                                                                                  \
  SIM_EXPORT int cublas##letter##gemmBatched##suffix(void* handle, int ta, int tb, Int m, Int n, Int k, const void*, \
                                                     const void* const*, Int, const void* const*, Int, const void*,  \
                                                     void* const*, Int, Int batch) {                                 \
    return run(handle, "cublas" #letter "gemmBatched", ta, tb, m, n, k, batch, type, type, type,                     \
               compute_of(DataType{type}));                                                                          \
  }
#define SIM_TYPED(letter, type)                       \
  SIM_TYPED_SIZES(letter, type, int, _v2)             \
  SIM_TYPED_SIZES(letter, type, std::int64_t, _v2_64) \
  SIM_BATCHED_SIZES(letter, type, int, )              \
  SIM_BATCHED_SIZES(letter, type, std::int64_t, _64)
SIM_TYPED(S, 0)
SIM_TYPED(D, 1)
SIM_TYPED(C, 4)
SIM_TYPED(Z, 5)

SIM_EXPORT int cublasHgemm(void* handle, int ta, int tb, int m, int n, int k, const void*, const void*, int,
                           const void*, int, const void*, void*, int) {
  return run(handle, "cublasHgemm", ta, tb, m, n, k, 1, 2, 2, 2, 64);
}

#define SIM_EX_SIZES(Int, suffix)                                                                                      \
  SIM_EXPORT int cublasGemmEx##suffix(void* handle, int ta, int tb, Int m, Int n, Int k, const void*, const void*,     \
                                      int a, Int, const void*, int b, Int, const void*, void*, int c, Int,             \
                                      int compute, int) {                                                              \
    return run(handle, "cublasGemmEx", ta, tb, m, n, k, 1, a, b, c, compute);                                          \
  }                                                                                                                    \
  SIM_EXPORT int cublasSgemmEx##suffix(void* handle, int ta, int tb, Int m, Int n, Int k, const void*, const void*,    \
                                       int a, Int, const void*, int b, Int, const void*, void*, int c, Int) {          \
    return run(handle, "cublasSgemmEx", ta, tb, m, n, k, 1, a, b, c, kComputeF32);                                     \
  }                                                                                                                    \
  SIM_EXPORT int cublasGemmStridedBatchedEx##suffix(                                                                   \
      void* handle, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, Int, long long, const void*, \
      int b, Int, long long, const void*, void*, int c, Int, long long, Int batch, int compute, int) {                 \
    return run(handle, "cublasGemmStridedBatchedEx", ta, tb, m, n, k, batch, a, b, c, compute);                        \
  }                                                                                                                    \
  SIM_EXPORT int cublasGemmBatchedEx##suffix(void* handle, int ta, int tb, Int m, Int n, Int k, const void*,           \
                                             const void* const*, int a, Int, const void* const*, int b, Int,           \
                                             const void*, void* const*, int c, Int, Int batch, int compute, int) {     \
    return run(handle, "cublasGemmBatchedEx", ta, tb, m, n, k, batch, a, b, c, compute);                               \
  }
SIM_EX_SIZES(int, )
SIM_EX_SIZES(std::int64_t, _64)

SIM_EXPORT int cublasGemmGroupedBatchedEx(void* handle, const int* ta, const int* tb, const int* m, const int* n,
                                          const int* k, const void*, const void* const*, int a, const int*,
                                          const void* const*, int b, const int*, const void*, void* const*, int c,
                                          const int*, int groups, const int* group_size, int compute) {
  for (int i = 0; i < groups; ++i) {
    const int result =
        run(handle, "cublasGemmGroupedBatchedEx", ta[i], tb[i], m[i], n[i], k[i], group_size[i], a, b, c, compute);
    if (result != kSuccess) return result;
  }
  return kSuccess;
}

SIM_EXPORT int cublasDotEx(void* handle, int n, const void*, int x, int, const void*, int y, int, void*, int result,
                           int) {
  return run(handle, "cublasDotEx", 1, 0, 1, 1, n, 1, x, y, result, kComputeF32);
}

// Triangular solves: a kernel, no product ------------------------------------------------------------------------

#define SIM_TRSM(letter, element)                                                                              \
  SIM_EXPORT int cublas##letter##trsm_v2(void* handle, int side, int, int, int, int m, int n, const void*,     \
                                         const void*, int, void*, int) {                                       \
    return solve(handle, "_Z" #letter "trsm_kernel", side, m, n, 1, element);                                  \
  }                                                                                                            \
  SIM_EXPORT int cublas##letter##trsmBatched(void* handle, int side, int, int, int, int m, int n, const void*, \
                                             const void* const*, int, void* const*, int, int batch) {          \
    return solve(handle, "_Z" #letter "trsm_batched_kernel", side, m, n, batch, element);                      \
  }
SIM_TRSM(S, 4)
SIM_TRSM(D, 8)

// A module of a program that calls the library; built with each way of calling (see CMakeLists.txt).
#include <cstddef>
#include <cstdint>

#include "tests/unit/blas/stubs/library.h"

#define CALLER extern "C" __attribute__((visibility("default")))

extern "C" {
int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                 void*, int, int, int, int);
int cublasGemmStridedBatchedEx_64(void*, int, int, std::int64_t, std::int64_t, std::int64_t, const void*, const void*,
                                  int, std::int64_t, long long, const void*, int, std::int64_t, long long, const void*,
                                  void*, int, std::int64_t, long long, std::int64_t, int, int);
int cublasSgemm_v2(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*,
                   float*, int);
int cublasDgemv_v2(void*, int, int, int, const double*, const double*, int, const double*, int, const double*, double*,
                   int);
int cublasGemmGroupedBatchedEx(void*, const int*, const int*, const int*, const int*, const int*, const void*,
                               const void* const*, int, const int*, const void* const*, int, const int*, const void*,
                               void* const*, int, const int*, int, const int*, int);
void cublasDgemm(char, char, int, int, int, double, const double*, int, const double*, int, double, double*, int);
int cublasLtMatmul(void*, const StubObject*, const void*, const void*, const StubObject*, const void*,
                   const StubObject*, const void*, const void*, const StubObject*, void*, const StubObject*,
                   const void*, void*, std::size_t, void*);
}

namespace {
// Never to be read: an address that faults.
void* const kDevice = reinterpret_cast<void*>(0x10);
}  // namespace

CALLER int call_gemm(int m, int n, int k, int type, int compute, int transpose_a) {
  return cublasGemmEx(kDevice, transpose_a, 0, m, n, k, kDevice, kDevice, type, m, kDevice, type, k, kDevice, kDevice,
                      type, m, compute, -1);
}
CALLER int call_strided(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  return cublasGemmStridedBatchedEx_64(kDevice, 0, 1, m, n, k, kDevice, kDevice, 14, m, 1, kDevice, 14, k, 1, kDevice,
                                       kDevice, 0, m, 1, batch, 68, -1);
}
CALLER int call_sgemm(int m, int n, int k) {
  const auto* p = static_cast<const float*>(kDevice);
  return cublasSgemm_v2(kDevice, 0, 0, m, n, k, p, p, m, p, k, p, static_cast<float*>(kDevice), m);
}
CALLER int call_gemv(int m, int n) {
  const auto* p = static_cast<const double*>(kDevice);
  return cublasDgemv_v2(kDevice, 0, m, n, p, p, m, p, 1, p, static_cast<double*>(kDevice), 1);
}
CALLER void call_old(int m, int n, int k) {
  const auto* p = static_cast<const double*>(kDevice);
  cublasDgemm('T', 'n', m, n, k, 1.5, p, m, p, k, 2.5, static_cast<double*>(kDevice), m);
}
CALLER int call_grouped(const int* m, const int* n, const int* k, const int* size, int groups) {
  static const int kNone[64] = {};
  return cublasGemmGroupedBatchedEx(kDevice, kNone, kNone, m, n, k, kDevice, nullptr, 14, kNone, nullptr, 14, kNone,
                                    kDevice, nullptr, 14, kNone, groups, size, 68);
}
CALLER int call_matmul(const StubObject* desc, const StubObject* a, const StubObject* b, const StubObject* d) {
  return cublasLtMatmul(kDevice, desc, kDevice, kDevice, a, kDevice, b, kDevice, kDevice, d, kDevice, d, nullptr,
                        kDevice, 0, kDevice);
}

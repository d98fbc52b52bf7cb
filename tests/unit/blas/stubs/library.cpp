// Built twice: with STUB_LT as libcublasLt.so.99, without as libcublas.so.99, which calls the other one as the real one
// does.
#include "tests/unit/blas/stubs/library.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define STUB extern "C" __attribute__((visibility("default")))

#ifdef STUB_LT

extern "C" {
#define STUB_VALUE __attribute__((visibility("default")))
STUB_VALUE void (*stub_on_launch)() = nullptr;  ///< called for each kernel that a call launches, on its thread
STUB_VALUE int stub_kernels = 1;                ///< kernels that a product launches
STUB_VALUE int stub_fail = 0;                   ///< products to come that fail, before they launch anything
STUB_VALUE int stub_math_mode = 0;              ///< what cublasGetMathMode says
}

namespace {
std::atomic<double> g_flop{0};
std::atomic<long> g_calls{0};
thread_local int t_depth = 0;
}  // namespace

STUB StubLog stub_log() { return {g_flop.load(), g_calls.load()}; }

STUB void stub_enter() { ++t_depth; }
/// The end of a product of `flop` that launches so many kernels; the outermost call is the one that the program made.
STUB int stub_leave(double flop, int kernels) {
  --t_depth;
  if (stub_fail > 0 && kernels != 0) {
    --stub_fail;
    return 15;
  }
  for (int i = 0; i < kernels; ++i) stub_on_launch();
  if (t_depth != 0) return 0;
  double sum = g_flop.load();
  while (!g_flop.compare_exchange_weak(sum, sum + flop)) {
  }
  ++g_calls;
  return 0;
}

STUB int cublasLtMatrixLayoutGetAttribute(const StubObject* o, int a, void* to, std::size_t bytes,
                                          std::size_t* written) {
  if (a >= o->known) return 7;
  std::memcpy(to, &o->value[a], bytes);
  *written = bytes;
  return 0;
}
STUB int cublasLtMatmulDescGetAttribute(const StubObject* o, int a, void* to, std::size_t bytes, std::size_t* written) {
  return cublasLtMatrixLayoutGetAttribute(o, a, to, bytes, written);
}
STUB int cublasLtMatmul(void*, const StubObject* desc, const void*, const void*, const StubObject* a, const void*,
                        const StubObject*, const void*, const void*, const StubObject*, void*, const StubObject* d,
                        const void*, void*, std::size_t, void*) {
  stub_enter();
  const double k = static_cast<double>(desc->value[3] != 0 ? a->value[2] : a->value[3]);
  return stub_leave(
      2.0 * static_cast<double>(d->value[2]) * static_cast<double>(d->value[3]) * k * static_cast<double>(d->value[5]),
      stub_kernels);
}

#else

extern "C" int stub_math_mode, stub_kernels;
extern "C" void stub_enter();
extern "C" int stub_leave(double flop, int kernels);
extern "C" int cublasLtMatmul(void*, const StubObject*, const void*, const void*, const StubObject*, const void*,
                              const StubObject*, const void*, const void*, const StubObject*, void*, const StubObject*,
                              const void*, void*, std::size_t, void*);

namespace {
/// As the real library: the work is done by cublasLtMatmul.
int product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  stub_enter();
  StubObject a{{}, 40}, d{{}, 40}, desc{{}, 40};
  a.value[3] = k;
  d.value[2] = m;
  d.value[3] = n;
  d.value[5] = batch;
  const int result = cublasLtMatmul(nullptr, &desc, nullptr, nullptr, &a, nullptr, &a, nullptr, nullptr, &d, nullptr,
                                    &d, nullptr, nullptr, 0, nullptr);
  const double flop =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(batch);
  const int left = stub_leave(result == 0 ? flop : 0, 0);
  return result != 0 ? result : left;
}
}  // namespace

STUB int cublasGetMathMode(void*, int* mode) {
  *mode = stub_math_mode;
  return 0;
}
STUB int cublasGemmEx(void*, int, int, int m, int n, int k, const void*, const void*, int, int, const void*, int, int,
                      const void*, void*, int, int, int, int) {
  return product(m, n, k, 1);
}
STUB int cublasGemmStridedBatchedEx_64(void*, int, int, std::int64_t m, std::int64_t n, std::int64_t k, const void*,
                                       const void*, int, std::int64_t, long long, const void*, int, std::int64_t,
                                       long long, const void*, void*, int, std::int64_t, long long, std::int64_t batch,
                                       int, int) {
  return product(m, n, k, batch);
}
STUB int cublasSgemm_v2(void*, int, int, int m, int n, int k, const float*, const float*, int, const float*, int,
                        const float*, float*, int) {
  return product(m, n, k, 1);
}
STUB int cublasDgemv_v2(void*, int, int m, int n, const double*, const double*, int, const double*, int, const double*,
                        double*, int) {
  return product(m, 1, n, 1);
}
STUB int cublasGemmGroupedBatchedEx(void*, const int*, const int*, const int* m, const int* n, const int* k,
                                    const void*, const void* const*, int, const int*, const void* const*, int,
                                    const int*, const void*, void* const*, int, const int*, int groups, const int* size,
                                    int) {
  stub_enter();
  double flop = 0;
  for (int i = 0; i < groups; ++i) flop += 2.0 * m[i] * n[i] * k[i] * size[i];
  return stub_leave(flop, stub_kernels);
}
STUB void cublasDgemm(char, char, int m, int n, int k, double alpha, const double*, int, const double*, int,
                      double beta, double*, int) {
  if (alpha == 1.5 && beta == 2.5) (void)product(m, n, k, 1);  // passed on as they were given
}

#endif

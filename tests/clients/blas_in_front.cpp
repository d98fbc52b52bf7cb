// For LD_PRELOAD: another tool's function in front of cuBLAS. It counts, and says so at the end.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>

namespace {
std::atomic<long> g_calls{0};
using GemmEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
struct AtExit {
  ~AtExit() { std::printf("in front: %ld\n", g_calls.load()); }
} g_at_exit;
}  // namespace

extern "C" __attribute__((visibility("default"))) int cublasGemmEx(void* handle, int ta, int tb, int m, int n, int k,
                                                                   const void* alpha, const void* a, int a_type,
                                                                   int lda, const void* b, int b_type, int ldb,
                                                                   const void* beta, void* c, int c_type, int ldc,
                                                                   int compute, int algorithm) {
  static const auto next = reinterpret_cast<GemmEx>(dlsym(RTLD_NEXT, "cublasGemmEx"));
  ++g_calls;
  return next(handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute, algorithm);
}

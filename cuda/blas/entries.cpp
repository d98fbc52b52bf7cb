// hot: the hooks. No lock, no allocation, no clock; nothing that alpha, beta or a matrix points to is read, since it
// may lie in device memory.
#include "cuda/blas/entries.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "cuda/blas/cublas_types.h"
#include "cuda/blas/product_call.h"

namespace mfu {
namespace {

using std::int64_t;
using Stride = long long;
using Pointers = const void* const*;
using Read = bool;  ///< false: the call will compute nothing that could be counted

// --- arguments > Product --------------------------------------------------------------------------------------------

/// \param ta, tb 0: not transposed. False where a size is not positive: then the library computes no product.
Read sizes(Product& p, int ta, int tb, int64_t m, int64_t n, int64_t k, int64_t batch) noexcept {
  p.transpose_a = ta != 0;
  p.transpose_b = tb != 0;
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) return false;
  p.m = static_cast<std::uint64_t>(m);
  p.n = static_cast<std::uint64_t>(n);
  p.k = static_cast<std::uint64_t>(k);
  p.batch = static_cast<std::uint32_t>(batch);
  if (batch > std::numeric_limits<std::uint32_t>::max()) p.kind = Product::Kind::kUnsized;
  return true;
}

std::int32_t math_mode(const BlasTarget& target, void* handle) noexcept {
  std::int32_t mode = 0;
  using Get = int (*)(void*, std::int32_t*);
  if (target.math_mode != nullptr && handle != nullptr && reinterpret_cast<Get>(target.math_mode)(handle, &mode) != 0)
    return 0;
  return mode;
}

/// Of functions that take the types as arguments, and may multiply single precision as something else.
[[gnu::always_inline]] inline void types(Product& p, const BlasTarget& target, void* handle, std::int32_t a,
                                         std::int32_t d, std::int32_t compute) noexcept {
  const ElementType &operands = element_type(a), &result = element_type(d);
  if (!operands.known || !result.known) {
    p.kind = Product::Kind::kUnsized;
    return;
  }
  p.operands = operands.dtype;
  p.complex = operands.complex;
  p.result = result.dtype;
  if (p.operands == DType::kFp32)
    p.operands = single_precision_as(compute, compute == kCompute32f ? math_mode(target, handle) : 0);
}

/// Of functions whose name has the type.
template <DType kType, bool kComplex>
void types(Product& p, const BlasTarget& target, void* handle) noexcept {
  p.operands = p.result = kType;
  p.complex = kComplex;
  if constexpr (kType == DType::kFp32) p.operands = single_precision_as(kCompute32f, math_mode(target, handle));
}

template <typename Int, DType kType, bool kComplex>
[[gnu::always_inline]] inline Read gemm(Product& p, const BlasTarget& target, void* handle, int ta, int tb, Int m,
                                        Int n, Int k, const void*, const void*, Int, const void*, Int, const void*,
                                        void*, Int) noexcept {
  types<kType, kComplex>(p, target, handle);
  return sizes(p, ta, tb, m, n, k, 1);
}

template <typename Int, DType kType, bool kComplex>
[[gnu::always_inline]] inline Read gemm_strided(Product& p, const BlasTarget& target, void* handle, int ta, int tb,
                                                Int m, Int n, Int k, const void*, const void*, Int, Stride, const void*,
                                                Int, Stride, const void*, void*, Int, Stride, Int batch) noexcept {
  types<kType, kComplex>(p, target, handle);
  return sizes(p, ta, tb, m, n, k, batch);
}

template <typename Int, DType kType, bool kComplex>
Read gemm_batched(Product& p, const BlasTarget& target, void* handle, int ta, int tb, Int m, Int n, Int k, const void*,
                  Pointers, Int, Pointers, Int, const void*, void* const*, Int, Int batch) noexcept {
  types<kType, kComplex>(p, target, handle);
  return sizes(p, ta, tb, m, n, k, batch);
}

/// y = op(A) x, with y as a matrix of one column.
template <typename Int, DType kType, bool kComplex>
Read gemv(Product& p, const BlasTarget& target, void* handle, int t, Int m, Int n, const void*, const void*, Int,
          const void*, Int, const void*, void*, Int) noexcept {
  types<kType, kComplex>(p, target, handle);
  return sizes(p, t, 0, t != 0 ? n : m, 1, t != 0 ? m : n, 1);
}

template <typename Int, DType kType, bool kComplex>
Read gemv_strided(Product& p, const BlasTarget& target, void* handle, int t, Int m, Int n, const void*, const void*,
                  Int, Stride, const void*, Int, Stride, const void*, void*, Int, Stride, Int batch) noexcept {
  types<kType, kComplex>(p, target, handle);
  return sizes(p, t, 0, t != 0 ? n : m, 1, t != 0 ? m : n, batch);
}

template <typename Int, DType kType, bool kComplex>
Read gemv_batched(Product& p, const BlasTarget& target, void* handle, int t, Int m, Int n, const void*, Pointers, Int,
                  Pointers, Int, const void*, void* const*, Int, Int batch) noexcept {
  types<kType, kComplex>(p, target, handle);
  return sizes(p, t, 0, t != 0 ? n : m, 1, t != 0 ? m : n, batch);
}

/// cublasSgemmEx, cublasCgemmEx, cublasCgemm3mEx: they compute in single precision.
template <typename Int>
Read typed_ex(Product& p, const BlasTarget& target, void* handle, int ta, int tb, Int m, Int n, Int k, const void*,
              const void*, int a, Int, const void*, int, Int, const void*, void*, int c, Int) noexcept {
  types(p, target, handle, a, c, kCompute32f);
  return sizes(p, ta, tb, m, n, k, 1);
}

template <typename Int>
[[gnu::always_inline]] inline Read gemm_ex(Product& p, const BlasTarget& target, void* handle, int ta, int tb, Int m,
                                           Int n, Int k, const void*, const void*, int a, Int, const void*, int, Int,
                                           const void*, void*, int c, Int, int compute, int) noexcept {
  types(p, target, handle, a, c, compute);
  return sizes(p, ta, tb, m, n, k, 1);
}

template <typename Int>
[[gnu::always_inline]] inline Read gemm_strided_ex(Product& p, const BlasTarget& target, void* handle, int ta, int tb,
                                                   Int m, Int n, Int k, const void*, const void*, int a, Int, Stride,
                                                   const void*, int, Int, Stride, const void*, void*, int c, Int,
                                                   Stride, Int batch, int compute, int) noexcept {
  types(p, target, handle, a, c, compute);
  return sizes(p, ta, tb, m, n, k, batch);
}

template <typename Int>
Read gemm_batched_ex(Product& p, const BlasTarget& target, void* handle, int ta, int tb, Int m, Int n, Int k,
                     const void*, Pointers, int a, Int, Pointers, int, Int, const void*, void* const*, int c, Int,
                     Int batch, int compute, int) noexcept {
  types(p, target, handle, a, c, compute);
  return sizes(p, ta, tb, m, n, k, batch);
}

/// Groups of products, each with different sizes, in arrays on the host. Where one size alone differs, as the rows of
/// experts do, the sum is a product with the sum of that size. Where more differ, no product has these sizes: m is what
/// gives the right FLOP, n and k are 1.
template <typename Int>
Read groups(Product& p, const int* ta, const int* tb, const Int* m, const Int* n, const Int* k, Int count,
            const Int* members) noexcept {
  constexpr Int kMost = 4096;
  if (count <= 0 || ta == nullptr || tb == nullptr || m == nullptr || n == nullptr || k == nullptr ||
      members == nullptr)
    return false;
  p.transpose_a = ta[0] != 0;
  p.transpose_b = tb[0] != 0;
  if (count > kMost) {
    p.kind = Product::Kind::kUnsized;
    return true;
  }
  std::uint64_t all_m = 0, all_n = 0, all_k = 0, all = 0;
  Int one_m = 0, one_n = 0, one_k = 0;
  bool same_m = true, same_n = true, same_k = true;
  for (Int i = 0; i < count; ++i) {
    if (m[i] <= 0 || n[i] <= 0 || k[i] <= 0 || members[i] <= 0) continue;  // an expert without a token
    const auto u = [&](Int size) { return static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(members[i]); };
    if (one_m == 0) one_m = m[i], one_n = n[i], one_k = k[i];
    same_m = same_m && m[i] == one_m;
    same_n = same_n && n[i] == one_n;
    same_k = same_k && k[i] == one_k;
    all_m += u(m[i]);
    all_n += u(n[i]);
    all_k += u(k[i]);
    all += u(m[i]) * static_cast<std::uint64_t>(n[i]) * static_cast<std::uint64_t>(k[i]);
  }
  if (one_m == 0) return false;
  p.m = static_cast<std::uint64_t>(one_m);
  p.n = static_cast<std::uint64_t>(one_n);
  p.k = static_cast<std::uint64_t>(one_k);
  if (same_m && same_k)
    p.n = all_n;
  else if (same_n && same_k)
    p.m = all_m;
  else if (same_m && same_n)
    p.k = all_k;
  else
    p.m = all, p.n = p.k = 1;
  return true;
}

template <typename Int, DType kType>
Read gemm_grouped(Product& p, const BlasTarget& target, void* handle, const int* ta, const int* tb, const Int* m,
                  const Int* n, const Int* k, const void*, Pointers, const Int*, Pointers, const Int*, const void*,
                  void* const*, const Int*, Int count, const Int* members) noexcept {
  types<kType, false>(p, target, handle);
  return groups(p, ta, tb, m, n, k, count, members);
}

template <typename Int>
Read gemm_grouped_ex(Product& p, const BlasTarget& target, void* handle, const int* ta, const int* tb, const Int* m,
                     const Int* n, const Int* k, const void*, Pointers, int a, const Int*, Pointers, int, const Int*,
                     const void*, void* const*, int c, const Int*, Int count, const Int* members,
                     int compute) noexcept {
  types(p, target, handle, a, c, compute);
  return groups(p, ta, tb, m, n, k, count, members);
}

/// The interface of cublas.h, without a handle: letters for operations, factors by value.
bool transposes(char operation) noexcept { return operation != 'n' && operation != 'N'; }

template <DType kType, bool kComplex, typename Factor>
Read old_gemm(Product& p, const BlasTarget&, char ta, char tb, int m, int n, int k, Factor, const void*, int,
              const void*, int, Factor, void*, int) noexcept {
  p.operands = p.result = kType;
  p.complex = kComplex;
  return sizes(p, transposes(ta), transposes(tb), m, n, k, 1);
}

template <typename Value>
bool attribute(void* get, const void* of, int which, Value& value) noexcept {
  using Get = int (*)(const void*, int, void*, std::size_t, std::size_t*);
  std::size_t written = 0;
  return reinterpret_cast<Get>(get)(of, which, &value, sizeof value, &written) == 0;
}

/// D gives m and n, A gives k: as the layouts and the description say when asked by the library's own functions. What
/// they do not say makes it a product of unknown size.
Read matmul(Product& p, const BlasTarget& target, void*, const void* desc, const void*, const void*, const void* a,
            const void*, const void* b, const void*, const void*, const void*, void*, const void* d, const void*, void*,
            std::size_t, void*) noexcept {
  if (desc == nullptr || a == nullptr || b == nullptr || d == nullptr) return false;
  p.kind = Product::Kind::kUnsized;
  void* const layout = target.layout_attribute;
  void* const described = target.desc_attribute;
  if (layout == nullptr || described == nullptr) return true;
  std::uint64_t m = 0, n = 0, k = 0;
  std::int32_t a_type = 0, d_type = 0, batch = 1, mode = kBatchModeStrided, ta = 0, tb = 0;
  if (!attribute(layout, d, kLayoutRows, m) || !attribute(layout, d, kLayoutColumns, n) ||
      !attribute(layout, a, kLayoutType, a_type) || !attribute(layout, d, kLayoutType, d_type) ||
      !attribute(layout, d, kLayoutBatchCount, batch) || !attribute(described, desc, kDescTransposeA, ta) ||
      !attribute(described, desc, kDescTransposeB, tb) ||
      !attribute(layout, a, ta != 0 ? kLayoutRows : kLayoutColumns, k))
    return true;
  const ElementType &operands = element_type(a_type), &result = element_type(d_type);
  if (!operands.known || !result.known) return true;
  p.operands = operands.dtype;
  p.complex = operands.complex;
  p.result = result.dtype;
  if (p.operands == DType::kFp32) {
    std::int32_t compute = 0;
    if (attribute(described, desc, kDescComputeType, compute)) p.operands = single_precision_as(compute, 0);
  } else if (p.operands == DType::kFp4) {
    std::int32_t scale = 0;
    if (attribute(described, desc, kDescScaleModeA, scale))
      p.operands = scale == kScaleVec16Ue4m3 ? DType::kNvfp4 : scale == kScaleVec32Ue8m0 ? DType::kMxfp4 : DType::kFp4;
  }
  // Older libraries have no such attribute, and no such layouts.
  if (attribute(layout, d, kLayoutBatchMode, mode) && mode != kBatchModeStrided && mode != kBatchModePointers)
    return true;
  p.kind = Product::Kind::kSized;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<int64_t>::max());
  if (m > kMost || n > kMost || k > kMost) return false;
  return sizes(p, ta, tb, static_cast<int64_t>(m), static_cast<int64_t>(n), static_cast<int64_t>(k), batch);
}

// --- hooks ----------------------------------------------------------------------------------------------------------

template <std::size_t kEntry>
BlasTarget g_targets[BlasEntry::kCopies];

/// The slot that leads here was filled after the target was; on machines that reorder loads, that may be seen late.
inline void* function_of(const BlasTarget& target) noexcept {
  void* function = target.function.load(std::memory_order_acquire);
#if !defined(__x86_64__)
  while (function == nullptr) [[unlikely]] function = target.function.load(std::memory_order_acquire);
#endif
  return function;
}

template <auto kRead, typename Result, std::size_t kEntry, std::uint32_t kCopy>
struct Hook;

template <typename... Arguments, bool (*kRead)(Product&, const BlasTarget&, Arguments...) noexcept, typename Result,
          std::size_t kEntry, std::uint32_t kCopy>
struct Hook<kRead, Result, kEntry, kCopy> {
  using Function = Result (*)(Arguments...);

  static Result call(Arguments... arguments) {
    const BlasTarget& target = g_targets<kEntry>[kCopy];
    const auto function = reinterpret_cast<Function>(function_of(target));
    ProductCall call;
    if (call) {
      Product product;
      if (kRead(product, target, arguments...)) call.begin(product);
    }
    if constexpr (std::is_void_v<Result>) {
      function(arguments...);
    } else {
      const Result result = function(arguments...);
      if (result != 0) call.fail();
      return result;
    }
  }
};

template <auto kRead, typename Result, std::size_t kEntry>
BlasEntry entry(const char* name, BlasEntry::Library library) noexcept {
  return {name,
          library,
          {reinterpret_cast<void*>(&Hook<kRead, Result, kEntry, 0>::call),
           reinterpret_cast<void*>(&Hook<kRead, Result, kEntry, 1>::call),
           reinterpret_cast<void*>(&Hook<kRead, Result, kEntry, 2>::call)},
          g_targets<kEntry>};
}

struct Complex32 {
  alignas(8) float re, im;
};
struct Complex64 {
  alignas(16) double re, im;
};

#define MFU_BLAS(function, ...) entry<__VA_ARGS__, int, __COUNTER__>(#function, BlasEntry::Library::kCublas),
// NOLINTNEXTLINE(bugprone-macro-parentheses): `reader` is a template
#define MFU_BLAS_BOTH_SIZES(function, reader) MFU_BLAS(function, reader<int>) MFU_BLAS(function##_64, reader<int64_t>)
#define MFU_BLAS_TYPED(letter, type, complex)                        \
  MFU_BLAS(cublas##letter##gemm_v2, gemm<int, type, complex>)        \
  MFU_BLAS(cublas##letter##gemm_v2_64, gemm<int64_t, type, complex>) \
  MFU_BLAS(cublas##letter##gemv_v2, gemv<int, type, complex>)        \
  MFU_BLAS(cublas##letter##gemv_v2_64, gemv<int64_t, type, complex>) \
  MFU_BLAS_BATCHED(letter, type, complex)                            \
  MFU_BLAS_VECTORS(cublas##letter##gemv, type, complex)
#define MFU_BLAS_BATCHED(letter, type, complex)                                  \
  MFU_BLAS(cublas##letter##gemmBatched, gemm_batched<int, type, complex>)        \
  MFU_BLAS(cublas##letter##gemmBatched_64, gemm_batched<int64_t, type, complex>) \
  MFU_BLAS(cublas##letter##gemmStridedBatched, gemm_strided<int, type, complex>) \
  MFU_BLAS(cublas##letter##gemmStridedBatched_64, gemm_strided<int64_t, type, complex>)
#define MFU_BLAS_VECTORS(name, type, complex)                      \
  MFU_BLAS(name##Batched, gemv_batched<int, type, complex>)        \
  MFU_BLAS(name##Batched_64, gemv_batched<int64_t, type, complex>) \
  MFU_BLAS(name##StridedBatched, gemv_strided<int, type, complex>) \
  MFU_BLAS(name##StridedBatched_64, gemv_strided<int64_t, type, complex>)
#define MFU_BLAS_OLD(letter, type, complex, factor) \
  entry<old_gemm<type, complex, factor>, void, __COUNTER__>("cublas" #letter "gemm", BlasEntry::Library::kCublas),

std::span<const BlasEntry> sorted_entries() noexcept {
  // clang-format off
  static BlasEntry list[] = {
      MFU_BLAS_BOTH_SIZES(cublasGemmEx, gemm_ex)
      MFU_BLAS_BOTH_SIZES(cublasGemmStridedBatchedEx, gemm_strided_ex)
      MFU_BLAS_BOTH_SIZES(cublasGemmBatchedEx, gemm_batched_ex)
      MFU_BLAS_BOTH_SIZES(cublasGemmGroupedBatchedEx, gemm_grouped_ex)
      MFU_BLAS_BOTH_SIZES(cublasSgemmEx, typed_ex)
      MFU_BLAS_BOTH_SIZES(cublasCgemmEx, typed_ex)
      MFU_BLAS_BOTH_SIZES(cublasCgemm3mEx, typed_ex)
      MFU_BLAS_TYPED(S, DType::kFp32, false)
      MFU_BLAS_TYPED(D, DType::kFp64, false)
      MFU_BLAS_TYPED(C, DType::kFp32, true)
      MFU_BLAS_TYPED(Z, DType::kFp64, true)
      MFU_BLAS(cublasHgemm, gemm<int, DType::kFp16, false>)
      MFU_BLAS(cublasHgemm_64, gemm<int64_t, DType::kFp16, false>)
      MFU_BLAS_BATCHED(H, DType::kFp16, false)
      MFU_BLAS(cublasCgemm3m, gemm<int, DType::kFp32, true>)
      MFU_BLAS(cublasCgemm3m_64, gemm<int64_t, DType::kFp32, true>)
      MFU_BLAS(cublasZgemm3m, gemm<int, DType::kFp64, true>)
      MFU_BLAS(cublasZgemm3m_64, gemm<int64_t, DType::kFp64, true>)
      MFU_BLAS(cublasSgemmGroupedBatched, gemm_grouped<int, DType::kFp32>)
      MFU_BLAS(cublasSgemmGroupedBatched_64, gemm_grouped<int64_t, DType::kFp32>)
      MFU_BLAS(cublasDgemmGroupedBatched, gemm_grouped<int, DType::kFp64>)
      MFU_BLAS(cublasDgemmGroupedBatched_64, gemm_grouped<int64_t, DType::kFp64>)
      MFU_BLAS_VECTORS(cublasHSHgemv, DType::kFp16, false)
      MFU_BLAS_VECTORS(cublasHSSgemv, DType::kFp16, false)
      MFU_BLAS_VECTORS(cublasTSTgemv, DType::kBf16, false)
      MFU_BLAS_VECTORS(cublasTSSgemv, DType::kBf16, false)
      MFU_BLAS_OLD(S, DType::kFp32, false, float)
      MFU_BLAS_OLD(D, DType::kFp64, false, double)
      MFU_BLAS_OLD(C, DType::kFp32, true, Complex32)
      MFU_BLAS_OLD(Z, DType::kFp64, true, Complex64)
      entry<matmul, int, __COUNTER__>("cublasLtMatmul", BlasEntry::Library::kCublasLt),
  };
  // clang-format on
  static const bool sorted = [] {
    std::sort(std::begin(list), std::end(list),
              [](const BlasEntry& a, const BlasEntry& b) { return std::strcmp(a.name, b.name) < 0; });
    return true;
  }();
  (void)sorted;
  return list;
}

}  // namespace

std::span<const BlasEntry> blas_entries() noexcept { return sorted_entries(); }

const BlasEntry* find_blas_entry(const char* name) noexcept {
  const std::span<const BlasEntry> list = sorted_entries();
  const auto found = std::lower_bound(list.begin(), list.end(), name, [](const BlasEntry& e, const char* wanted) {
    return std::strcmp(e.name, wanted) < 0;
  });
  return found != list.end() && std::strcmp(found->name, name) == 0 ? &*found : nullptr;
}

namespace detail {

void* hook_for(const BlasEntry& entry, void* function, FindHelper find, const void* closure) noexcept {
  for (std::uint32_t i = 0; i < BlasEntry::kCopies; ++i)
    if (entry.targets[i].function.load(std::memory_order_acquire) == function) return entry.hooks[i];
  // Rare: once for each function. No thread waits: a child of fork would wait for ever.
  static std::atomic_flag busy = ATOMIC_FLAG_INIT;
  if (busy.test_and_set(std::memory_order_acquire)) return nullptr;
  void* hook = nullptr;
  for (std::uint32_t i = 0; i < BlasEntry::kCopies && hook == nullptr; ++i) {
    BlasTarget& target = entry.targets[i];
    void* const held = target.function.load(std::memory_order_relaxed);
    if (held != nullptr && held != function) continue;
    hook = entry.hooks[i];
    if (held == function) break;
    if (entry.library == BlasEntry::Library::kCublas) {
      target.math_mode = find(closure, "cublasGetMathMode");
    } else {
      target.layout_attribute = find(closure, "cublasLtMatrixLayoutGetAttribute");
      target.desc_attribute = find(closure, "cublasLtMatmulDescGetAttribute");
    }
    target.function.store(function, std::memory_order_release);
  }
  busy.clear(std::memory_order_release);
  return hook;
}

}  // namespace detail
}  // namespace mfu

// What a hook leaves with its thread while the library works, for every type, transpose and odd size, against what the
// documentation of cuBLAS says of the arguments.
#include "cuda/blas/entries.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/host_thread.h"

namespace mfu {
namespace {

using GemmEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
using GemmEx64 = int (*)(void*, int, int, std::int64_t, std::int64_t, std::int64_t, const void*, const void*, int,
                         std::int64_t, const void*, int, std::int64_t, const void*, void*, int, std::int64_t, int, int);
using StridedEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, long long, const void*,
                          int, int, long long, const void*, void*, int, int, long long, int, int, int);

std::optional<Product> g_seen;
int g_result = 0, g_math_mode = 0;
std::int64_t g_sum = 0;  ///< of the arguments that came through

void look() {
  const ThreadState* thread = host_thread()->state;
  g_seen = thread != nullptr && thread->product ? std::optional(thread->asked.product()) : std::nullopt;
}
int gemm_ex(void*, int ta, int tb, int m, int n, int k, const void*, const void*, int a, int lda, const void*, int b,
            int ldb, const void*, void*, int c, int ldc, int compute, int algorithm) {
  look();
  g_sum = std::int64_t{ta} + tb + m + n + k + a + lda + b + ldb + c + ldc + compute + algorithm;
  return g_result;
}
int gemm_ex_64(void*, int, int, std::int64_t, std::int64_t, std::int64_t, const void*, const void*, int, std::int64_t,
               const void*, int, std::int64_t, const void*, void*, int, std::int64_t, int, int) {
  look();
  return g_result;
}
int strided_ex(void*, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,
               long long, const void*, void*, int, int, long long, int, int, int) {
  look();
  return g_result;
}
int get_math_mode(void*, int* mode) {
  *mode = g_math_mode;
  return 0;
}

template <typename Function>
Function hooked(const char* name, Function function) {
  return reinterpret_cast<Function>(hook_for(*find_blas_entry(name), reinterpret_cast<void*>(function),
                                             [](const char*) { return reinterpret_cast<void*>(&get_math_mode); }));
}

/// library_types.h of CUDA 13.0: what has a name there and is multiplied, and its parts where it is complex.
const std::map<int, std::pair<DType, bool>> kTypes{
    {0, {DType::kFp32, false}}, {1, {DType::kFp64, false}},  {2, {DType::kFp16, false}},  {3, {DType::kInt8, false}},
    {8, {DType::kInt8, false}}, {4, {DType::kFp32, true}},   {5, {DType::kFp64, true}},   {6, {DType::kFp16, true}},
    {7, {DType::kInt8, true}},  {9, {DType::kInt8, true}},   {10, {DType::kFp32, false}}, {14, {DType::kBf16, false}},
    {15, {DType::kBf16, true}}, {16, {DType::kInt4, false}}, {18, {DType::kInt4, false}}, {28, {DType::kFp8, false}},
    {29, {DType::kFp8, false}}, {31, {DType::kFp6, false}},  {32, {DType::kFp6, false}},  {33, {DType::kFp4, false}}};

class Entries : public testing::Test {
 protected:
  void SetUp() override {
    // Never destroyed, as in a host: the thread's state is one of its.
    static auto* const kept = new std::vector<std::unique_ptr<Attribution>>;
    links_.attribution = kept->emplace_back(std::make_unique<Attribution>(counters_)).get();
    host_switches().live.store(&links_);
    host_thread()->adopted = false;
    (void)live_thread(links_);
    g_result = g_math_mode = 0;
  }
  Counters counters_;
  HostLinks links_;
};

TEST_F(Entries, EveryTypeAndTranspose) {
  const auto gemm = hooked("cublasGemmEx", &gemm_ex);
  constexpr int kCompute32f = 68, kFastTf32 = 77;
  for (int a = -2; a < 70; ++a)
    for (int c = -2; c < 70; ++c)
      for (int transposes = 0; transposes < 9; ++transposes)
        for (const int compute : {kCompute32f, kFastTf32})
          for (const int mode : {0, 3}) {
            g_math_mode = mode;
            const int ta = transposes % 3, tb = transposes / 3;
            ASSERT_EQ(gemm(&g_sum, ta, tb, 7, 8, 9, nullptr, nullptr, a, 10, nullptr, a, 11, nullptr, nullptr, c, 12,
                           compute, -1),
                      0);
            ASSERT_EQ(g_sum, ta + tb + 7 + 8 + 9 + a + 10 + a + 11 + c + 12 + compute - 1);
            ASSERT_TRUE(g_seen);
            const auto operands = kTypes.find(a), result = kTypes.find(c);
            const bool known = operands != kTypes.end() && result != kTypes.end();
            ASSERT_EQ(g_seen->kind, known ? Product::Kind::kSized : Product::Kind::kUnsized) << a << " " << c;
            if (!known) continue;
            DType as = operands->second.first;
            if (as == DType::kFp32 && (compute == kFastTf32 || mode == 3)) as = DType::kTf32;
            Product expected;
            expected.m = 7;
            expected.n = 8;
            expected.k = 9;
            expected.operands = as;
            expected.complex = operands->second.second;
            expected.result = result->second.first;
            expected.transpose_a = ta != 0;
            expected.transpose_b = tb != 0;
            ASSERT_EQ(*g_seen, expected) << a << " " << c << " " << ta << tb;
          }
}

TEST_F(Entries, SizesThatAreNone) {
  const auto gemm = hooked("cublasGemmEx", &gemm_ex);
  const auto strided = hooked("cublasGemmStridedBatchedEx", &strided_ex);
  constexpr int kLeast = std::numeric_limits<int>::min(), kMost = std::numeric_limits<int>::max();
  for (const int m : {kLeast, -1, 0, 1, kMost})
    for (const int n : {kLeast, -1, 0, 1, kMost})
      for (const int k : {kLeast, -1, 0, 1, kMost})
        for (const int batch : {kLeast, -1, 0, 1, kMost}) {
          strided(nullptr, 0, 1, m, n, k, nullptr, nullptr, 14, 1, 1, nullptr, 14, 1, 1, nullptr, nullptr, 14, 1, 1,
                  batch, 68, -1);
          const bool any = m > 0 && n > 0 && k > 0;
          ASSERT_EQ(g_seen.has_value(), any && batch > 0);
          if (g_seen) {
            EXPECT_EQ(g_seen->batch, static_cast<std::uint32_t>(batch));
            EXPECT_EQ(g_seen->m, static_cast<std::uint64_t>(m));
            EXPECT_EQ(g_seen->n, static_cast<std::uint64_t>(n));
            EXPECT_EQ(g_seen->k, static_cast<std::uint64_t>(k));
          }
          gemm(nullptr, 0, 1, m, n, k, nullptr, nullptr, 14, 1, nullptr, 14, 1, nullptr, nullptr, 14, 1, 68, -1);
          ASSERT_EQ(g_seen.has_value(), any);
        }
  const auto gemm_64 = hooked("cublasGemmEx_64", &gemm_ex_64);
  gemm_64(nullptr, 0, 0, std::int64_t{1} << 40, 2, 3, nullptr, nullptr, 14, 1, nullptr, 14, 1, nullptr, nullptr, 14, 1,
          68, -1);
  ASSERT_TRUE(g_seen);
  EXPECT_EQ(g_seen->m, std::uint64_t{1} << 40);
}

/// Nothing is left behind with the thread, whatever the library returned, and a call inside a call is part of it.
TEST_F(Entries, TheCallEnds) {
  const auto gemm = hooked("cublasGemmEx", &gemm_ex);
  ThreadState& thread = *host_thread()->state;
  for (const int result : {0, 13}) {
    g_result = result;
    EXPECT_EQ(gemm(nullptr, 0, 0, 1, 1, 1, nullptr, nullptr, 14, 1, nullptr, 14, 1, nullptr, nullptr, 14, 1, 68, -1),
              result);
    EXPECT_TRUE(g_seen);
    EXPECT_FALSE(thread.product);
  }
  Product outer;
  outer.m = 5;
  ASSERT_TRUE(Attribution::begin_product(thread, ProductWords(outer)));
  gemm(nullptr, 0, 0, 1, 1, 1, nullptr, nullptr, 14, 1, nullptr, 14, 1, nullptr, nullptr, 14, 1, 68, -1);
  EXPECT_EQ(g_seen->m, 5u);
  EXPECT_TRUE(thread.product);
  links_.attribution->end_product(thread, false);
  host_switches().inert.store(true);
  gemm(nullptr, 0, 0, 1, 1, 1, nullptr, nullptr, 14, 1, nullptr, 14, 1, nullptr, nullptr, 14, 1, 68, -1);
  EXPECT_FALSE(g_seen);
  host_switches().inert.store(false);
}

}  // namespace
}  // namespace mfu

// Calls through hooked slots against what a library of the tests was asked for, for every way in which a module can
// call.
#include "cuda/blas/import_patcher.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/host_thread.h"
#include "tests/sanitized.h"
#include "tests/unit/blas/stubs/library.h"

namespace mfu {
namespace {

std::atomic<std::uint32_t> g_correlation{0};
Attribution* g_attribution = nullptr;

/// What CUPTI's callback does for a kernel launch.
void on_launch() {
  const CorrelationId id{++g_correlation};
  HostThread* thread = host_thread();
  if (thread == nullptr || thread->state == nullptr) {
    g_attribution->launch_anonymous(id, 1);
    return;
  }
  g_attribution->launch(*thread->state, id, 1, {}, true);
  g_attribution->launch_done(*thread->state, id, false);
}

/// A module of the program, opened as the test says.
class Caller {
 public:
  explicit Caller(const std::string& path, int how = RTLD_NOW | RTLD_LOCAL) : handle_(dlopen(path.c_str(), how)) {
    if (handle_ == nullptr) {
      ADD_FAILURE() << dlerror();
      std::abort();
    }
    find(gemm, "call_gemm");
    find(strided, "call_strided");
    find(sgemm, "call_sgemm");
    find(gemv, "call_gemv");
    find(old, "call_old");
    find(grouped, "call_grouped");
    find(matmul, "call_matmul");
  }
  ~Caller() { dlclose(handle_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  int (*gemm)(int m, int n, int k, int type, int compute, int transpose_a) = nullptr;
  int (*strided)(std::int64_t, std::int64_t, std::int64_t, std::int64_t batch) = nullptr;
  int (*sgemm)(int, int, int) = nullptr;
  int (*gemv)(int, int) = nullptr;
  void (*old)(int, int, int) = nullptr;
  int (*grouped)(const int*, const int*, const int*, const int*, int) = nullptr;
  int (*matmul)(const StubObject* desc, const StubObject* a, const StubObject* b, const StubObject* d) = nullptr;

 private:
  template <typename F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
  }
  void* handle_;
};

const std::string kStubs = MFU_BLAS_STUBS "/";

class ImportPatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen((kStubs + "libcublas.so.99").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    on_launch_ = find<void (**)()>(library, "stub_on_launch");
    kernels_ = find<int*>(library, "stub_kernels");
    fail_ = find<int*>(library, "stub_fail");
    math_mode_ = find<int*>(library, "stub_math_mode");
    log_ = find<StubLog (*)()>(library, "stub_log");
    *on_launch_ = on_launch;
    *kernels_ = 1;
    *fail_ = *math_mode_ = 0;
    attribution_ = new Attribution(counters_);  // hooks may be inside until the process is gone
    g_attribution = attribution_;
    links_.attribution = attribution_;
    host_switches().live.store(&links_);
    HostThread* thread = host_thread();
    thread->adopted = false;  // a state of this test's attribution
    (void)live_thread(links_);
    before_ = log_();
    first_ = g_correlation;
  }
  template <typename T>
  T find(void* library, const char* name) {
    return reinterpret_cast<T>(dlsym(library, name));
  }

  struct Billed {
    double flop = 0;
    std::vector<Product> products;  ///< one for each launch that carries one
    int kernels = 0;                ///< launches of a product, all of them
    int none = 0;                   ///< launches of none
  };
  /// What the launches since the start of the test are billed for.
  Billed billed() {
    Billed b;
    for (std::uint32_t id = first_ + 1; id <= g_correlation; ++id) {
      const ProductTag tag = attribution_->map().record(CorrelationId{id}).product;
      if (!tag) {
        ++b.none;
        continue;
      }
      ++b.kernels;
      const Product p = attribution_->products().find(tag.product()).value();
      if (!tag.first()) continue;
      b.products.push_back(p);
      b.flop += p.flop();
    }
    first_ = g_correlation;
    return b;
  }
  double asked() {
    const StubLog now = log_();
    const double flop = now.flop - before_.flop;
    before_ = now;
    return flop;
  }
  void expect_exact(const Billed& b, std::size_t products) {
    EXPECT_EQ(b.products.size(), products);
    EXPECT_EQ(b.flop, asked());
    EXPECT_EQ(b.none, 0);
  }

  static ImportPatcher& patcher() {
    static auto* const one = new ImportPatcher;
    return *one;
  }

  void (**on_launch_)() = nullptr;
  int *kernels_ = nullptr, *fail_ = nullptr, *math_mode_ = nullptr;
  StubLog (*log_)() = nullptr;
  StubLog before_{};
  std::uint32_t first_ = 0;
  Counters counters_;
  Attribution* attribution_ = nullptr;
  HostLinks links_;
};

constexpr int kBf16 = 14, kFp32 = 0, kComplex = 4, kCompute = 68;

void call_everything(const Caller& c) {
  EXPECT_EQ(c.gemm(30, 50, 70, kBf16, kCompute, 1), 0);
  EXPECT_EQ(c.strided(1LL << 33, 3, 5, 7), 0);
  EXPECT_EQ(c.sgemm(11, 13, 17), 0);
  EXPECT_EQ(c.gemv(19, 23), 0);
  c.old(29, 31, 37);
  const int m[] = {4, 4, 4}, n[] = {10, 0, 30}, k[] = {6, 6, 6}, size[] = {1, 5, 2};
  EXPECT_EQ(c.grouped(m, n, k, size, 3), 0);
  StubObject desc{{}, 40}, a{{}, 40}, d{{}, 40};
  desc.value[3] = 1;
  a.value[0] = d.value[0] = 28;
  a.value[2] = 41;  // transposed: its rows are k
  a.value[3] = 1000;
  d.value[2] = 43;
  d.value[3] = 47;
  d.value[5] = 2;
  EXPECT_EQ(c.matmul(&desc, &a, &a, &d), 0);
}
constexpr std::size_t kEverything = 7;

class EachWay : public ImportPatcherTest, public ::testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(EachWay, EveryCallIsBilledExactly) {
  const Caller caller(kStubs + GetParam().first, GetParam().second);
  patcher().scan_if_changed();
  call_everything(caller);
  const Billed b = billed();
  expect_exact(b, kEverything);
  ASSERT_EQ(b.products.size(), kEverything);
  Product p;
  p.m = 30, p.n = 50, p.k = 70, p.operands = p.result = DType::kBf16, p.transpose_a = true;
  EXPECT_EQ(b.products[0], p);
  p = {};
  p.m = 1ULL << 33, p.n = 3, p.k = 5, p.batch = 7, p.operands = DType::kBf16, p.transpose_b = true;
  EXPECT_EQ(b.products[1], p);
  p = {};
  p.m = 11, p.n = 13, p.k = 17;
  EXPECT_EQ(b.products[2], p);
  p = {};
  p.m = 19, p.n = 1, p.k = 23, p.operands = p.result = DType::kFp64;
  EXPECT_EQ(b.products[3], p);
  p = {};
  p.m = 29, p.n = 31, p.k = 37, p.operands = p.result = DType::kFp64, p.transpose_a = true;
  EXPECT_EQ(b.products[4], p);
  p = {};
  p.m = 4, p.n = 10 + 2 * 30, p.k = 6, p.operands = p.result = DType::kBf16;
  EXPECT_EQ(b.products[5], p);
  p = {};
  p.m = 43, p.n = 47, p.k = 41, p.batch = 2, p.operands = p.result = DType::kFp8, p.transpose_a = true;
  EXPECT_EQ(b.products[6], p);
}

// A module that was closed and is opened again has new slots, mostly at the old addresses.
TEST_P(EachWay, OpenedAgainItIsBilledAgain) {
  for (int i = 0; i < 3; ++i) {
    const Caller caller(kStubs + GetParam().first, GetParam().second);
    patcher().scan_if_changed();
    call_everything(caller);
    expect_exact(billed(), kEverything);
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, EachWay,
                         ::testing::Values(std::pair{"libcaller_lazy.so", RTLD_LAZY | RTLD_LOCAL},
                                           std::pair{"libcaller_lazy.so", RTLD_NOW | RTLD_LOCAL},
                                           std::pair{"libcaller_now.so", RTLD_LAZY | RTLD_LOCAL},
                                           std::pair{"libcaller_now.so", RTLD_NOW | RTLD_GLOBAL},
                                           std::pair{"libcaller_no_plt.so", RTLD_LAZY | RTLD_LOCAL},
                                           std::pair{"libcaller_no_plt.so", RTLD_NOW | RTLD_LOCAL}),
                         [](const auto& one) {
                           std::string name =
                               std::string(one.param.first).substr(3, std::string(one.param.first).find('.') - 3);
                           return name + ((one.param.second & RTLD_LAZY) != 0 ? "_opened_lazy" : "_opened_now");
                         });

TEST_F(ImportPatcherTest, WhatIsCalledBeforeTheScanIsOfNoProduct) {
  const std::string copy = ::testing::TempDir() + "/libcaller_not_scanned.so";
  std::filesystem::copy_file(kStubs + "libcaller_now.so", copy, std::filesystem::copy_options::overwrite_existing);
  const Caller caller(copy);
  EXPECT_EQ(caller.gemm(3, 5, 7, kBf16, kCompute, 0), 0);
  const Billed before = billed();
  EXPECT_EQ(before.flop, 0);
  EXPECT_EQ(before.none, 1);
  (void)asked();
  patcher().scan_if_changed();
  EXPECT_EQ(caller.gemm(3, 5, 7, kBf16, kCompute, 0), 0);
  expect_exact(billed(), 1);
}

TEST_F(ImportPatcherTest, SeveralKernelsOfOneCallAreOneProduct) {
  const Caller caller(kStubs + "libcaller_now.so");
  patcher().scan_if_changed();
  *kernels_ = 3;
  EXPECT_EQ(caller.gemm(30, 50, 70, kBf16, kCompute, 0), 0);
  const Billed three = billed();
  EXPECT_EQ(three.kernels, 3);
  expect_exact(three, 1);
  *kernels_ = 0;  // nothing is launched: nothing is billed, whatever the call was for
  EXPECT_EQ(caller.gemm(30, 50, 70, kBf16, kCompute, 0), 0);
  *kernels_ = 1;
  on_launch();
  const Billed none = billed();
  EXPECT_EQ(none.kernels, 0);
  EXPECT_EQ(none.none, 1);
}

TEST_F(ImportPatcherTest, AFailedCallIsNoneAndItsReplacementIsOne) {
  const Caller caller(kStubs + "libcaller_now.so");
  patcher().scan_if_changed();
  *fail_ = 1;
  StubObject desc{{}, 40}, a{{}, 40}, d{{}, 40};
  a.value[3] = d.value[2] = d.value[3] = 8;
  a.value[0] = d.value[0] = kBf16;
  d.value[5] = 1;
  EXPECT_EQ(caller.matmul(&desc, &a, &a, &d), 15);
  EXPECT_EQ(caller.gemm(8, 8, 8, kBf16, kCompute, 0), 0);
  const Billed b = billed();
  EXPECT_EQ(b.flop, 2.0 * 8 * 8 * 8);
  expect_exact(b, 1);
}

TEST_F(ImportPatcherTest, SizesThatCannotBeReadAreUnknown) {
  const Caller caller(kStubs + "libcaller_now.so");
  patcher().scan_if_changed();
  StubObject desc{{}, 40}, a{{}, 40}, d{{}, 40};
  a.value[3] = d.value[2] = d.value[3] = 8;
  a.value[0] = d.value[0] = kBf16;
  d.value[5] = 1;
  d.value[8] = 2;  // a grouped layout: its sizes lie in device memory
  EXPECT_EQ(caller.matmul(&desc, &a, &a, &d), 0);
  d.known = 8;  // a library without grouped layouts
  EXPECT_EQ(caller.matmul(&desc, &a, &a, &d), 0);
  d.known = 4;
  EXPECT_EQ(caller.matmul(&desc, &a, &a, &d), 0);
  a.value[0] = 999;
  d.known = 40;
  EXPECT_EQ(caller.matmul(&desc, &a, &a, &d), 0);
  const Billed b = billed();
  ASSERT_EQ(b.products.size(), 4u);
  EXPECT_EQ(b.products[0].kind, Product::Kind::kUnsized);
  EXPECT_EQ(b.products[1].flop(), 2.0 * 8 * 8 * 8);
  EXPECT_EQ(b.products[2].kind, Product::Kind::kUnsized);
  EXPECT_EQ(b.products[3].kind, Product::Kind::kUnsized);
}

TEST_F(ImportPatcherTest, ThePeakFollowsTheTypesTheComputeTypeAndTheMathMode) {
  const Caller caller(kStubs + "libcaller_now.so");
  patcher().scan_if_changed();
  EXPECT_EQ(caller.gemm(8, 8, 8, kFp32, kCompute, 0), 0);
  EXPECT_EQ(caller.gemm(8, 8, 8, kFp32, 77, 0), 0);  // CUBLAS_COMPUTE_32F_FAST_TF32
  *math_mode_ = 3 | 16;                              // CUBLAS_TF32_TENSOR_OP_MATH and a flag
  EXPECT_EQ(caller.gemm(8, 8, 8, kFp32, kCompute, 0), 0);
  EXPECT_EQ(caller.gemm(8, 8, 8, kFp32, 69, 0), 0);  // CUBLAS_COMPUTE_32F_PEDANTIC
  EXPECT_EQ(caller.sgemm(8, 8, 8), 0);
  EXPECT_EQ(caller.gemm(8, 8, 8, kComplex, kCompute, 0), 0);
  EXPECT_EQ(caller.gemm(8, 8, 8, kBf16, kCompute, 0), 0);
  StubObject desc{{}, 40}, a{{}, 40}, d{{}, 40};
  a.value[3] = d.value[2] = d.value[3] = 8;
  d.value[5] = 1;
  a.value[0] = 33;  // CUDA_R_4F_E2M1
  desc.value[31] = 1;
  EXPECT_EQ(caller.matmul(&desc, &a, &a, &d), 0);
  const Billed b = billed();
  ASSERT_EQ(b.products.size(), 8u);
  const DType expected[] = {DType::kFp32, DType::kTf32, DType::kTf32, DType::kFp32,
                            DType::kTf32, DType::kTf32, DType::kBf16, DType::kNvfp4};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(b.products[i].operands, expected[i]) << i;
  EXPECT_EQ(b.products[5].flop(), 8.0 * 8 * 8 * 8);  // of complex numbers
}

TEST_F(ImportPatcherTest, GroupsOfDifferentSizesSumUp) {
  const Caller caller(kStubs + "libcaller_now.so");
  patcher().scan_if_changed();
  const int a[] = {3, 5, 7}, b[] = {11, 11, 11}, c[] = {2, 9, 4}, one[] = {1, 2, 3};
  EXPECT_EQ(caller.grouped(a, b, b, one, 3), 0);  // m alone differs
  EXPECT_EQ(caller.grouped(b, b, c, one, 3), 0);  // k alone
  EXPECT_EQ(caller.grouped(a, b, c, one, 3), 0);  // two of them
  expect_exact(billed(), 3);
}

TEST_F(ImportPatcherTest, EachThreadHasItsOwnCall) {
  const Caller caller(kStubs + "libcaller_now.so");
  patcher().scan_if_changed();
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t)
    threads.emplace_back([&caller, t] {
      for (int i = 1; i <= 500; ++i) EXPECT_EQ(caller.gemm(t, i, 64, kBf16, kCompute, 0), 0);
    });
  for (std::thread& t : threads) t.join();
  expect_exact(billed(), 2000);
}

TEST_F(ImportPatcherTest, AnInertProcessPassesCallsThrough) {
  const Caller caller(kStubs + "libcaller_now.so");
  patcher().scan_if_changed();
  host_switches().inert.store(true);  // as in a child of fork
  EXPECT_EQ(caller.gemm(8, 8, 8, kBf16, kCompute, 0), 0);
  host_switches().inert.store(false);
  const Billed b = billed();
  EXPECT_EQ(b.kernels, 0);
  EXPECT_EQ(b.none, 1);
}

TEST_F(ImportPatcherTest, FunctionsThatAreLookedUpAreHooked) {
  using GemmExCall = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                             const void*, void*, int, int, int, int);
  for (const char* kind : {"libcupy_lazy.so", "libcupy_now.so"}) {
    void* module = dlopen((kStubs + kind).c_str(), RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(module, nullptr) << dlerror();
    const auto look_next = find<void* (*)(const char*)>(module, "look_next");
    const char* const names[] = {"malloc", "dlsym", "stub_log", "cublasGemmEx"};
    void* next_before[std::size(names)];
    for (std::size_t i = 0; i < std::size(names); ++i) next_before[i] = look_next(names[i]);
    EXPECT_NE(next_before[0], nullptr);
    patcher().scan_if_changed();
    const auto look_up = find<void* (*)(void*, const char*)>(module, "look_up");
    void* library = dlopen((kStubs + "libcublas.so.99").c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto gemm = reinterpret_cast<GemmExCall>(look_up(library, "cublasGemmEx"));
    ASSERT_NE(gemm, nullptr);
    EXPECT_NE(reinterpret_cast<void*>(gemm), dlsym(library, "cublasGemmEx")) << kind;
    EXPECT_EQ(gemm(nullptr, 0, 0, 3, 5, 7, nullptr, nullptr, kBf16, 1, nullptr, kBf16, 1, nullptr, nullptr, kBf16, 1,
                   kCompute, -1),
              0);
    expect_exact(billed(), 1);
    // Everything else is as it was: other names, and look-ups whose answer depends on who asks.
    EXPECT_EQ(look_up(library, "cublasGetMathMode"), dlsym(library, "cublasGetMathMode"));
    EXPECT_EQ(look_up(library, "stub_log"), dlsym(library, "stub_log"));
    EXPECT_EQ(look_up(library, "cublasNoSuchFunction"), nullptr);
    EXPECT_NE(dlerror(), nullptr);
    for (std::size_t i = 0; i < std::size(names); ++i)
      EXPECT_EQ(look_next(names[i]), next_before[i]) << kind << names[i];
    dlclose(module);
  }
}

// Threads load, call and unload modules of every kind while another one scans all the time.
TEST_F(ImportPatcherTest, ModulesComeAndGoWhileItScans) {
  constexpr int kThreads = 8, kRounds = tests::sanitized_share(200);
  const char* const kinds[] = {"libcaller_lazy.so", "libcaller_now.so", "libcaller_no_plt.so"};
  std::vector<std::string> copies;
  for (int t = 0; t < kThreads; ++t) {
    copies.push_back(::testing::TempDir() + "/libcaller_" + std::to_string(t) + ".so");
    std::filesystem::copy_file(kStubs + kinds[t % 3], copies.back(), std::filesystem::copy_options::overwrite_existing);
  }
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const Caller caller(copies[static_cast<std::size_t>(t)], i % 2 != 0 ? RTLD_NOW : RTLD_LAZY);
        for (int n = 1; n <= 20; ++n) EXPECT_EQ(caller.gemm(t + 1, n, 16, kBf16, kCompute, 0), 0);
      }
      --running;
    });
  const std::uint32_t before = patcher().patched();
  while (running != 0) patcher().scan();
  for (std::thread& t : threads) t.join();
  EXPECT_GT(patcher().patched(), before);
  const Billed b = billed();
  EXPECT_EQ(b.kernels + b.none, kThreads * kRounds * 20);
  EXPECT_LE(b.flop, asked());  // what was called before its scan is missing; nothing is counted twice
  const Caller caller(copies[0]);
  patcher().scan_if_changed();
  EXPECT_EQ(caller.gemm(8, 8, 8, kBf16, kCompute, 0), 0);
  expect_exact(billed(), 1);
}

TEST(BlasEntries, AreSortedAndFoundByName) {
  const auto entries = blas_entries();
  EXPECT_GT(entries.size(), 90u);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(find_blas_entry(entries[i].name), &entries[i]);
    if (i != 0) {
      EXPECT_LT(std::string(entries[i - 1].name), entries[i].name);
    }
  }
  EXPECT_EQ(find_blas_entry("cublasCreate_v2"), nullptr);
  EXPECT_EQ(find_blas_entry("cublas"), nullptr);
}

}  // namespace
}  // namespace mfu

// What a hooked call of cuBLAS costs its thread, as a difference: the same function called directly and through its
// hook, in turns, in CPU time of the thread; and the search of 100 modules for slots.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cuda/blas/entries.h"
#include "cuda/blas/import_patcher.h"
#include "cuda/host_thread.h"
#include "tests/bench/cpu_time.h"

namespace mfu {
namespace {

using GemmEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
using Matmul = int (*)(void*, const void*, const void*, const void*, const void*, const void*, const void*, const void*,
                       const void*, const void*, void*, const void*, const void*, void*, std::size_t, void*);

// Functions of a library that does nothing.
[[gnu::noinline]] int gemm_ex(void*, int, int, int m, int, int, const void*, const void*, int, int, const void*, int,
                              int, const void*, void*, int, int, int, int) {
  benchmark::DoNotOptimize(m);
  return 0;
}
[[gnu::noinline]] int matmul(void*, const void* desc, const void*, const void*, const void*, const void*, const void*,
                             const void*, const void*, const void*, void*, const void*, const void*, void*, std::size_t,
                             void*) {
  benchmark::DoNotOptimize(desc);
  return 0;
}
/// As cublasLt keeps them: attributes by number, each copied with its size checked.
struct Attributes {
  std::uint64_t value[40] = {};
};
[[gnu::noinline]] int get_attribute(const Attributes* of, int which, void* to, std::size_t bytes,
                                    std::size_t* written) {
  if (of == nullptr || which < 0 || which >= 40 || bytes > 8) return 7;
  std::memcpy(to, &of->value[which], bytes);
  *written = bytes;
  return 0;
}

void* helper(const char* name) {
  return std::strstr(name, "Attribute") != nullptr ? reinterpret_cast<void*>(&get_attribute) : nullptr;
}

void activate() {
  static auto* const counters = new Counters;
  static auto* const attribution = new Attribution(*counters);
  static HostLinks links;
  links.attribution = attribution;
  host_switches().live.store(&links);
}

/// The median, over rounds, of what a call costs more through its hook. `call(function, i)` makes call i.
template <typename Function, typename Call>
void compare(benchmark::State& state, const char* name, Function function, Call call) {
  activate();
  const auto hook = reinterpret_cast<Function>(hook_for(*find_blas_entry(name), reinterpret_cast<void*>(function),
                                                        [](const char* other) { return helper(other); }));
  constexpr int kCalls = 20'000;
  std::vector<double> extra;
  for (auto _ : state) {
    const double t0 = thread_cpu_ns();
    for (int i = 0; i < kCalls; ++i) call(function, i);
    const double t1 = thread_cpu_ns();
    for (int i = 0; i < kCalls; ++i) call(hook, i);
    const double t2 = thread_cpu_ns();
    extra.push_back(((t2 - t1) - (t1 - t0)) / kCalls);
  }
  state.counters["extra_ns"] = median(extra);
}

void BM_GemmEx(benchmark::State& state) {
  const int type = static_cast<int>(state.range(0));
  compare(state, "cublasGemmEx", &gemm_ex, [type](GemmEx f, int i) {
    // The products of a model's layer, in turns.
    benchmark::DoNotOptimize(f(nullptr, 1, 0, 4096, 512, 1024 * (1 + i % 8), nullptr, nullptr, type, 1, nullptr, type,
                               1, nullptr, nullptr, type, 1, 68, -1));
  });
}
BENCHMARK(BM_GemmEx)->ArgName("type")->Arg(14)->MinTime(0.5);

/// What handing 19 arguments on costs by itself, in a process whose library has given up.
void BM_GemmExInert(benchmark::State& state) {
  host_switches().inert = true;
  BM_GemmEx(state);
  host_switches().inert = false;
}
BENCHMARK(BM_GemmExInert)->ArgName("type")->Arg(14)->MinTime(0.5);

void BM_LtMatmul(benchmark::State& state) {
  static Attributes desc, a, d[8];
  desc.value[3] = 1;
  a.value[0] = 14;
  a.value[2] = 4096;
  for (std::uint64_t i = 0; i < 8; ++i) {
    d[i].value[0] = 14;
    d[i].value[2] = 1024 * (1 + i);
    d[i].value[3] = 512;
    d[i].value[5] = 1;
  }
  compare(state, "cublasLtMatmul", &matmul, [](Matmul f, int i) {
    benchmark::DoNotOptimize(f(nullptr, &desc, nullptr, nullptr, &a, nullptr, &a, nullptr, nullptr, &d[i % 8], nullptr,
                               &d[i % 8], nullptr, nullptr, 0, nullptr));
  });
}
BENCHMARK(BM_LtMatmul)->MinTime(0.5);

/// What the drain asks at every tick, and what it does when a module came.
void BM_NoModuleCame(benchmark::State& state) {
  static auto* const patcher = new ImportPatcher;
  patcher->scan_if_changed();
  for (auto _ : state) patcher->scan_if_changed();
}
BENCHMARK(BM_NoModuleCame);

/// The first search, in a process with 100 modules more, all of which call the library.
void BM_FirstScan(benchmark::State& state) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("mfu-product-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (int i = 0; i < 100; ++i) {
    const auto copy = folder / ("libcaller_" + std::to_string(i) + ".so");
    std::filesystem::copy_file(MFU_BLAS_STUBS "/libcaller_now.so", copy,
                               std::filesystem::copy_options::overwrite_existing);
    // The copies look for the library beside them.
    if (i == 0) ::dlopen(MFU_BLAS_STUBS "/libcublas.so.99", RTLD_NOW | RTLD_LOCAL);
    if (::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) state.SkipWithError(::dlerror());
  }
  for (auto _ : state) {
    state.PauseTiming();
    auto patcher = std::make_unique<ImportPatcher>();
    state.ResumeTiming();
    patcher->scan();
    state.counters["slots"] = patcher->patched();
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(BM_FirstScan)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace mfu

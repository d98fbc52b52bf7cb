// Cost of classing one kernel name: once per distinct name in a run, inside CUPTI's delivery callback.
#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <string_view>

#include "core/kernels/kernel_traits.h"

namespace {

constexpr auto kUsual = std::to_array<std::string_view>({
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, true, "
    "false>(flash::Flash_fwd_params)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, "
    "3ul>>"
    "(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>>>(T1::Params)",
});

void BM_UsualNames(benchmark::State& state) {
  std::size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(mfu::classify_kernel(kUsual[i++ % kUsual.size()]));
}
BENCHMARK(BM_UsualNames);

// Names of 8 KB: CUTLASS's longest templates, and the worst that could be made up.
void BM_LongestTemplate(benchmark::State& state) {
  std::string name = "void cutlass::device_kernel<";
  while (name.size() < 8192) name += "cute::tuple<cute::C<1>, cute::C<0>>, ";
  name += ">(int)";
  for (auto _ : state) benchmark::DoNotOptimize(mfu::classify_kernel(name));
}
BENCHMARK(BM_LongestTemplate);

void BM_Hostile(benchmark::State& state) {
  const std::string name(8192, 'm');
  for (auto _ : state) benchmark::DoNotOptimize(mfu::classify_kernel(name));
}
BENCHMARK(BM_Hostile);

}  // namespace

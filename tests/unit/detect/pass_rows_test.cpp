// Rows of a pass from made-up steps of known models: what agrees is told, what does not is not.
#include "core/detect/pass_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace mfu {
namespace {

constexpr std::string_view kLayerNorm =
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)";
constexpr std::string_view kRmsNorm = "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*, long)";
constexpr std::string_view kAddNorm =
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)";
constexpr std::string_view kRope = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)";
constexpr std::string_view kWrite =
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(x const*)";

/// The launches of a step.
class Step {
 public:
  Step& add(std::string_view kernel, Grid grid, int times = 1) {
    launches_.insert(launches_.end(), static_cast<std::size_t>(times), {role_of_kernel(kernel), grid});
    return *this;
  }
  Step& add(std::string_view kernel, std::uint32_t x, int times = 1) { return add(kernel, Grid{x, 1, 1}, times); }

  [[nodiscard]] std::optional<Rows> rows() const {
    PassRows pass;
    for (const auto& [traits, grid] : launches_) pass.add(traits, grid);
    return pass.rows();
  }
  /// 0: no answer
  [[nodiscard]] std::int64_t count() const {
    const auto found = rows();
    return found ? found->rows : 0;
  }
  template <typename Change>
  Step& change(Change change) {
    change(launches_);
    return *this;
  }

 private:
  std::vector<std::pair<KernelTraits, Grid>> launches_;
};

/// Qwen3's forward pass: per layer two norms of rows, one per query head and one per key head, and one at the end.
Step qwen3(std::uint32_t rows, std::uint32_t layers, std::uint32_t heads, std::uint32_t kv_heads, int passes = 1) {
  const int l = static_cast<int>(layers) * passes;
  return Step().add(kRmsNorm, rows, 2 * l + passes).add(kRmsNorm, rows * heads, l).add(kRmsNorm, rows * kv_heads, l);
}

TEST(PassRows, TheKernelsThatHaveOneBlockPerRow) {
  const auto axis = [](std::string_view name) { return role_of_kernel(name).row_axis; };
  for (const std::string_view name :
       {kLayerNorm, kRmsNorm, kAddNorm, kRope, kWrite,
        std::string_view("void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2)"),
        std::string_view("void at::native::(anonymous namespace)::LayerNormForwardCUDAKernel<float, float>(long)"),
        std::string_view("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)"),
        std::string_view("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)"),
        std::string_view("void tensorrt_llm::kernels::generalRmsNorm<__half, signed char, true>(__half const*)"),
        std::string_view("_rms_norm_forward_kernel"), std::string_view("_rms_layernorm_forward"),
        std::string_view("_layer_norm_fwd_1pass_kernel"), std::string_view("_triton_rope"),
        std::string_view("_triton_mrope_forward")})
    EXPECT_EQ(axis(name), RowAxis::kX) << name;
  EXPECT_EQ(axis("void cuApplyLayerNorm<float, float, float>(float*, float*)"), RowAxis::kY);
  EXPECT_EQ(axis("reshape_and_cache_kernel_flash"), RowAxis::kXTiled);
  EXPECT_EQ(axis("set_mla_kv_buffer_kernel"), RowAxis::kXTiled);
  EXPECT_EQ(axis("void flashinfer::AppendPagedKVCacheDecodeKernel<128u, 8u, __half, int>(X)"), RowAxis::kX);
  EXPECT_EQ(axis("void flashinfer::NVFP4QuantizeAppendPagedKVCacheKernel<128u, __half, int>(X)"), RowAxis::kXTiled);
  for (const std::string_view name :
       {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int>(x)", "_block_rms_norm_forward_kernel",
        "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float>(x)",
        "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float)",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_rms_norm_0", "triton_per_fused_native_layer_norm_1",
        "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<x>(y)",
        "void flashinfer::norm::QKRMSNormKernel<8u, __half>(__half*)", "void other::rms_norm_kernel<float>(float*)",
        "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float, float>(float const*)",
        "void mine<vectorized_layer_norm_kernels>(float*)", "nvjet_tst_192x192", ""})
    EXPECT_EQ(axis(name), RowAxis::kNone) << name;
}

TEST(PassRows, OneKindThatAgrees) {
  const auto rows = Step().add(kLayerNorm, 2048, 25).rows();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->rows, 2048);
  EXPECT_EQ(rows->from, KernelRole::kNorm);
  EXPECT_EQ(rows->launches, 25u);
}

TEST(PassRows, NothingWhereNothingIsSaid) {
  EXPECT_FALSE(Step().rows());
  EXPECT_FALSE(Step().add(kLayerNorm, 2048).rows()) << "one launch agrees with itself only";
  EXPECT_FALSE(Step().add(kLayerNorm, Grid{}, 25).rows()) << "grids are not known";
  EXPECT_FALSE(Step().add(kLayerNorm, Grid{64, 32, 1}, 25).rows());
  EXPECT_FALSE(Step().add("nvjet_tst_192x192", 2048, 25).add("triton_per_fused_native_layer_norm_1", 2048, 25).rows());
  EXPECT_FALSE(Step().add("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(x)", 64, 53).rows());
}

TEST(PassRows, NormsOfHeadsDoNotMislead) {
  EXPECT_EQ(qwen3(4096, 36, 32, 8).count(), 4096);
  EXPECT_EQ(qwen3(1, 36, 32, 8).count(), 1) << "decode of one sequence";
  EXPECT_EQ(qwen3(37, 28, 16, 16).count(), 37) << "as many heads for keys";
  EXPECT_EQ(qwen3(37, 28, 16, 1).count(), 37) << "a single key head: its norms look like those of rows";
  // Gemma 3: four norms of rows per layer.
  EXPECT_EQ(Step().add(kRmsNorm, 777, 4 * 26 + 1).add(kRmsNorm, 777 * 4, 26).add(kRmsNorm, 777, 26).count(), 777);
}

TEST(PassRows, PassesAndRecomputationOnlyAddLaunches) {
  const auto once = qwen3(512, 24, 16, 8).rows();
  const auto eight_times = qwen3(512, 24, 16, 8, 8).rows();
  ASSERT_TRUE(once && eight_times);
  EXPECT_EQ(once->rows, 512);
  EXPECT_EQ(eight_times->rows, 512);
  EXPECT_EQ(once->launches, 49u);
  EXPECT_EQ(eight_times->launches, 8 * 49u);
  // Every layer again in the backward pass, but not the norm after the last.
  const auto recomputed =
      Step().add(kRmsNorm, 512, 4 * (4 * 24 + 1)).add(kRmsNorm, 8192, 4 * 48).add(kRmsNorm, 4096, 4 * 48).rows();
  ASSERT_TRUE(recomputed);
  EXPECT_EQ(recomputed->rows, 512);
  EXPECT_EQ(recomputed->launches, 4 * 97u);
}

TEST(PassRows, SomeOtherNormsAreLetPass) {
  // BERT's pooler and a head over a few positions.
  EXPECT_EQ(Step().add(kLayerNorm, 16 * 512, 25).add(kLayerNorm, 16 * 77).count(), 16 * 512);
  EXPECT_EQ(Step().add(kLayerNorm, 16 * 512, 25).add(kLayerNorm, 16 * 77, 5).count(), 0);
}

TEST(PassRows, TwoModelsInOneStepAreNoPass) {
  // A vision tower of 32 layers before a language model of 28.
  EXPECT_EQ(Step().add(kRmsNorm, 1024, 65).add(kRmsNorm, 700, 57).count(), 0);
  EXPECT_EQ(Step().add(kRmsNorm, 256, 65).add(kRmsNorm, 2048, 57).count(), 0) << "a multiple by chance";
  EXPECT_EQ(Step().add(kRmsNorm, 2048, 65).add(kRmsNorm, 256, 57).count(), 0);
  // The language model's cache writes say which is which.
  EXPECT_EQ(Step().add(kRmsNorm, 1024, 65).add(kRmsNorm, 700, 57).add(kWrite, 700, 28).count(), 700);
}

TEST(PassRows, MicroStepsOfManyLengthsAreNoPass) {
  Step step;
  for (std::uint32_t i = 0; i < 40; ++i) step.add(kLayerNorm, 1000 + 7 * i, 25);
  EXPECT_EQ(step.count(), 0);
  step.add(kLayerNorm, 1000, 100'000);
  EXPECT_EQ(step.count(), 0) << "what did not fit is not forgotten";
  step.add(kRope, 512, 12);
  EXPECT_EQ(step.count(), 512);
}

TEST(PassRows, KindsMustNotContradictEachOther) {
  const auto all = Step().add(kAddNorm, 888, 72).add(kRmsNorm, 888).add(kRope, 888, 36).add(kWrite, 888, 36).rows();
  ASSERT_TRUE(all);
  EXPECT_EQ(all->rows, 888);
  EXPECT_EQ(all->from, KernelRole::kCacheWrite);
  EXPECT_EQ(all->launches, 36u);
  const auto without_cache = Step().add(kAddNorm, 888, 72).add(kRope, 888, 36).rows();
  ASSERT_TRUE(without_cache);
  EXPECT_EQ(without_cache->from, KernelRole::kRope);
  EXPECT_EQ(Step().add(kAddNorm, 444, 72).add(kRope, 888, 36).count(), 0) << "sequence parallel norms";
}

TEST(PassRows, PaddingOfGraphsIsNoWork) {
  for (const auto& [written, padded] : {std::pair{37u, 40u}, {3u, 4u}, {5u, 8u}, {17u, 24u}, {256u, 256u}, {1u, 1u}})
    EXPECT_EQ(Step().add(kAddNorm, padded, 72).add(kRope, padded, 36).add(kWrite, written, 36).count(), written);
  EXPECT_EQ(Step().add(kAddNorm, 40, 72).add(kWrite, 20, 36).count(), 0) << "20 rows fill a graph of 24";
  EXPECT_EQ(Step().add(kAddNorm, 40, 72).add(kWrite, 41, 36).count(), 0);
}

TEST(PassRows, ADraftModelIsASmallPart) {
  EXPECT_EQ(Step().add(kWrite, 64, 36).add(kWrite, 16, 3).count(), 64);
  EXPECT_EQ(Step().add(kWrite, 64, 36).add(kWrite, 16, 36).count(), 0);
}

TEST(PassRows, RowsAlongYAndTiledRows) {
  const std::string_view apex = "void cuApplyLayerNorm<float, float, float>(float*, float*)";
  EXPECT_EQ(Step().add(apex, Grid{1, 8192, 1}, 49).count(), 8192);
  EXPECT_EQ(Step().add(apex, Grid{1, 65'535, 1}, 49).count(), 0) << "as many or more";
  EXPECT_EQ(Step().add(apex, Grid{8192, 1, 1}, 49).count(), 0);
  EXPECT_EQ(Step().add("reshape_and_cache_kernel_flash", Grid{300, 4, 1}, 32).count(), 300);
}

TEST(PassRows, OrderDoesNotMatterAndRowsScale) {
  const auto seed = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto up_to = [&random](std::uint32_t n) { return std::uniform_int_distribution<std::uint32_t>(1, n)(random); };
  for (int i = 0; i < 200; ++i) {
    const std::uint32_t rows = up_to(5000), layers = 8 + up_to(60), kv_heads = up_to(8), heads = kv_heads * up_to(8);
    const int passes = static_cast<int>(up_to(4));
    Step step = qwen3(rows, layers, heads, kv_heads, passes);
    if (i % 2 == 0) step.add(kRope, rows, static_cast<int>(layers) * passes);
    if (i % 3 == 0) step.add("nvjet_tst_192x192", up_to(1000), 300);
    const auto sorted = step.rows();
    ASSERT_TRUE(sorted) << rows << ' ' << layers << ' ' << heads << ' ' << kv_heads << ' ' << passes;
    EXPECT_EQ(sorted->rows, rows);
    step.change([&random](auto& launches) { std::shuffle(launches.begin(), launches.end(), random); });
    const auto shuffled = step.rows();
    ASSERT_TRUE(shuffled);
    EXPECT_EQ(shuffled->rows, rows);
    EXPECT_EQ(shuffled->from, sorted->from);
    EXPECT_EQ(shuffled->launches, sorted->launches);
    const std::uint32_t factor = up_to(100);
    step.change([factor](auto& launches) {
      for (auto& [traits, grid] : launches) grid.x *= factor;
    });
    EXPECT_EQ(step.count(), static_cast<std::int64_t>(rows) * factor);
  }
}

/// Whatever is fed in any order gives the same answer, right or none.
TEST(PassRows, OrderDoesNotMatterForAnything) {
  const auto seed = static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int answered = 0;
  for (int i = 0; i < 500; ++i) {
    Step step;
    const int kinds = 1 + static_cast<int>(random() % 30);
    for (int k = 0; k < kinds; ++k) {
      const std::string_view kernel = std::array{kRmsNorm, kRope, kWrite}[random() % 3];
      step.add(kernel, static_cast<std::uint32_t>(1 + random() % 6), static_cast<int>(1 + random() % 40));
    }
    const auto rows = step.rows();
    answered += rows.has_value();
    step.change([&random](auto& launches) { std::shuffle(launches.begin(), launches.end(), random); });
    const auto shuffled = step.rows();
    ASSERT_EQ(rows.has_value(), shuffled.has_value());
    if (rows) {
      EXPECT_EQ(rows->rows, shuffled->rows);
      EXPECT_EQ(rows->launches, shuffled->launches);
    }
  }
  EXPECT_GT(answered, 0);
}

}  // namespace
}  // namespace mfu

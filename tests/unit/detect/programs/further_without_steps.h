// Programs in which nothing repeats that a step could be.
#pragma once

#include <cstdint>
#include <string>

#include "tests/unit/detect/programs/writer.h"

namespace mfu::programs {

inline void further_without_steps(Writer& w) {
  Dice& d = w.dice;
  switch (d.between(0, 7)) {
    case 0: {
      w.out.what = "a notebook";
      for (int cell = 0; cell < 500; ++cell)
        for (std::uint32_t i = d.between(1, 30); i > 0; --i) {
          const std::uint32_t what = d.between(0, 9);
          if (what == 0)
            w.to_host();
          else if (what == 1)
            w.to_device();
          else if (what < 5)
            w.gemm(d.between(0, 200));
          else
            w.elementwise("Functor" + std::to_string(d.between(0, 60)));
        }
      break;
    }
    case 1: {
      w.out.what = "kernels are tuned";
      for (std::uint32_t choice = 0; choice < 300; ++choice) {
        w.memset();
        for (std::uint32_t r = d.between(3, 60); r > 0; --r) {
          w.kernel("triton_tem_fused_mm_" + std::to_string(choice));
          if (d.chance(0.5)) w.memset();
        }
        if (d.chance(0.3)) w.to_host();
      }
      break;
    }
    case 2: {
      w.out.what = "images are augmented";
      for (int image = 0; image < 3000; ++image)
        for (std::uint32_t i = d.between(1, 6); i > 0; --i) w.kernel("augment_" + std::to_string(d.between(0, 11)));
      break;
    }
    case 3: {
      w.out.what = "collectives of growing sizes";
      for (std::uint32_t size = 0; size < 60; ++size) {
        const std::uint32_t times = d.between(5, 40);
        for (std::uint32_t r = 0; r < times; ++r)
          w.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
        if (d.chance(0.8)) w.to_host();
        w.memset(d.between(1, 3));
      }
      break;
    }
    case 4: {
      w.out.what = "paths of chance";
      for (int path = 0; path < 400; ++path) {
        w.kernel("generate_seed_pseudo(curandStateXORWOW*)");
        for (std::uint32_t i = d.between(1, 90); i > 0; --i) w.kernel("advance_path(float*)");
        if (d.chance(0.5)) w.kernel("retire_path(float*)");
      }
      break;
    }
    case 5: {
      w.out.what = "a checkpoint is converted";
      for (std::uint32_t p = 0; p < 2500; ++p) {
        w.to_device();
        if (d.chance(0.4)) w.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
        if (d.chance(0.4))
          w.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>()");
        w.unrolled("bfloat16_copy_kernel_cuda");
        if (d.chance(0.3)) w.to_host();
      }
      break;
    }
    case 6: {
      w.out.what = "kernels are timed";
      const bool clears_cache = d.chance(0.5);
      for (std::uint32_t k = 0; k < 300; ++k) {
        for (std::uint32_t r = d.between(10, 40); r > 0; --r) {
          w.kernel("gemm_variant_" + std::to_string(k));
          if (clears_cache) w.memset();
        }
        w.to_host();
      }
      break;
    }
    default: {
      w.out.what = "an iterative solver";
      const std::uint32_t products = d.between(1, 3);
      for (int i = 0; i < 4000; ++i) {
        for (std::uint32_t p = 0; p < products; ++p)
          w.kernel("void cusparse::csrmv_v3_kernel<int, int, double, double, double>()");
        w.kernel("void dot_kernel<double, 128, 0, cublasDotParams<cublasGemvTensor<double const>>>()");
        w.kernel("void reduce_1Block_kernel<double, 128, 7, cublasGemvTensorStridedBatched<double>>()");
        for (int a = 0; a < 3; ++a) w.kernel("void axpy_kernel_val<double, double>(cublasAxpyParamsVal<double>)");
      }
      break;
    }
  }
}

}  // namespace mfu::programs

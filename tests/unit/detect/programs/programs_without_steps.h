// Programs that repeat something which is no step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/unit/detect/programs/writer.h"

namespace mfu::programs {

/// Programs that repeat without a step: loops over parameters, layer-wise quantisation, stencils, benchmarks.
inline void without_steps(Writer& w) {
  Dice& d = w.dice;
  switch (d.between(0, 6)) {
    case 0: {
      w.out.what = "benchmark of an optimizer";
      const std::uint32_t chunks = d.between(3, 40);
      const std::string_view of = d.chance(0.5) ? "FusedAdamMathFunctor" : "PointwiseOpScalarFunctor";
      for (int i = 0; i < 300; ++i) {
        w.foreach ("BinaryOpScalarFunctor", chunks);
        w.foreach (of, chunks);
        if (i % 10 == 9) w.to_host();
      }
      break;
    }
    case 1: {
      w.out.what = "stencil";
      const std::uint32_t fields = d.between(2, 9);
      for (int i = 0; i < 3000; ++i) {
        for (std::uint32_t f = 0; f < fields; ++f)
          w.kernel("stencil_3d_" + std::to_string(f) + "(double*, double const*)");
        if (i % 100 == 99) w.to_host();
      }
      break;
    }
    case 2: {
      w.out.what = "quantisation, layer by layer";
      const std::uint32_t columns = d.between(30, 200), batches = d.between(4, 16);
      for (std::uint32_t layer = 0; layer < 24; ++layer) {
        for (std::uint32_t b = 0; b < batches; ++b) {
          w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
          for (std::uint32_t g = 0; g < 7; ++g) w.gemm(900 + g);
          w.elementwise("silu_kernel");
        }
        w.kernel("void potrf_alg2_set_info(int, int, int*)");
        for (std::uint32_t c = 0; c < columns; ++c) {
          w.elementwise("round_kernel_cuda");
          w.elementwise("clamp_scalar_kernel_impl");
          w.elementwise("CUDAFunctor_add<float>");
          w.gemm(950);
        }
      }
      break;
    }
    case 3: {
      w.out.what = "benchmark of matmuls";
      for (std::uint32_t shape = 0; shape < 60; ++shape)
        for (std::uint32_t r = d.between(20, 200); r > 0; --r) {
          w.gemm(2000 + shape);
          if (d.chance(0.02)) w.memset();
        }
      break;
    }
    case 4: {
      w.out.what = "loop over parameters";
      const std::uint32_t kinds = d.between(2, 8);
      for (int i = 0; i < 4000; ++i)
        for (std::uint32_t k = 0; k < kinds; ++k) w.kernel("parameter_op_" + std::to_string(k));
      break;
    }
    case 5: {
      w.out.what = "dataframes";
      for (int q = 0; q < 300; ++q) {
        for (std::uint32_t i = d.between(3, 60); i > 0; --i)
          w.kernel("void cub::DeviceRadixSortOnesweepKernel_" + std::to_string(d.between(0, 40)));
        if (d.chance(0.6)) w.to_host(d.between(1, 3));
        if (d.chance(0.3)) w.to_device(d.between(1, 5));
      }
      break;
    }
    default: {
      w.out.what = "weights are loaded and converted";
      for (int p = 0; p < 3000; ++p) {
        w.to_device();
        w.unrolled("direct_copy_kernel_cuda");
        if (p % 7 == 0) w.kernel("void vllm::gptq_marlin_repack_kernel<256, 4, false>()");
        if (p % 9 == 0) w.elementwise("FillFunctor<float>");
      }
      break;
    }
  }
}

}  // namespace mfu::programs

// hot. The matrix product of a kernel that a program launches by itself, where name and parameters say all of it.
#pragma once

#include <string_view>

#include "core/base/product.h"

namespace mfu {

/// The product of the kernel that is about to be launched. False for all that are not known.
///
/// DeepGEMM compiles a kernel for each size of a model's matrices, by default with n and k of it; m and the processors
/// that it runs on, hence its grid, are of no help. All three are parameters of each launch, one after the other, 32
/// bits wide: `sm90_fp8_gemm_1d2d_impl(sfb, grouped_layout, m, n, k, ...)`, `sm90_fp8_gemm_1d1d_impl(a, b,
/// grouped_layout, tensor_maps, m, n, k, ...)`, the others `(grouped_layout, m, n, k, ...)`; deepseek-ai/DeepGEMM
/// deep_gemm/include/deep_gemm/impls/*.cuh, v2.1.0 to 54e22612. Read only where the parameters have the sizes that the
/// name has. Rows of grouped products (mixtures of experts) are in device memory: not known.
///
/// \param symbol as the driver knows it; may be null.
/// \param parameters pointers to the values, as cuLaunchKernel takes them; may be null.
[[nodiscard]] bool product_of_kernel(const char* symbol, const void* const* parameters, Product& product) noexcept;

/// Of a loaded module's path, or a kernel that ran: whether it is DeepGEMM's, as far as the name says. Its modules are
/// deep_gemm/_C.*.so or deep_gemm_cpp.*.so (its setup.py). Until there is one, no launch is asked anything.
[[nodiscard]] inline bool may_launch_products(std::string_view name) noexcept {
  return name.find("deep_gemm") != std::string_view::npos;
}

/// The question for every launch then: whether its name begins as theirs do, `_ZN9deep_gemm`, and few others.
[[nodiscard]] inline bool may_be_product(const char* symbol) noexcept {
  return symbol != nullptr && symbol[0] == '_' && symbol[1] == 'Z' && symbol[2] == 'N' && symbol[3] == '9' &&
         symbol[4] == 'd';
}

}  // namespace mfu

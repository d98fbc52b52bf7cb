#include <algorithm>
#include <array>
#include <cctype>

#include "core/kernels/kernel_class.h"

namespace mfu {

namespace {

struct Hint {
  std::string_view word;  ///< lower case
  DType dtype;
};

// In order: a kernel with 8-bit operands names its 16-bit output too, and one with 16-bit operands its 32-bit sum.
// Sources: cuBLAS (s16816gemm_bf16, nvjet_tst_..., hgemm, sgemm, dgemm, imma), CUTLASS (tensorop type names),
// TransformerEngine and DeepGEMM (e4m3, fp8), vLLM and Triton kernels (fp8, bf16).
constexpr std::array kHints{
    Hint{"nvfp4", DType::kFp4},   Hint{"mxfp4", DType::kFp4}, Hint{"e2m1", DType::kFp4},
    Hint{"e4m3", DType::kFp8},    Hint{"e5m2", DType::kFp8},  Hint{"fp8", DType::kFp8},
    Hint{"float8", DType::kFp8},  Hint{"imma", DType::kInt8}, Hint{"s8_", DType::kInt8},
    Hint{"int8", DType::kInt8},   Hint{"bf16", DType::kBf16}, Hint{"bfloat16", DType::kBf16},
    Hint{"tf32", DType::kTf32},   Hint{"fp16", DType::kFp16}, Hint{"f16", DType::kFp16},
    Hint{"hgemm", DType::kFp16},  Hint{"half", DType::kFp16}, Hint{"hmma", DType::kFp16},
    Hint{"dgemm", DType::kFp64},  Hint{"f64", DType::kFp64},  Hint{"sgemm", DType::kFp32},
    Hint{"f32f32", DType::kFp32}, Hint{"ffma", DType::kFp32},
};

}  // namespace

std::optional<DType> matmul_dtype(std::string_view demangled) noexcept {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (const Hint& hint : kHints)
    if (std::search(demangled.begin(), demangled.end(), hint.word.begin(), hint.word.end(), same) != demangled.end())
      return hint.dtype;
  return std::nullopt;
}

}  // namespace mfu

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
// Sources: cuBLAS (s16816gemm_bf16, nvjet_tst_..., hgemm, sgemm, dgemm, imma, i8816), CUTLASS (tensorop type names, and
// 884/1688 with d, i or s before them), TransformerEngine and DeepGEMM (e4m3, fp8), vLLM and Triton kernels (fp8,
// bf16). `s1688gemm` and `s1684gemm` without a type word multiply TF32 on Ampere and later; Volta's and Turing's
// `s884gemm` and `s1688gemm` always name fp16, which stands before them here.
constexpr std::array kHints{
    Hint{"nvfp4", DType::kFp4},       Hint{"mxfp4", DType::kFp4},       Hint{"e2m1", DType::kFp4},
    Hint{"e4m3", DType::kFp8},        Hint{"e5m2", DType::kFp8},        Hint{"fp8", DType::kFp8},
    Hint{"float8", DType::kFp8},      Hint{"nvjet_qq", DType::kFp8},    Hint{"nvjet_sm100_qq", DType::kFp8},
    Hint{"nvjet_tst", DType::kBf16},  Hint{"0_tst_", DType::kBf16},     Hint{"nvjet_hsh", DType::kFp16},
    Hint{"0_hsh_", DType::kFp16},     Hint{"imma", DType::kInt8},       Hint{"s8_", DType::kInt8},
    Hint{"int8", DType::kInt8},       Hint{"i8i32", DType::kInt8},      Hint{"i8816gemm", DType::kInt8},
    Hint{"i16832gemm", DType::kInt8}, Hint{"bf16", DType::kBf16},       Hint{"bfloat16", DType::kBf16},
    Hint{"tf32", DType::kTf32},       Hint{"fp16", DType::kFp16},       Hint{"f16", DType::kFp16},
    Hint{"hgemm", DType::kFp16},      Hint{"half", DType::kFp16},       Hint{"hmma", DType::kFp16},
    Hint{"h884gemm", DType::kFp16},   Hint{"h1688gemm", DType::kFp16},  Hint{"h16816gemm", DType::kFp16},
    Hint{"s884gemm", DType::kFp16},   Hint{"s1688gemm", DType::kTf32},  Hint{"s1684gemm", DType::kTf32},
    Hint{"s1688cudnn", DType::kTf32}, Hint{"s1688fprop", DType::kTf32}, Hint{"s1688dgrad", DType::kTf32},
    Hint{"s1688wgrad", DType::kTf32}, Hint{"d884gemm", DType::kFp64},   Hint{"d1688gemm", DType::kFp64},
    Hint{"dgemm", DType::kFp64},      Hint{"f64", DType::kFp64},        Hint{"sgemm", DType::kFp32},
    Hint{"f32f32", DType::kFp32},     Hint{"ffma", DType::kFp32},
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

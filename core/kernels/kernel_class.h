// What kind of work a kernel does, by its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/dtype.h"

namespace mfu {

enum class KernelClass : std::uint8_t {
  kGemm,       ///< matrix multiply, grouped, batched, split-K and convolution as implicit GEMM
  kAttention,  ///< fused attention, forward or backward, prefill or decode
  kComm,       ///< NCCL, NVSHMEM, DeepEP, multimem and custom all-reduce kernels
  kOther,      ///< every other compute kernel
};

/// `gemm`, `attention`, `comm`, `other`.
[[nodiscard]] std::string_view name(KernelClass c) noexcept;

/// Class of a kernel by its demangled (or plain) name. Pure; microseconds; once per distinct name.
[[nodiscard]] KernelClass classify_kernel(std::string_view demangled) noexcept;

/// dtype of the operands of a matmul kernel, where its name says (`..._bf16_...`, `hgemm`, `e4m3`); none otherwise.
[[nodiscard]] std::optional<DType> matmul_dtype(std::string_view demangled) noexcept;

/// True for the classes whose time the waterfall calls matmul: kGemm and kAttention.
[[nodiscard]] bool is_matmul(KernelClass c) noexcept;

}  // namespace mfu

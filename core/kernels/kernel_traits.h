// A kernel's class of work, its role in a training step or a serving iteration and the dtype of its operands, by its
// name. Pure functions; once per distinct name, never per launch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/activity_record.h"
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

/// Of the time that matmul kernels ran by dtype of their operands: the dtype of most FLOP, by the usual ratio of rates
/// (NVIDIA's data sheets of A100 and H100). None: none ran.
[[nodiscard]] std::optional<DType> dtype_of_most(const std::array<DurationNs, kDTypes>& ran) noexcept;

/// True for the classes whose time the waterfall calls matmul: kGemm and kAttention.
[[nodiscard]] bool is_matmul(KernelClass c) noexcept;

/// Where in a step or an iteration a launch is: a finer division than KernelClass, made for the step detector alone.
enum class KernelRole : std::uint8_t {
  kOther,
  kGraph,  ///< a whole CUDA graph
  kCopyToDevice,
  kCopyToHost,
  kCopyWithin,
  kMemset,
  kComm,
  kOptimizer,  ///< names the update rule itself: Adam, SGD, LAMB, or the loss scaler around it
  kForeach,    ///< arithmetic over lists of tensors: an optimizer in training, but serving uses it for copies too
  kAttentionBackward,
  kAttentionDecode,
  kAttentionPrefill,  ///< paged and causal over variable lengths: mixed batches run it too
  kAttention,
  kConvBackward,
  kGemm,  ///< convolutions included; never says forward or backward
  kNormBackward,
  kNorm,
  kSoftmaxBackward,
  kSoftmax,
  kLoss,
  kEmbeddingBackward,
  kEmbedding,
  kSampling,
  kRouting,  ///< of mixture-of-experts layers
  kQuantise,
  kCacheWrite,
  kRope,
  kElementwiseBackward,
  kElementwise,
  kReduce,
  kIndex,
  kSort,
  kRandom,
  kPool,
};

/// Facts that follow from a class, as bits.
enum TraitFlag : std::uint8_t {
  kFlagOptimizer = 1 << 0,
  kFlagForeach = 1 << 1,   ///< counts as optimizer once training is certain
  kFlagBackward = 1 << 2,  ///< occurs in a backward pass alone
  kFlagLoss = 1 << 3,
  kFlagSampling = 1 << 4,
  kFlagToDevice = 1 << 5,
  kFlagToHost = 1 << 6,
  kFlagGraph = 1 << 7,
};

/// Where a kernel's grid counts the rows (tokens) that it runs over, with one block for each.
enum class RowAxis : std::uint8_t {
  kNone,    ///< nowhere that is known
  kX,       ///< x; y and z are 1
  kXTiled,  ///< x; y counts pieces of a row
  kY,       ///< y, up to what CUDA allows along it; x and z are 1
};

/// Everything that is known of a launch from its name.
struct KernelTraits {
  KernelRole role = KernelRole::kOther;
  std::uint8_t flags = 0;
  RowAxis row_axis = RowAxis::kNone;
  /// Equal for names that stand for the same operation on other shapes: a library chooses among many matmul kernels by
  /// shape, so all of them share one. 0: the name is its own family.
  std::uint32_t family = 0;
};

/// Traits of a kernel by its demangled (or plain) name. Microseconds.
[[nodiscard]] KernelTraits role_of_kernel(std::string_view demangled) noexcept;

/// Traits of what is no kernel, and of whole graphs.
[[nodiscard]] KernelTraits traits_of(KernelRole role) noexcept;

/// Of a copy by its direction; one that is not known passes for one within the device, which says nothing.
[[nodiscard]] KernelRole copy_role(CopyDirection direction) noexcept;

/// Direction of a copy as traces word it: `Memcpy HtoD (Pageable -> Device)`, `[CUDA memcpy DtoH]`,
/// `CopyHostToDevice`. kUnknown: the name does not say.
[[nodiscard]] CopyDirection copy_direction(std::string_view name) noexcept;

}  // namespace mfu

// FLOP of one kernel kind: a layer's share of one pass, so that its MFU is not billed the whole model.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/count.h"
#include "core/base/result.h"
#include "core/model/flops_model.h"

namespace mfu {

/// Words that `--kernel` and `--kernel-kind` take.
inline constexpr std::array<std::string_view, 7> kKernelKinds{"flash_fwd", "flash_bwd", "qkv", "o_proj",
                                                              "mlp",       "logits",    "gemm"};

struct KernelFlop {
  Count flop;                 ///< of one layer (of one launch, for a GEMM); the largest where layers differ [FLOP]
  std::int64_t launches = 1;  ///< layers that have this many
  Count all;                  ///< of every layer in one pass [FLOP]
};

/// 2 m n k.
[[nodiscard]] Result<KernelFlop> gemm_flop(std::int64_t m, std::int64_t n, std::int64_t k);

/// Forward FLOP of `kind` (a word of kKernelKinds but gemm) in one pass over `sequences`: matrices 2 T (weights of the
/// matrix), flash_fwd 2 pairs Hq (dq + dv), flash_bwd twice that: four products for the forward's two (the scores that
/// it computes again are not model work). Error: beyond 2^64.
[[nodiscard]] Result<KernelFlop> kernel_flop(std::string_view kind, const Architecture& spec,
                                             const FlopsOptions& options, Phase phase,
                                             std::span<const SequenceGroup> sequences);

}  // namespace mfu

// The blocks into which a matmul kernel cuts its work: tile, number of tiles, waves, and the FLOP with padding.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/activity_record.h"

namespace mfu {

/// Sizes of one product as cuBLAS is asked for it, column-major: D is m x n. PyTorch's (rows x in) (in x out) has
/// m = out, n = rows, k = in. Attention: m queries, n keys of a sequence, k the width of a head. 0: not known.
struct ProblemSize {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;  ///< products of this size; not read for attention, whose grid counts sequences and heads
};

struct Tiling {
  std::uint32_t tile_m = 0, tile_n = 0;  ///< of D, one block's; of attention: queries and keys
  std::uint32_t tile_k = 0;              ///< k is computed in steps of so many; 0: the name has none
  std::int64_t tiles = 0;                ///< that are computed; of attention: pairs of query and key blocks
  /// Pieces of equal work that SMs take one after another: blocks of the grid, or tiles where blocks loop over them.
  std::int64_t units = 0;
  /// `tiles` counts every block, since m and n are not known: an upper bound, as a swizzled grid has blocks without
  /// work and split k has several for one tile.
  bool upper_bound = false;
  /// Multiplications and additions of the tiles as they are computed, padding included [FLOP]. A tensor counter that
  /// Nsight Compute reads has this number. None: k, or the keys, are not known.
  std::optional<double> padded_flop;
};

/// None: the name does not say how the kernel cuts its work, or it contradicts `problem`. \param demangled as a
/// profiler prints it.
///
/// cuBLAS and cuDNN before Hopper (`..._128x64_...`), CUTLASS 2 (`..._256x128_32x3_...`: tile, step and stages): a
/// block per tile; the first number goes along m. Hopper's `sm90_xmma...tilesize` and CUTLASS 3 (tile shape among the
/// template arguments) loop over tiles with as many blocks as there are SMs, so that only `problem` says how many.
/// `nvjet_TYPE_MxN_KxSTAGES_CLUSTER`: a block per tile in 108 of 109 launches of public traces, the last one rounded up
/// to its cluster; with fewer blocks they are taken to loop, too.
///
/// FlashAttention-2, `kernel_traits<width, queries, keys, ...>`: forward (blocks of queries, sequences, heads), with
/// split keys (blocks of queries, splits, sequences x heads; of one query), 4 x queries x keys x width for each pair of
/// blocks; backward (blocks of keys, sequences, heads), 10 times. Causal kernels leave out the pairs beyond the
/// diagonal. PyTorch's memory-efficient forward, `fmha_cutlassF_..._QxK`: the scores are padded to K keys, their
/// product with V to 32 (kernel_forward.h: MM1's ThreadblockShape::kK for 16-bit operands); only where K is the width
/// of a head.
/// Triton, grouped and persistent expert kernels, GEMV, Winograd and FFT: the names have no tile.
[[nodiscard]] std::optional<Tiling> tiling_of(std::string_view demangled, const Grid& grid,
                                              const std::optional<ProblemSize>& problem) noexcept;

}  // namespace mfu

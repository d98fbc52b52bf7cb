// Why the matmuls of a row took longer than the model's FLOP take at peak.
#pragma once

#include <optional>

#include "core/account/product_stats.h"
#include "core/account/region_row.h"
#include "core/base/product.h"
#include "core/kernels/tile.h"
#include "core/peak/peak.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// The time that the products of a row, or of one component of it, lost. Only those whose kernels say their tile.
struct TiledWork {
  GemmLoss loss_ns;        ///< beyond FLOP / the rate of their operands [ns]; without padding, clock and not_split
  double dtype_ns = 0;     ///< FLOP / that rate beyond FLOP / the peak [ns]
  double tile_flop = 0;    ///< [FLOP]
  DurationNs time_ns = 0;  ///< of their matmul kernels

  /// Each of these times of all calls is at least the one before, and the difference is the part behind it:
  ///   FLOP / rate
  ///   memory    each matrix once / bandwidth: `shape`
  ///   tiles     FLOP of all tiles / rate: `tiles`
  ///   waves     the same times ceil(units / SMs) / (units / SMs): `waves`
  ///   fastest   calls x the shortest kernel of the row: `shape`
  ///   all       the sum of its kernels: `rest`
  void add(const Product& product, const ProductStat& stat, const Tiling& tiling, const Peak& peak);
  void add(const TiledWork& other) noexcept;
};

/// `gemm_loss` of a row whose MFU and executed FLOP are complete. `padding` is the executed FLOP less the model's, at
/// peak, where 99 % of the matmul time are counted and no instance is cut at an edge; `not_split` is what remains of
/// lost[kMatmul]. `clock` is set where it is known: set_clock_ratio. None: MFU is unknown, or no product has a tile.
[[nodiscard]] std::optional<GemmLoss> gemm_loss_of(const TiledWork& tiled, const RegionRow& row, const Peak& peak,
                                                   const RegionSummary& s);

}  // namespace mfu

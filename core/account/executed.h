// The matrix products of a row: executed FLOP, components, and findings about the model.
#pragma once

#include <cstddef>

#include "core/account/product_roles.h"
#include "core/account/region_row.h"
#include "core/base/shape.h"
#include "core/peak/peak.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// Entries of `components` besides `other`: of a window, which is written every few seconds, and of the whole run.
inline constexpr std::size_t kComponentsOfWindow = 12, kComponentsOfRun = 48;

/// Executed FLOP = sum of 2 m n k batch over the calls of the row, plus attention where its shape is known. Coverage:
/// the time of the matmul kernels that these are, of that of all matmul kernels. Without a model, a bound of its FLOP:
/// the products outside batches, forward and input gradients at most as often as weight gradients, and fused attention.
///
/// Fills what `s` says of its matmuls, HFU where enough of them are seen, and bounds. After complete_metrics.
/// \param model nullptr: none.
void describe_matmuls(const RegionRow& row, ProductRoles& roles, KernelNames& names, const FlopsModel* model,
                      Phase phase, const Peak& peak, std::size_t most_components, RegionSummary& s);

}  // namespace mfu

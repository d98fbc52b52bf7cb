// The figures of a row, worked out from its counts, times and work.
#pragma once

#include "core/account/product_roles.h"
#include "core/account/region_row.h"
#include "core/base/shape.h"
#include "core/kernels/kernel_names.h"
#include "core/model/flops_model.h"
#include "core/peak/peak.h"
#include "core/rows/region_summary.h"

namespace mfu {

/// The name under which graphs that are one record each count as kernels.
inline constexpr const char* kWholeGraph = "CUDA graph (one record)";

struct RowContext {
  Phase phase = Phase::kNone;  ///< of its region
  const Peak& peak;
  bool device_activity = true;  ///< false: there was none to be had
  bool final_run = false;       ///< it is of the whole run
  bool host_seen = false;       ///< its work in idle time is known
};

/// Everything but the row's name, device, window and who named it. \param model nullptr: none.
[[nodiscard]] RegionSummary summary_of(const RegionRow& row, const RowContext& of, const FlopsModel* model,
                                       ProductRoles& roles, KernelNames& names);

}  // namespace mfu

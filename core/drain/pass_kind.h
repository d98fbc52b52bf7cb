// Whether an iteration of a server decodes or prefills, by what it multiplied.
#pragma once

#include "core/account/instance_products.h"
#include "core/detect/step_findings.h"

namespace mfu {

/// One query for each sequence: decode. More: prefill; but a few, where kernels are known to decode, are tokens that
/// are tried at once. \param by_names what the kernels' names and the rows of other kernels say; never kStep. \return
/// `by_names` where the products do not tell.
[[nodiscard]] StepKind kind_of_pass(const SeenShape& seen, StepKind by_names) noexcept;

}  // namespace mfu

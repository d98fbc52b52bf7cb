// Number formats of a checkpoint: of its matmuls, and of its stored weights. Internal to the readers of
// core/model; weight_format is declared in read_architecture.h.
#pragma once

#include <optional>

#include "core/base/dtype.h"
#include "core/base/json_fields.h"
#include "core/model/architecture.h"

namespace mfu {

/// torch_dtype of the file. float32 says how a checkpoint was saved, not what its matmuls run in: not taken.
[[nodiscard]] std::optional<DType> stated_dtype(const Fields& f);

/// `quantization_config`: which matrices are stored how, and the operands' dtype where it decides it.
void read_quantization(const Fields& f, Architecture& spec);

}  // namespace mfu

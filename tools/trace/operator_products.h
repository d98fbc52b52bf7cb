// The matrix products of a trace: operators that a profiler recorded with the sizes of their inputs.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/product.h"
#include "tools/trace/trace.h"

namespace mfu {

/// True for operators that ask for one matrix product: `aten::mm`, `aten::addmm`, `aten::_scaled_mm`, ...
[[nodiscard]] bool is_product_operator(std::string_view name) noexcept;

/// The product that an operator asks of the library, from the arguments that Kineto writes with `record_shapes`, as
/// JSON: `Input Dims` `[[8944, 1024], [1024, 1024]]`, `Input Strides` (empty: not recorded; then matrices are taken for
/// those of a forward pass), `Input type` `["c10::BFloat16", ...]`. None: not readable, or an empty product.
[[nodiscard]] std::optional<Product> product_of_operator(std::string_view name, std::string_view dims,
                                                         std::string_view strides, std::string_view types);

/// Gives each matmul kernel the product of the nearest operator around its launch: fills Trace::product_of_activity.
/// After link_launches. O(n log n).
void link_products(Trace& trace);

/// The `product` argument of a kernel in a trace that the library recorded:
/// `[m, n, k, batch, transpose_a, transpose_b, "bf16", "bf16", first_of_product]`; m = 0: its size is not known.
[[nodiscard]] std::optional<std::pair<Product, bool>> recorded_product(std::string_view json);

}  // namespace mfu

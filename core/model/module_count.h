// The parameters, FLOP and written elements of a model, module by module.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model/flops_model.h"

namespace mfu {

/// A module, or several layers of one kind. FLOP are of the forward pass.
struct ModuleCount {
  std::string name;         ///< `embedding`, `layers`, `encoder layers`, `tower`, `projector`, `output matrix`, ...
  std::string kind;         ///< of layers: `attention + mlp`
  std::int64_t layers = 0;  ///< how many; 0: it is not made of layers
  bool of_image = false;
  Count params;
  Count products;     ///< with matrices that are stored [FLOP]
  Count attention;    ///< scores, and the products of scores and values [FLOP]
  Count convolution;  ///< [FLOP]
  Count state;        ///< updates and readouts of recurrent states [FLOP]
  /// Elements that these operators write; absent: not known. Scores do not count, which fused attention never writes.
  std::optional<Count> outputs = Count(0);

  [[nodiscard]] Count flop() const noexcept { return products + attention + convolution + state; }
};

/// All modules that store or compute anything, in the order of a pass. Parameters add up to those of the model, FLOP to
/// FlopCount::forward.
[[nodiscard]] std::vector<ModuleCount> count_modules(const FlopsModel& model, const CountRequest& request);

}  // namespace mfu

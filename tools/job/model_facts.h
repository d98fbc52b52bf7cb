// The model that a process ran, by its start line.
#pragma once

#include <string>

#include "core/sinks/sink.h"

namespace mfu {

struct ModelFacts {
  std::string family;  ///< empty: unknown
  double params = 0;   ///< 0: unknown
};
[[nodiscard]] ModelFacts model_facts(const RunInfo& run);

}  // namespace mfu

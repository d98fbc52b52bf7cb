// A config in words, as it was understood, before anything runs.
#pragma once

#include <string>
#include <vector>

#include "core/config/config.h"

namespace mfu {

/// `qwen3 8.19 B, train, batch 8, 4,096 tokens, bf16 peak, exact counting`; `(assumed)` behind a model that is read by
/// a guess; `no model config: ...` without any.
[[nodiscard]] std::string config_words(const Config& config);

struct ConfigMistake {
  std::string line;
  bool stands_in_the_way = true;  ///< false: a measurement can be made as it was meant all the same
};
/// Mistakes in the config and its rules. Not among them: an unknown MFU_* variable, which may be another
/// program's, and config_remarks.
[[nodiscard]] std::vector<ConfigMistake> config_mistakes(const Config& config);
/// Assumptions about a model that is not known by name, and keys that stand twice, one line each.
[[nodiscard]] std::vector<std::string> config_remarks(const Config& config);
/// Names of MFU_* variables that do not exist, one line each.
[[nodiscard]] std::vector<std::string> unknown_variables(const Config& config);

}  // namespace mfu

// A config in words: what was understood of it, before anything runs.
#pragma once

#include <string>
#include <vector>

#include "core/config/config.h"

namespace mfu {

/// `qwen3 8.19 B, train, batch 8, 4,096 tokens, bf16 peak, exact counting`; `no model config: times, no MFU` without.
[[nodiscard]] std::string config_words(const Config& config);

/// What stands in the way of using the config as it was meant: its warnings and those of its rules, one line each. An
/// unknown MFU_* variable is not among them: it may be another program's.
[[nodiscard]] std::vector<std::string> config_mistakes(const Config& config);
/// Names of MFU_* variables that nobody reads, one line each.
[[nodiscard]] std::vector<std::string> unknown_variables(const Config& config);

/// `8.19 B`, `1.74 T`, `124 M`: how people write counts of parameters and tokens.
[[nodiscard]] std::string count_words(double count);
/// `4,096`.
[[nodiscard]] std::string grouped(std::int64_t number);

}  // namespace mfu

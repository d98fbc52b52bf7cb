// The environment variables of a run: one row each, read and explained from one table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/environment.h"
#include "core/config/config.h"
#include "core/config/problem.h"

namespace mfu {

struct Variable {
  const char* name;
  std::string_view usual;  ///< the default, as the documentation says it
  std::string_view help;   ///< its effect, in a few words
  /// Reads the value, which is set and not empty, into the config. nullptr: it is not a setting of the Config alone
  /// (the config file, overrides).
  void (*read)(const char* value, const Getenv& getenv, Config& config, std::vector<Problem>* problems);
};

/// Every MFU_* variable, in the order in which they are read.
[[nodiscard]] std::span<const Variable> variables() noexcept;

/// Host, launcher and all variables but MFU_MODEL_CONFIG, MFU_SET and those that overrule the config file.
void read_variables(const Getenv& getenv, Config& config, std::vector<Problem>* problems);

/// MFU_PEAK_TFLOPS and MFU_PEAK_GBPS, which have the last word: after the config file.
void read_peak_variables(const Getenv& getenv, Config& config, std::vector<Problem>* problems);

/// A problem for each MFU_* name of the block that no row has, with the name that was meant where one is near; ten at
/// most.
void check_spelling(const char* const* environ_block, std::vector<Problem>* problems);

/// `; did you mean X?`, with that of `names` which takes the fewest edits from `word`; empty where none is near.
[[nodiscard]] std::string proposal(std::string_view word, std::span<const std::string_view> names);

}  // namespace mfu

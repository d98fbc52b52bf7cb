// The environment variables of a run: one row each, read and explained from one table.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/environment.h"
#include "core/config/config.h"
#include "core/config/problem.h"

namespace mfu {

/// A variable that is set.
struct GivenVariable {
  const char* name;
  std::string_view text;
  const Getenv& getenv;
  std::vector<Problem>* problems;

  /// \param instead of the value: `using 10`
  void wrong(const std::string& expected, std::string instead) const;
  // Each is a problem where the text is nothing such.
  [[nodiscard]] std::optional<double> positive_number(std::string instead) const;
  [[nodiscard]] std::optional<bool> flag(std::string instead, const std::string& expected = "1 or 0") const;
  /// The value of the word; of none of them that of the first.
  template <typename T>
  [[nodiscard]] T word(std::initializer_list<std::pair<std::string_view, T>> words) const;
};

struct Variable {
  const char* name;
  std::string_view usual;  ///< the default, as the documentation says it
  std::string_view help;   ///< its effect, in a few words
  /// Reads the value, which is set and not empty, into the config. nullptr: it is not a setting of the Config alone
  /// (the config file, overrides).
  void (*read)(const GivenVariable& given, Config& config);
};

/// Every MFU_* variable, in the order in which they are read.
[[nodiscard]] std::span<const Variable> variables() noexcept;

/// Host, launcher and all variables but MFU_MODEL_CONFIG, MFU_SET and those that overrule the config file.
void read_variables(const Getenv& getenv, Config& config, std::vector<Problem>* problems);

/// MFU_PEAK_TFLOPS and MFU_PEAK_GBPS, which have the last word: after the config file.
void read_peak_variables(const Getenv& getenv, Config& config, std::vector<Problem>* problems);

/// A problem for each MFU_* name of the block that no row has, with the name that was meant if one is near; at most 10.
void check_spelling(const char* const* environ_block, std::vector<Problem>* problems);

/// `; did you mean X?`, with that of `names` which takes the fewest edits from `word`; empty where none is near.
[[nodiscard]] std::string proposal(std::string_view word, std::span<const std::string_view> names);

}  // namespace mfu

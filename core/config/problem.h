// A mistake in a setting.
#pragma once

#include <cstdint>
#include <string>

namespace mfu {

/// One thing that is wrong with the settings of a run. Code decides by `kind`, people read `line()`.
struct Problem {
  enum class Kind : std::uint8_t {
    kNoModel,          ///< the config or its model cannot be read: no FLOP, time only
    kValue,            ///< a value is not usable: a default takes its place
    kUnknownKey,       ///< an unknown key of the config
    kRepeatedKey,      ///< a key that one object names twice: the last value is used
    kAssumed,          ///< the model was read by a guess; it is used
    kUnknownVariable,  ///< an unknown MFU_* variable
  };

  std::string place;  ///< where it was given: `MFU_MODEL_CONFIG job.json: `, `MFU_SET: `; empty for a variable
  std::string key;    ///< `workload.batch`, or the variable
  Kind kind = Kind::kValue;
  std::string text;     ///< expected and given value: `expected an integer > 0, got "x"`
  std::string instead;  ///< what is used now: `using the default`; empty: nothing to say

  /// False where a measurement can be made as it was meant all the same: a reported guess, an unknown key or variable,
  /// a default value, a launcher's variable.
  [[nodiscard]] bool stands_in_the_way() const;
  /// For a person: `place key: text; instead`, one printable line.
  [[nodiscard]] std::string line() const;
  /// The same without what is used instead.
  [[nodiscard]] std::string complaint() const;
};

}  // namespace mfu

// Settings that are given one by one, over what the config file says: MFU_SET, and options of the command line.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/problem.h"

namespace mfu {

/// One setting: `key` is its place in the config (`workload.batch`), `value` JSON or plain text.
struct Override {
  std::string key;
  std::string value;
  std::string origin;  ///< for messages: `MFU_SET`, `--batch`
};

/// `a.b=1,c=[2,3],d=x` one by one; a piece without `=` belongs to the value before it. Anything else is a problem.
[[nodiscard]] std::vector<Override> parse_overrides(std::string_view text, std::string_view origin,
                                                    std::vector<Problem>* problems);

/// Writes them into the config before it is read. Those that cannot be written, below a plain value, are dropped from
/// `overrides` and become problems.
void apply_overrides(std::vector<Override>& overrides, nlohmann::json& root, std::vector<Problem>* problems);

}  // namespace mfu

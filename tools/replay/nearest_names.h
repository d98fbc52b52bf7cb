// Names of a trace that are most like one that is not there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mfu {

/// The names most like `wanted`, best first, as they follow an error message.
std::string nearest_names(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace mfu

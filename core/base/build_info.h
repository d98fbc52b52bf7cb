// Which source this binary was built from.
#pragma once

#include <string_view>

namespace mfu {

/// Twelve digits of the commit, `-dirty` behind them where files were changed since; empty for a source without git.
[[nodiscard]] std::string_view build_commit() noexcept;

}  // namespace mfu

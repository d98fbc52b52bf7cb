// Which source this binary was built from, and how.
#pragma once

#include <string_view>

namespace mfu {

/// Twelve digits of the commit, `-dirty` behind them where files were changed since; empty for a source without git.
[[nodiscard]] std::string_view build_commit() noexcept;

/// `wheel x86_64 glibc 2.17`, `deb`; empty for a build that belongs to no package.
[[nodiscard]] std::string_view build_kind() noexcept;

}  // namespace mfu

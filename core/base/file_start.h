// The first bytes of a small file, such as those of /proc, without a stream of the standard library: those bring all of
// std::locale along into the host's process.
#pragma once

#include <span>
#include <string_view>

namespace mfu {

/// The first bytes of the file at `path`, at most `into.size()` of them, as a view of `into`; empty where it cannot be
/// read. For a regular file or one of /proc: another kind might block.
[[nodiscard]] std::string_view file_start(const char* path, std::span<char> into) noexcept;

}  // namespace mfu

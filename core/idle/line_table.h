// The line of an instruction, from the table that CPython keeps with its code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mfu {

/// \param minor of CPython 3.minor: the form of the table is another one in 3.9, 3.10, and 3.11 and newer.
/// \param first_line co_firstlineno. \param at the instruction's offset in the code [B].
/// \return `first_line` where the table does not say.
///
/// Source: Objects/lnotab_notes.txt of 3.9 and 3.10; Objects/locations.md (3.11 and newer).
[[nodiscard]] std::uint32_t line_of(unsigned minor, std::span<const std::uint8_t> table, std::uint32_t first_line,
                                    std::size_t at) noexcept;

}  // namespace mfu

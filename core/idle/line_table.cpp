#include "core/idle/line_table.h"

namespace mfu {
namespace {

using Table = std::span<const std::uint8_t>;

/// 3.9: by how much code and lines go on, in pairs. 3.10: a pair is of the code before it, and -128 has no line.
std::uint32_t line_of_pairs(bool ranges, Table table, std::uint32_t line, std::size_t at) noexcept {
  std::uint32_t found = line;
  std::size_t end = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    const auto by = static_cast<std::int8_t>(table[i + 1]);
    end += table[i];
    if (!ranges && end > at) break;
    if (!ranges || by != -128) found = line += static_cast<std::uint32_t>(by);
    if (ranges && end > at) break;
  }
  return found;
}

/// Six bits a byte, the lowest first; bit 6: more follow. The lowest bit of the number is its sign.
std::int32_t signed_number(Table table, std::size_t& i) noexcept {
  std::uint32_t value = 0;
  for (unsigned shift = 0; i < table.size() && shift < 30; shift += 6) {
    const std::uint8_t byte = table[i++];
    value |= (byte & 63u) << shift;
    if ((byte & 64u) == 0) break;
  }
  const auto size = static_cast<std::int32_t>(value >> 1);
  return (value & 1u) != 0 ? -size : size;
}

/// 3.11 and newer: an entry begins with a byte whose highest bit is set; the next four are its kind, the last three
/// its length in instructions, less one.
std::uint32_t line_of_entries(Table table, std::uint32_t line, std::size_t at) noexcept {
  constexpr unsigned kShort = 10, kLong = 13, kNoLine = 15;  // 10 to 12: as many lines on, less 10
  std::size_t end = 0;
  for (std::size_t i = 0; i < table.size();) {
    const std::uint8_t head = table[i++];
    const unsigned kind = head >> 3 & 15u;
    if (kind == kLong || kind == kLong + 1)
      line += static_cast<std::uint32_t>(signed_number(table, i));
    else if (kind >= kShort && kind < kLong)
      line += kind - kShort;
    end += ((head & 7u) + 1) * 2;
    if (end > at && kind != kNoLine) return line;
    while (i < table.size() && (table[i] & 128u) == 0) ++i;
  }
  return line;
}

}  // namespace

std::uint32_t line_of(unsigned minor, Table table, std::uint32_t first_line, std::size_t at) noexcept {
  constexpr unsigned kPairs = 9, kRanges = 10;
  return minor <= kRanges ? line_of_pairs(minor != kPairs, table, first_line, at)
                          : line_of_entries(table, first_line, at);
}

}  // namespace mfu

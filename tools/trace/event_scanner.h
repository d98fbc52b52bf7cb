// Finds where the objects of a JSON array end, without parsing them: strings and escapes are respected, brackets
// counted, nothing else looked at. This is what lets a trace of any size be parsed in pieces of a megabyte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mfu {

/// Scans the inside of one array (from just after its `[`), piece by piece. The pieces joined are the array's text; a
/// piece may end anywhere, inside a string or an escape too. Brackets of both kinds count alike: a `]` that closes a
/// `{` is left to the parser to refuse.
class EventScanner {
 public:
  struct Found {
    /// Bytes of this piece up to and with the last bracket that closed an element; 0: none did.
    std::size_t last_end = 0;
    /// Bytes of this piece up to and with the `]` of the array itself; 0: it is still open.
    std::size_t array_end = 0;
  };

  /// Continues with the next piece. After array_end was reported the scanner must not be used again.
  [[nodiscard]] Found scan(std::string_view piece) noexcept;

 private:
  /// Counts the bracket at `at`; true when it ends the array.
  bool bracket(bool open, std::size_t at, Found& found) noexcept;

  std::uint64_t in_string_ = 0;     ///< all ones while a string is open at the end of the last piece
  std::uint64_t escape_carry_ = 0;  ///< 1: the next byte is escaped
  std::int64_t depth_ = 0;          ///< brackets open inside the array
};

}  // namespace mfu

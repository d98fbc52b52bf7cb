// The text of a Kineto trace, a piece at a time: simdjson cannot stream an array inside an object, and such
// a file may be larger than memory.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "tools/trace/byte_source.h"
#include "tools/trace/trace.h"

namespace mfu {

/// A window over the text that moves forward. An exception ends the reading of a text that is wrong.
class KinetoDocument {
 protected:
  /// Thrown: the file cannot be used.
  struct Unusable {
    Error why;
  };
  /// Thrown: the file ends before what is read does.
  struct BreaksOff {};

  static constexpr std::size_t kPieceBytes = 512 * 1024;  // read and parsed at once: fits the second-level cache
  static constexpr std::size_t kLargestValueBytes = 256u << 20u;  // one event or metadata value; beyond it: refused
  static constexpr std::size_t kHeadroom = 64;                    // room before the first byte, for the `[` put there
  static constexpr std::size_t kTailroom = simdjson::SIMDJSON_PADDING + 1;  // it asks for so much behind the added `]`

  KinetoDocument(ByteSource source, const ReadProgress& progress)
      : source_(std::move(source)), progress_(progress), piece_bytes_(piece_bytes_for(source_)) {
    buffer_.resize(kHeadroom + piece_bytes_ + kTailroom);
  }

  [[noreturn]] void fail(const std::string& what) const { throw Unusable{{source_.name() + ": " + what}}; }
  /// The message names the byte too.
  [[noreturn]] void fail_at(std::uint64_t byte, std::string_view what) const;
  /// Of the first byte that is not consumed, in the whole text.
  [[nodiscard]] std::uint64_t position() const { return consumed_ + (begin_ - kHeadroom); }
  [[nodiscard]] std::size_t available() const { return end_ - begin_; }
  /// A few bytes for an error message.
  [[nodiscard]] static std::string excerpt(std::string_view text);

  /// Reads another piece behind the unconsumed text. True: there is more text than before.
  bool fill();
  /// The next byte that is no white space, not consumed; none at the end of the file.
  std::optional<char> peek_or_end();
  /// The same where the text goes on.
  char peek();
  /// Length of the JSON value that starts here.
  std::size_t value_length();

  /// Of a file that is smaller than a piece, all of it, and room for the byte that does not come.
  [[nodiscard]] static std::size_t piece_bytes_for(const ByteSource& source) noexcept {
    const bool known = !source.gzip() && source.stored_bytes() != 0;
    return known ? static_cast<std::size_t>(std::min<std::uint64_t>(source.stored_bytes() + 1, kPieceBytes))
                 : kPieceBytes;
  }

  ByteSource source_;
  const ReadProgress& progress_;
  std::size_t piece_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = kHeadroom;  ///< first byte not consumed
  std::size_t end_ = kHeadroom;    ///< one past the last byte read
  std::uint64_t consumed_ = 0;     ///< bytes of the text before buffer_[kHeadroom]
  bool at_end_ = false;
};

}  // namespace mfu

// The text of a Kineto trace, a piece at a time: simdjson cannot stream an array that stands inside an object, and such
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

/// A window over the text that moves forward. Errors name the file and the byte.
class KinetoDocument {
 protected:
  static constexpr std::size_t kPieceBytes = 512 * 1024;  // read and parsed at once: fits the second-level cache
  static constexpr std::size_t kLargestValueBytes = 256u << 20u;  // one event or metadata value; beyond it: refused
  static constexpr std::size_t kHeadroom = 64;                    // room before the first byte, for the `[` put there
  static constexpr std::size_t kTailroom =
      simdjson::SIMDJSON_PADDING + 1;  // what simdjson asks for behind the added `]`

  KinetoDocument(ByteSource source, const ReadProgress& progress)
      : source_(std::move(source)), progress_(progress), piece_bytes_(piece_bytes_for(source_)) {
    buffer_.resize(kHeadroom + piece_bytes_ + kTailroom);
  }

  [[nodiscard]] Error error_at(std::uint64_t byte, std::string_view what) const;
  /// Of the first byte that is not consumed, in the whole text.
  [[nodiscard]] std::uint64_t position() const { return consumed_ + (begin_ - kHeadroom); }
  [[nodiscard]] std::size_t available() const { return end_ - begin_; }
  /// A few bytes for an error message.
  [[nodiscard]] static std::string excerpt(std::string_view text);

  /// Reads another piece behind the unconsumed text. True: there is more text than before.
  Result<bool> fill();
  /// The next byte that is no white space, not consumed; none at the end of the file.
  Result<std::optional<char>> peek();
  /// Length of the JSON value that starts here; none: the file ends before it does.
  Result<std::optional<std::size_t>> value_length();

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

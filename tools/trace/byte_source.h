// The bytes of a file in pieces, unpacked on the way when it is gzip (by its first bytes, not by its name).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/result.h"

namespace mfu {

/// One pass over a file or over bytes in memory. Not copyable, one thread.
class ByteSource {
 public:
  /// Opens a regular file. Error: it does not exist, may not be read, is a directory, is empty.
  [[nodiscard]] static Result<ByteSource> open(const std::string& path);
  /// Reads `bytes`, which must outlive the source; `name` takes the path's place in errors.
  [[nodiscard]] static ByteSource over(std::span<const char> bytes, std::string name);

  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;
  ~ByteSource();

  /// Fills `into` as far as the source goes. Result: bytes written; fewer than asked for only at the end.
  /// Error: a read error, or bytes that are no gzip after all. A gzip file that breaks off is no error: see cut_off.
  [[nodiscard]] Result<std::size_t> read(std::span<char> into);

  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] bool gzip() const noexcept;
  [[nodiscard]] std::uint64_t stored_bytes() const noexcept;       ///< size of the file
  [[nodiscard]] std::uint64_t stored_bytes_read() const noexcept;  ///< of the file so far
  /// A gzip file ended, or stopped making sense, before its last byte; the bytes before that are good.
  [[nodiscard]] bool cut_off() const noexcept;
  /// Bytes after the gzip data that are not gzip.
  [[nodiscard]] bool trailing_garbage() const noexcept;

 private:
  struct Impl;
  explicit ByteSource(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mfu

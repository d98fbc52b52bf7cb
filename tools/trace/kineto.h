// Reads a Kineto (PyTorch profiler) Chrome trace, plain or gzip, of any age: a bare array or an object, old and new
// category names, whole or fractional microseconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "tools/trace/byte_source.h"
#include "tools/trace/trace.h"

namespace mfu {

/// Reads the whole trace in pieces: memory is what the kept records need (48 B per device activity, 32 B per host call)
/// and a few megabytes, not the size of the file. A file that breaks off is read up to its last whole event (note
/// `cut_off`). Bytes that are not UTF-8 are replaced by `?` (note `bytes_not_utf8`); events whose time is no number are
/// left out (note `events_with_unusable_time`).
/// Error: not JSON, no traceEvents; the message names file, byte and what was expected.
[[nodiscard]] Result<Trace> read_kineto(ByteSource source, const ReadProgress& progress = {});

/// The same of text in memory, for tests and benchmarks.
[[nodiscard]] Result<Trace> read_kineto_text(std::string_view text, std::string name);

/// A JSON number of microseconds as ns [ns], exactly: `1712195495519689.047` is 1712195495519689047. Digits beyond the
/// third decimal are rounded to the nearest ns. None: no number, or beyond 64 bits.
[[nodiscard]] std::optional<TimeNs> parse_us_as_ns(std::string_view number) noexcept;

}  // namespace mfu

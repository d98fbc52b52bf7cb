// TensorBoard's event files: records with checksums around protocol buffers, of which scalars are all we write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mfu {

struct Scalar {
  std::string tag;   ///< `step/mfu`: the part before the first `/` is a group
  double value = 0;  ///< stored as a float
};

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes) noexcept;

/// A record as TensorFlow's record writer frames it: length (u64), masked CRC of the length, data, masked CRC of the
/// data; little-endian. The mask is ((crc >> 15) | (crc << 17)) + 0xa282ead8 (tensorflow/core/lib/hash/crc32c.h).
[[nodiscard]] std::string framed_record(std::string_view data);

/// The first record of a file: an Event (tensorflow/core/util/event.proto) with file_version `brain.Event:2`.
/// \param wall_time_s seconds since the UTC epoch.
[[nodiscard]] std::string event_file_header(double wall_time_s);

/// One Event with a summary of scalars, framed: Event{wall_time = 1, step = 2, summary = 5{value = 1{tag = 1,
/// simple_value = 2}}}. Values that are not finite are left out.
[[nodiscard]] std::string scalar_event(double wall_time_s, std::int64_t step, const std::vector<Scalar>& scalars);

}  // namespace mfu

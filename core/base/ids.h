// Identities as enum classes, so that a stream is never passed where a device is meant.
#pragma once

#include <cstdint>
#include <type_traits>

namespace mfu {

enum class DeviceId : std::uint32_t {};       ///< CUDA ordinal in this process
enum class StreamId : std::uint32_t {};       ///< CUPTI stream id; unique per context
enum class ContextId : std::uint32_t {};      ///< CUPTI context uid
enum class CorrelationId : std::uint32_t {};  ///< CUPTI's id of one API call; wraps at 2^32
/// CUPTI graph id of a record that a CUDA graph launch made. kUnknown: made by one that is not known.
enum class GraphId : std::uint32_t { kNone = 0, kUnknown = 0xFFFFFFFFu };
enum class ThreadSerial : std::uint32_t { kNone = 0xFFFFFFFFu };  ///< slot in the thread table, not an OS thread id
enum class RegionId : std::uint16_t { kNone = 0xFFFFu };          ///< index into the region names of a RegionRules
enum class RuleId : std::uint16_t { kNone = 0xFFFFu };            ///< index into the rules of a RegionRules
enum class DomainId : std::uint32_t { kDefault = 0 };             ///< NVTX domain
enum class KernelNameId : std::uint32_t { kOther = 0 };  ///< index into KernelNames; kOther once the table is full

/// Index into a ProductTable: the sizes of a matrix product. kNone: the work is no product whose call was seen.
enum class ProductId : std::uint32_t { kNone = 0 };

/// A matmul kernel's name and grid, numbered by ProductRoles. 15 bits wide.
enum class KernelForm : std::uint16_t { kNone = 0 };

/// One open-close execution of a region. 30 bits wide because a CorrelationMap slot keeps two flags beside it.
enum class InstanceId : std::uint32_t { kNone = 0 };

template <typename E>
[[nodiscard]] constexpr auto raw(E id) noexcept {
  return static_cast<std::underlying_type_t<E>>(id);
}

}  // namespace mfu

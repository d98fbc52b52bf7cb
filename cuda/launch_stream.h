// Which stream a driver call puts its work on, and what it gives to its kernel, read from the call's parameters. Hot:
// called inside launch callbacks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/activity_record.h"

namespace mfu {

/// The stream that a launch call names, as it names it.
struct LaunchStream {
  bool known = false;         ///< false: of the order of this call's work nothing can be said
  bool per_thread = false;    ///< handle 0 is the calling thread's own stream, not the context's
  bool programmatic = false;  ///< may begin before its predecessor on the stream has ended
  std::uint64_t handle = 0;
};

namespace detail {
inline constexpr std::uint8_t kNoStream = 0xFF;       ///< not a launch, or one that is ordered against nothing
inline constexpr std::uint8_t kDefaultStream = 0xFE;  ///< a synchronous copy or set: on the default stream
inline constexpr std::uint8_t kInConfig = 0xFD;       ///< cuLaunchKernelEx: in the structure of the first parameter

/// Where the parameters of a driver call keep the stream [B]. From the signatures in cuda.h, laid out as
/// generated_cuda_meta.h lays them out. Batch copies are missing on purpose: their reads may happen
/// early (cudaMemcpySrcAccessOrder).
[[nodiscard]] constexpr std::uint8_t stream_offset(std::uint32_t driver_id, bool& per_thread) noexcept {
  per_thread = (driver_id >= 397 && driver_id <= 433) || driver_id == 442 || driver_id == 478 || driver_id == 515 ||
               driver_id == 653 || driver_id == 838 || driver_id == 840;
  switch (driver_id) {
    case 307:  // cuLaunchKernel
    case 442:
    case 477:  // cuLaunchCooperativeKernel
    case 478:
    case 222:  // cuMemsetD2D8Async
    case 224:
    case 226:
    case 431:
    case 432:
    case 433:
    case 319:  // cuMemcpyPeerAsync
    case 426:
      return 40;
    case 652:  // cuLaunchKernelEx
    case 653:
      return kInConfig;
    case 514:  // cuGraphLaunch
    case 515:
    case 289:  // cuMemcpy2DAsync_v2
    case 291:  // cuMemcpy3DAsync_v2
    case 321:  // cuMemcpy3DPeerAsync
    case 424:
    case 425:
    case 427:
      return 8;
    case 277:  // cuMemcpyHtoDAsync_v2
    case 279:  // cuMemcpyDtoHAsync_v2
    case 281:  // cuMemcpyDtoDAsync_v2
    case 306:  // cuMemcpyAsync
    case 418:
    case 421:
    case 422:
    case 423:
    case 216:  // cuMemsetD8Async
    case 218:  // cuMemsetD16Async
    case 220:  // cuMemsetD32Async
    case 428:
    case 429:
    case 430:
      return 24;
    case 293:  // cuMemcpyHtoAAsync_v2
    case 283:  // cuMemcpyAtoHAsync_v2
    case 419:
    case 420:
    case 837:  // cuMemcpyWithAttributesAsync
    case 838:
      return 32;
    case 839:  // cuMemcpy3DWithAttributesAsync
    case 840:
      return 16;
    default:
      break;
  }
  const bool set = driver_id >= 249 && driver_id <= 254;                           // cuMemsetD8_v2 ...
  const bool copy = driver_id == 276 || driver_id == 278 || driver_id == 280 ||    // cuMemcpyHtoD_v2 ...
                    driver_id == 282 || (driver_id >= 284 && driver_id <= 288) ||  // cuMemcpyAtoD_v2 ...
                    driver_id == 290 || driver_id == 292 || driver_id == 305 || driver_id == 318 || driver_id == 320;
  const bool per_thread_copy = driver_id >= 397 && driver_id <= 416;  // the same, _ptds
  return set || copy || per_thread_copy ? kDefaultStream : kNoStream;
}

template <typename T>
[[nodiscard]] T read_at(const void* from, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof value);
  return value;
}

/// Offsets in CUlaunchConfig and CUlaunchAttribute of cuda.h [B].
inline constexpr std::size_t kConfigStream = 32, kConfigAttributes = 40, kConfigAttributeCount = 48;
inline constexpr std::size_t kAttributeBytes = 72, kAttributeValue = 8;
inline constexpr std::uint32_t kProgrammaticSerialization =
    6;  ///< CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr std::uint32_t kMostAttributes = 64;
}  // namespace detail

/// Where a driver call says which stream it is for.
struct StreamArgument {
  std::uint8_t offset = detail::kNoStream;
  bool per_thread = false;

  /// Among its arguments, so that read() can read it.
  [[nodiscard]] constexpr bool is_plain() const noexcept { return offset < detail::kInConfig; }
  [[nodiscard]] std::uint64_t read(const void* parameters) const noexcept {
    return detail::read_at<std::uint64_t>(parameters, offset);
  }
};

/// By driver call: one load instead of the decisions of stream_offset.
inline constexpr auto kStreamArguments = [] {
  std::array<StreamArgument, 1024> arguments{};
  for (std::uint32_t id = 0; id < arguments.size(); ++id)
    arguments[id].offset = detail::stream_offset(id, arguments[id].per_thread);
  return arguments;
}();
[[nodiscard]] constexpr StreamArgument stream_argument(std::uint32_t driver_id) noexcept {
  return driver_id < kStreamArguments.size() ? kStreamArguments[driver_id] : StreamArgument{};
}

/// \param parameters of the driver call, as CUPTI hands them to a callback; may be null.
[[nodiscard]] inline LaunchStream stream_of_launch(std::uint32_t driver_id, const void* parameters) noexcept {
  const StreamArgument argument = stream_argument(driver_id);
  LaunchStream stream;
  stream.per_thread = argument.per_thread;
  if (argument.offset == detail::kNoStream || parameters == nullptr) return stream;
  if (argument.offset == detail::kDefaultStream) {
    stream.known = true;
    return stream;
  }
  if (argument.is_plain()) {
    stream.known = true;
    stream.handle = argument.read(parameters);
    return stream;
  }
  const void* config = detail::read_at<const void*>(parameters, 0);
  if (config == nullptr) return stream;
  stream.known = true;
  stream.handle = detail::read_at<std::uint64_t>(config, detail::kConfigStream);
  const void* attributes = detail::read_at<const void*>(config, detail::kConfigAttributes);
  const auto count = detail::read_at<std::uint32_t>(config, detail::kConfigAttributeCount);
  if (attributes == nullptr || count > detail::kMostAttributes) return stream;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t at = i * detail::kAttributeBytes;
    if (detail::read_at<std::uint32_t>(attributes, at) != detail::kProgrammaticSerialization) continue;
    stream.programmatic = detail::read_at<std::uint32_t>(attributes, at + detail::kAttributeValue) != 0;
  }
  return stream;
}

/// Calls that record an event on a stream, and calls that let a stream wait for one.
struct EventCall {
  enum class Kind : std::uint8_t { kNone, kRecord, kWait };
  Kind kind = Kind::kNone;
  bool per_thread = false;
};
inline constexpr std::uint32_t kDriverEventCalls[] = {119, 441, 587, 588, 295, 436};
[[nodiscard]] constexpr EventCall event_call(std::uint32_t driver_id) noexcept {
  switch (driver_id) {
    case 119:  // cuEventRecord
    case 587:  // cuEventRecordWithFlags
      return {EventCall::Kind::kRecord, false};
    case 441:
    case 588:
      return {EventCall::Kind::kRecord, true};
    case 295:  // cuStreamWaitEvent
      return {EventCall::Kind::kWait, false};
    case 436:
      return {EventCall::Kind::kWait, true};
    default:
      return {};
  }
}

/// The grid that a driver call launches a kernel with, packed as ActivityRecord::extent; 0: another call.
[[nodiscard]] inline std::uint64_t grid_of_launch(std::uint32_t driver_id, const void* parameters) noexcept {
  if (parameters == nullptr) return 0;
  const auto grid_at = [](const void* from, std::size_t offset) {
    return pack(Grid{detail::read_at<std::uint32_t>(from, offset), detail::read_at<std::uint32_t>(from, offset + 4),
                     detail::read_at<std::uint32_t>(from, offset + 8)});
  };
  switch (driver_id) {
    case 307:  // cuLaunchKernel: f, grid
    case 442:
    case 477:  // cuLaunchCooperativeKernel
    case 478:
      return grid_at(parameters, 8);
    case 652:  // cuLaunchKernelEx: the grid is first in CUlaunchConfig
    case 653:
      if (const void* config = detail::read_at<const void*>(parameters, 0)) return grid_at(config, 0);
      return 0;
    default:
      return 0;
  }
}

/// Pointers to the values of the kernel's parameters, as the call was given them; nullptr: none, or another call.
[[nodiscard]] inline const void* const* parameters_of_launch(std::uint32_t driver_id, const void* parameters) noexcept {
  if (parameters == nullptr) return nullptr;
  switch (driver_id) {
    case 307:  // cuLaunchKernel: f, grid, block, bytes, stream, kernelParams
    case 442:
    case 477:  // cuLaunchCooperativeKernel
    case 478:
      return detail::read_at<const void* const*>(parameters, 48);
    case 652:  // cuLaunchKernelEx: config, f, kernelParams
    case 653:
      return detail::read_at<const void* const*>(parameters, 16);
    default:
      return nullptr;
  }
}

}  // namespace mfu

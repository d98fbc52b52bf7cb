// The API calls that put work on a stream, by CUPTI callback id.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mfu {

enum class LaunchKind : std::uint8_t { kNone, kKernel, kGraph, kMemcpy, kMemset };

/// Calls with ids from `first` to `last`.
struct LaunchCalls {
  std::uint32_t first, last;
  LaunchKind kind;
};

// Source: cupti_driver_cbid.h and cupti_runtime_cbid.h of CUPTI 13.0 and 13.5. Numbers instead of the enumerators,
// since no one header has all of them and an id never changes its meaning. A CUPTI that does not know an id refuses
// it, which is fine. Host functions put no work on the device. nvcc 13 makes __cudaLaunchKernel of <<<>>>.
inline constexpr LaunchCalls kDriverLaunchCalls[] = {
    {43, 43, LaunchKind::kMemcpy},    // cuMemcpyHtoD
    {45, 45, LaunchKind::kMemcpy},    // cuMemcpyDtoH
    {47, 47, LaunchKind::kMemcpy},    // cuMemcpyDtoD
    {49, 49, LaunchKind::kMemcpy},    // cuMemcpyDtoA
    {51, 51, LaunchKind::kMemcpy},    // cuMemcpyAtoD
    {53, 58, LaunchKind::kMemcpy},    // cuMemcpyHtoA .. cuMemcpy3D
    {60, 60, LaunchKind::kMemcpy},    // cuMemcpyHtoDAsync
    {62, 62, LaunchKind::kMemcpy},    // cuMemcpyDtoHAsync
    {64, 64, LaunchKind::kMemcpy},    // cuMemcpyDtoDAsync
    {66, 69, LaunchKind::kMemcpy},    // cuMemcpyHtoAAsync .. cuMemcpy3DAsync
    {71, 71, LaunchKind::kMemset},    // cuMemsetD8
    {73, 73, LaunchKind::kMemset},    // cuMemsetD16
    {75, 75, LaunchKind::kMemset},    // cuMemsetD32
    {77, 77, LaunchKind::kMemset},    // cuMemsetD2D8
    {79, 79, LaunchKind::kMemset},    // cuMemsetD2D16
    {81, 81, LaunchKind::kMemset},    // cuMemsetD2D32
    {115, 117, LaunchKind::kKernel},  // cuLaunch .. cuLaunchGridAsync
    {216, 216, LaunchKind::kMemset},  // cuMemsetD8Async
    {218, 218, LaunchKind::kMemset},  // cuMemsetD16Async
    {220, 220, LaunchKind::kMemset},  // cuMemsetD32Async
    {222, 222, LaunchKind::kMemset},  // cuMemsetD2D8Async
    {224, 224, LaunchKind::kMemset},  // cuMemsetD2D16Async
    {226, 226, LaunchKind::kMemset},  // cuMemsetD2D32Async
    {248, 248, LaunchKind::kMemcpy},  // cuMemcpy_v2
    {249, 254, LaunchKind::kMemset},  // cuMemsetD8_v2 .. cuMemsetD2D32_v2
    {276, 293, LaunchKind::kMemcpy},  // cuMemcpyHtoD_v2 .. cuMemcpyHtoAAsync_v2
    {305, 306, LaunchKind::kMemcpy},  // cuMemcpy .. cuMemcpyAsync
    {307, 307, LaunchKind::kKernel},  // cuLaunchKernel
    {318, 321, LaunchKind::kMemcpy},  // cuMemcpyPeer .. cuMemcpy3DPeerAsync
    {397, 410, LaunchKind::kMemcpy},  // cuMemcpyHtoD_v2_ptds .. cuMemcpy3DPeer_ptds
    {411, 416, LaunchKind::kMemset},  // cuMemsetD8_v2_ptds .. cuMemsetD2D32_v2_ptds
    {418, 427, LaunchKind::kMemcpy},  // cuMemcpyAsync_ptsz .. cuMemcpy3DPeerAsync_ptsz
    {428, 433, LaunchKind::kMemset},  // cuMemsetD8Async_ptsz .. cuMemsetD2D32Async_ptsz
    {442, 442, LaunchKind::kKernel},  // cuLaunchKernel_ptsz
    {477, 478, LaunchKind::kKernel},  // cuLaunchCooperativeKernel .. cuLaunchCooperativeKernel_ptsz
    {480, 480, LaunchKind::kKernel},  // cuLaunchCooperativeKernelMultiDevice
    {514, 515, LaunchKind::kGraph},   // cuGraphLaunch .. cuGraphLaunch_ptsz
    {652, 653, LaunchKind::kKernel},  // cuLaunchKernelEx .. cuLaunchKernelEx_ptsz
    {761, 762, LaunchKind::kMemcpy},  // cuMemBatchDecompressAsync .. cuMemBatchDecompressAsync_ptsz
    {776, 779, LaunchKind::kMemcpy},  // cuMemcpyBatchAsync .. cuMemcpy3DBatchAsync_ptsz
    {796, 799, LaunchKind::kMemcpy},  // cuMemcpyBatchAsync_v2 .. cuMemcpy3DBatchAsync_v2_ptsz
    {819, 819, LaunchKind::kGraph},   // cuGraphLaunchWithArguments
    {828, 829, LaunchKind::kGraph},   // cuSubgridScheduleLaunch .. cuSubgridScheduleLaunch_ptsz
    {837, 840, LaunchKind::kMemcpy},  // cuMemcpyWithAttributesAsync .. cuMemcpy3DWithAttributesAsync_ptsz
};

inline constexpr LaunchCalls kRuntimeLaunchCalls[] = {
    {13, 13, LaunchKind::kKernel},    // cudaLaunch_v3020
    {31, 48, LaunchKind::kMemcpy},    // cudaMemcpy_v3020 .. cudaMemcpyFromSymbolAsync_v3020
    {49, 52, LaunchKind::kMemset},    // cudaMemset_v3020 .. cudaMemset2DAsync_v3020
    {142, 143, LaunchKind::kMemset},  // cudaMemset3D_v3020 .. cudaMemset3DAsync_v3020
    {144, 145, LaunchKind::kMemcpy},  // cudaMemcpy3D_v3020 .. cudaMemcpy3DAsync_v3020
    {160, 163, LaunchKind::kMemcpy},  // cudaMemcpyPeer_v4000 .. cudaMemcpy3DPeerAsync_v4000
    {211, 211, LaunchKind::kKernel},  // cudaLaunchKernel_v7000
    {213, 214, LaunchKind::kKernel},  // cudaLaunch_ptsz_v7000 .. cudaLaunchKernel_ptsz_v7000
    {215, 232, LaunchKind::kMemcpy},  // cudaMemcpy_ptds_v7000 .. cudaMemcpyFromSymbolAsync_ptsz_v7000
    {233, 236, LaunchKind::kMemset},  // cudaMemset_ptds_v7000 .. cudaMemset2DAsync_ptsz_v7000
    {243, 244, LaunchKind::kMemset},  // cudaMemset3D_ptds_v7000 .. cudaMemset3DAsync_ptsz_v7000
    {245, 246, LaunchKind::kMemcpy},  // cudaMemcpy3D_ptds_v7000 .. cudaMemcpy3DAsync_ptsz_v7000
    {249, 250, LaunchKind::kMemcpy},  // cudaMemcpy3DPeer_ptds_v7000 .. cudaMemcpy3DPeerAsync_ptsz_v7000
    {269, 270, LaunchKind::kKernel},  // cudaLaunchCooperativeKernel_v9000 .. cudaLaunchCooperativeKernel_ptsz_v9000
    {272, 272, LaunchKind::kKernel},  // cudaLaunchCooperativeKernelMultiDevice_v9000
    {311, 312, LaunchKind::kGraph},   // cudaGraphLaunch_v10000 .. cudaGraphLaunch_ptsz_v10000
    {430, 431, LaunchKind::kKernel},  // cudaLaunchKernelExC_v11060 .. cudaLaunchKernelExC_ptsz_v11060
    {482, 485, LaunchKind::kMemcpy},  // cudaMemcpyBatchAsync_v12080 .. cudaMemcpy3DBatchAsync_ptsz_v12080
    {505, 506, LaunchKind::kKernel},  // __cudaLaunchKernel_v13000 .. __cudaLaunchKernel_ptsz_v13000
    {509, 512, LaunchKind::kMemcpy},  // cudaMemcpyBatchAsync_v13000 .. cudaMemcpy3DBatchAsync_ptsz_v13000
    {554, 557,
     LaunchKind::kMemcpy},  // cudaMemcpyWithAttributesAsync_v13020 .. cudaMemcpy3DWithAttributesAsync_ptsz_v13020
};

inline constexpr std::uint32_t kCallIds = 1024;
/// By id. An id beyond it launches nothing.
template <std::size_t kCount>
[[nodiscard]] constexpr std::array<LaunchKind, kCallIds> launch_table(const LaunchCalls (&all)[kCount]) noexcept {
  std::array<LaunchKind, kCallIds> kinds{};
  for (const LaunchCalls& calls : all)
    for (std::uint32_t id = calls.first; id <= calls.last; ++id) kinds[id] = calls.kind;
  return kinds;
}
inline constexpr auto kDriverLaunchTable = launch_table(kDriverLaunchCalls);
inline constexpr auto kRuntimeLaunchTable = launch_table(kRuntimeLaunchCalls);

[[nodiscard]] constexpr LaunchKind launch_kind(bool driver, std::uint32_t id) noexcept {
  return id >= kCallIds ? LaunchKind::kNone : driver ? kDriverLaunchTable[id] : kRuntimeLaunchTable[id];
}

/// Calls that begin and end the capture of a stream; the first member of their parameters is the stream. Launches on it
/// in between put no work on the device.
inline constexpr std::uint32_t kDriverBeginCapture[] = {495, 496, 539, 540, 720, 721, 783, 814, 846, 847};
inline constexpr std::uint32_t kDriverEndCapture[] = {497, 498, 815, 816};
/// The same calls of the runtime, for records: a runtime call need not have a driver call's record inside.
inline constexpr std::uint32_t kRuntimeBeginCapture[] = {315, 316, 452, 453, 562, 563};
inline constexpr std::uint32_t kRuntimeEndCapture[] = {319, 320};

/// Calls that return once what was launched before them has finished.
inline constexpr std::uint32_t kDriverSynchronize[] = {17, 126, 440,
                                                       800};  // cuCtx-, cuStreamSynchronize, _ptsz, cuCtx- v2
/// Waits for an event, which says nothing of what was launched after it.
inline constexpr std::uint32_t kDriverEventSynchronize = 121;

/// Calls that may take long while the device has nothing to do: cuModuleLoad..., cuMemAlloc, cuMemAllocPitch,
/// cuMemFree, cuMemAllocHost, cuMemFreeHost, cuMemHostAlloc, their second versions, cuMemHostRegister,
/// cuMemHostUnregister, cuMemAllocManaged, cuMemCreate, cuMemRelease, cuMemMap, cuMemUnmap, cuGraphInstantiate...,
/// cuLibraryLoad...
inline constexpr std::uint32_t kDriverSlowCalls[] = {18,  19,  20,  21,  29,  31,  33,  37,  38,  39,
                                                     243, 244, 245, 271, 294, 301, 302, 371, 379, 513,
                                                     549, 550, 551, 552, 578, 643, 656, 657, 678, 679};

/// Of those that synchronise, the ones that wait for one stream: the first member of their parameters.
[[nodiscard]] constexpr bool is_stream_synchronize(std::uint32_t id) noexcept { return id == 126 || id == 440; }

/// Calls that give a node of a graph, or all of an executable one, other kernels or arguments:
/// cuGraphKernelNodeSetParams, cuGraphExecKernelNodeSetParams, cuGraphExecUpdate, their second versions,
/// cuGraphNodeSetParams, cuGraphExecNodeSetParams.
inline constexpr std::uint32_t kDriverGraphChanges[] = {521, 538, 561, 691, 692, 696, 713, 714};

/// Of these, the ones whose first argument is an executable graph, and of them those that give it all nodes of the
/// graph in the second.
[[nodiscard]] constexpr bool changes_executable_graph(std::uint32_t id) noexcept {
  return id == 538 || id == 561 || id == 692 || id == 696 || id == 714;
}
[[nodiscard]] constexpr bool is_graph_update(std::uint32_t id) noexcept { return id == 561 || id == 696; }

template <std::size_t kCount>
[[nodiscard]] constexpr bool is_among(const std::uint32_t (&ids)[kCount], std::uint32_t id) noexcept {
  return std::find(ids, ids + kCount, id) != ids + kCount;
}

enum class CaptureEdge : std::uint8_t { kNone, kBegin, kEnd };
[[nodiscard]] constexpr CaptureEdge capture_edge(bool driver, std::uint32_t id) noexcept {
  if (driver ? is_among(kDriverBeginCapture, id) : is_among(kRuntimeBeginCapture, id)) return CaptureEdge::kBegin;
  if (driver ? is_among(kDriverEndCapture, id) : is_among(kRuntimeEndCapture, id)) return CaptureEdge::kEnd;
  return CaptureEdge::kNone;
}

}  // namespace mfu

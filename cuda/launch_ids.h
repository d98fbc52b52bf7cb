// The API calls that put work on a stream, by CUPTI callback id.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace mfu {

enum class LaunchKind : std::uint8_t { kNone, kKernel, kGraph, kMemcpy, kMemset };

struct LaunchCall {
  std::uint32_t cbid;
  LaunchKind kind;
};

// Source: cupti_driver_cbid.h and cupti_runtime_cbid.h of CUPTI 13.0 and 13.5. Numbers instead of the enumerators,
// since no one header has all of them and an id never changes its meaning. A CUPTI that does not know an id refuses
// it, which is fine. Host functions put no work on the device.
inline constexpr LaunchCall kDriverLaunchCalls[] = {
    {43, LaunchKind::kMemcpy},   // cuMemcpyHtoD
    {45, LaunchKind::kMemcpy},   // cuMemcpyDtoH
    {47, LaunchKind::kMemcpy},   // cuMemcpyDtoD
    {49, LaunchKind::kMemcpy},   // cuMemcpyDtoA
    {51, LaunchKind::kMemcpy},   // cuMemcpyAtoD
    {53, LaunchKind::kMemcpy},   // cuMemcpyHtoA
    {54, LaunchKind::kMemcpy},   // cuMemcpyAtoH
    {55, LaunchKind::kMemcpy},   // cuMemcpyAtoA
    {56, LaunchKind::kMemcpy},   // cuMemcpy2D
    {57, LaunchKind::kMemcpy},   // cuMemcpy2DUnaligned
    {58, LaunchKind::kMemcpy},   // cuMemcpy3D
    {60, LaunchKind::kMemcpy},   // cuMemcpyHtoDAsync
    {62, LaunchKind::kMemcpy},   // cuMemcpyDtoHAsync
    {64, LaunchKind::kMemcpy},   // cuMemcpyDtoDAsync
    {66, LaunchKind::kMemcpy},   // cuMemcpyHtoAAsync
    {67, LaunchKind::kMemcpy},   // cuMemcpyAtoHAsync
    {68, LaunchKind::kMemcpy},   // cuMemcpy2DAsync
    {69, LaunchKind::kMemcpy},   // cuMemcpy3DAsync
    {71, LaunchKind::kMemset},   // cuMemsetD8
    {73, LaunchKind::kMemset},   // cuMemsetD16
    {75, LaunchKind::kMemset},   // cuMemsetD32
    {77, LaunchKind::kMemset},   // cuMemsetD2D8
    {79, LaunchKind::kMemset},   // cuMemsetD2D16
    {81, LaunchKind::kMemset},   // cuMemsetD2D32
    {115, LaunchKind::kKernel},  // cuLaunch
    {116, LaunchKind::kKernel},  // cuLaunchGrid
    {117, LaunchKind::kKernel},  // cuLaunchGridAsync
    {216, LaunchKind::kMemset},  // cuMemsetD8Async
    {218, LaunchKind::kMemset},  // cuMemsetD16Async
    {220, LaunchKind::kMemset},  // cuMemsetD32Async
    {222, LaunchKind::kMemset},  // cuMemsetD2D8Async
    {224, LaunchKind::kMemset},  // cuMemsetD2D16Async
    {226, LaunchKind::kMemset},  // cuMemsetD2D32Async
    {248, LaunchKind::kMemcpy},  // cuMemcpy_v2
    {249, LaunchKind::kMemset},  // cuMemsetD8_v2
    {250, LaunchKind::kMemset},  // cuMemsetD16_v2
    {251, LaunchKind::kMemset},  // cuMemsetD32_v2
    {252, LaunchKind::kMemset},  // cuMemsetD2D8_v2
    {253, LaunchKind::kMemset},  // cuMemsetD2D16_v2
    {254, LaunchKind::kMemset},  // cuMemsetD2D32_v2
    {276, LaunchKind::kMemcpy},  // cuMemcpyHtoD_v2
    {277, LaunchKind::kMemcpy},  // cuMemcpyHtoDAsync_v2
    {278, LaunchKind::kMemcpy},  // cuMemcpyDtoH_v2
    {279, LaunchKind::kMemcpy},  // cuMemcpyDtoHAsync_v2
    {280, LaunchKind::kMemcpy},  // cuMemcpyDtoD_v2
    {281, LaunchKind::kMemcpy},  // cuMemcpyDtoDAsync_v2
    {282, LaunchKind::kMemcpy},  // cuMemcpyAtoH_v2
    {283, LaunchKind::kMemcpy},  // cuMemcpyAtoHAsync_v2
    {284, LaunchKind::kMemcpy},  // cuMemcpyAtoD_v2
    {285, LaunchKind::kMemcpy},  // cuMemcpyDtoA_v2
    {286, LaunchKind::kMemcpy},  // cuMemcpyAtoA_v2
    {287, LaunchKind::kMemcpy},  // cuMemcpy2D_v2
    {288, LaunchKind::kMemcpy},  // cuMemcpy2DUnaligned_v2
    {289, LaunchKind::kMemcpy},  // cuMemcpy2DAsync_v2
    {290, LaunchKind::kMemcpy},  // cuMemcpy3D_v2
    {291, LaunchKind::kMemcpy},  // cuMemcpy3DAsync_v2
    {292, LaunchKind::kMemcpy},  // cuMemcpyHtoA_v2
    {293, LaunchKind::kMemcpy},  // cuMemcpyHtoAAsync_v2
    {305, LaunchKind::kMemcpy},  // cuMemcpy
    {306, LaunchKind::kMemcpy},  // cuMemcpyAsync
    {307, LaunchKind::kKernel},  // cuLaunchKernel
    {318, LaunchKind::kMemcpy},  // cuMemcpyPeer
    {319, LaunchKind::kMemcpy},  // cuMemcpyPeerAsync
    {320, LaunchKind::kMemcpy},  // cuMemcpy3DPeer
    {321, LaunchKind::kMemcpy},  // cuMemcpy3DPeerAsync
    {397, LaunchKind::kMemcpy},  // cuMemcpyHtoD_v2_ptds
    {398, LaunchKind::kMemcpy},  // cuMemcpyDtoH_v2_ptds
    {399, LaunchKind::kMemcpy},  // cuMemcpyDtoD_v2_ptds
    {400, LaunchKind::kMemcpy},  // cuMemcpyDtoA_v2_ptds
    {401, LaunchKind::kMemcpy},  // cuMemcpyAtoD_v2_ptds
    {402, LaunchKind::kMemcpy},  // cuMemcpyHtoA_v2_ptds
    {403, LaunchKind::kMemcpy},  // cuMemcpyAtoH_v2_ptds
    {404, LaunchKind::kMemcpy},  // cuMemcpyAtoA_v2_ptds
    {405, LaunchKind::kMemcpy},  // cuMemcpy2D_v2_ptds
    {406, LaunchKind::kMemcpy},  // cuMemcpy2DUnaligned_v2_ptds
    {407, LaunchKind::kMemcpy},  // cuMemcpy3D_v2_ptds
    {408, LaunchKind::kMemcpy},  // cuMemcpy_ptds
    {409, LaunchKind::kMemcpy},  // cuMemcpyPeer_ptds
    {410, LaunchKind::kMemcpy},  // cuMemcpy3DPeer_ptds
    {411, LaunchKind::kMemset},  // cuMemsetD8_v2_ptds
    {412, LaunchKind::kMemset},  // cuMemsetD16_v2_ptds
    {413, LaunchKind::kMemset},  // cuMemsetD32_v2_ptds
    {414, LaunchKind::kMemset},  // cuMemsetD2D8_v2_ptds
    {415, LaunchKind::kMemset},  // cuMemsetD2D16_v2_ptds
    {416, LaunchKind::kMemset},  // cuMemsetD2D32_v2_ptds
    {418, LaunchKind::kMemcpy},  // cuMemcpyAsync_ptsz
    {419, LaunchKind::kMemcpy},  // cuMemcpyHtoAAsync_v2_ptsz
    {420, LaunchKind::kMemcpy},  // cuMemcpyAtoHAsync_v2_ptsz
    {421, LaunchKind::kMemcpy},  // cuMemcpyHtoDAsync_v2_ptsz
    {422, LaunchKind::kMemcpy},  // cuMemcpyDtoHAsync_v2_ptsz
    {423, LaunchKind::kMemcpy},  // cuMemcpyDtoDAsync_v2_ptsz
    {424, LaunchKind::kMemcpy},  // cuMemcpy2DAsync_v2_ptsz
    {425, LaunchKind::kMemcpy},  // cuMemcpy3DAsync_v2_ptsz
    {426, LaunchKind::kMemcpy},  // cuMemcpyPeerAsync_ptsz
    {427, LaunchKind::kMemcpy},  // cuMemcpy3DPeerAsync_ptsz
    {428, LaunchKind::kMemset},  // cuMemsetD8Async_ptsz
    {429, LaunchKind::kMemset},  // cuMemsetD16Async_ptsz
    {430, LaunchKind::kMemset},  // cuMemsetD32Async_ptsz
    {431, LaunchKind::kMemset},  // cuMemsetD2D8Async_ptsz
    {432, LaunchKind::kMemset},  // cuMemsetD2D16Async_ptsz
    {433, LaunchKind::kMemset},  // cuMemsetD2D32Async_ptsz
    {442, LaunchKind::kKernel},  // cuLaunchKernel_ptsz
    {477, LaunchKind::kKernel},  // cuLaunchCooperativeKernel
    {478, LaunchKind::kKernel},  // cuLaunchCooperativeKernel_ptsz
    {480, LaunchKind::kKernel},  // cuLaunchCooperativeKernelMultiDevice
    {514, LaunchKind::kGraph},   // cuGraphLaunch
    {515, LaunchKind::kGraph},   // cuGraphLaunch_ptsz
    {652, LaunchKind::kKernel},  // cuLaunchKernelEx
    {653, LaunchKind::kKernel},  // cuLaunchKernelEx_ptsz
    {761, LaunchKind::kMemcpy},  // cuMemBatchDecompressAsync
    {762, LaunchKind::kMemcpy},  // cuMemBatchDecompressAsync_ptsz
    {776, LaunchKind::kMemcpy},  // cuMemcpyBatchAsync
    {777, LaunchKind::kMemcpy},  // cuMemcpyBatchAsync_ptsz
    {778, LaunchKind::kMemcpy},  // cuMemcpy3DBatchAsync
    {779, LaunchKind::kMemcpy},  // cuMemcpy3DBatchAsync_ptsz
    {796, LaunchKind::kMemcpy},  // cuMemcpyBatchAsync_v2
    {797, LaunchKind::kMemcpy},  // cuMemcpyBatchAsync_v2_ptsz
    {798, LaunchKind::kMemcpy},  // cuMemcpy3DBatchAsync_v2
    {799, LaunchKind::kMemcpy},  // cuMemcpy3DBatchAsync_v2_ptsz
    {819, LaunchKind::kGraph},   // cuGraphLaunchWithArguments
    {828, LaunchKind::kGraph},   // cuSubgridScheduleLaunch
    {829, LaunchKind::kGraph},   // cuSubgridScheduleLaunch_ptsz
    {837, LaunchKind::kMemcpy},  // cuMemcpyWithAttributesAsync
    {838, LaunchKind::kMemcpy},  // cuMemcpyWithAttributesAsync_ptsz
    {839, LaunchKind::kMemcpy},  // cuMemcpy3DWithAttributesAsync
    {840, LaunchKind::kMemcpy},  // cuMemcpy3DWithAttributesAsync_ptsz
};

inline constexpr LaunchCall kRuntimeLaunchCalls[] = {
    {13, LaunchKind::kKernel},   // cudaLaunch_v3020
    {31, LaunchKind::kMemcpy},   // cudaMemcpy_v3020
    {32, LaunchKind::kMemcpy},   // cudaMemcpy2D_v3020
    {33, LaunchKind::kMemcpy},   // cudaMemcpyToArray_v3020
    {34, LaunchKind::kMemcpy},   // cudaMemcpy2DToArray_v3020
    {35, LaunchKind::kMemcpy},   // cudaMemcpyFromArray_v3020
    {36, LaunchKind::kMemcpy},   // cudaMemcpy2DFromArray_v3020
    {37, LaunchKind::kMemcpy},   // cudaMemcpyArrayToArray_v3020
    {38, LaunchKind::kMemcpy},   // cudaMemcpy2DArrayToArray_v3020
    {39, LaunchKind::kMemcpy},   // cudaMemcpyToSymbol_v3020
    {40, LaunchKind::kMemcpy},   // cudaMemcpyFromSymbol_v3020
    {41, LaunchKind::kMemcpy},   // cudaMemcpyAsync_v3020
    {42, LaunchKind::kMemcpy},   // cudaMemcpyToArrayAsync_v3020
    {43, LaunchKind::kMemcpy},   // cudaMemcpyFromArrayAsync_v3020
    {44, LaunchKind::kMemcpy},   // cudaMemcpy2DAsync_v3020
    {45, LaunchKind::kMemcpy},   // cudaMemcpy2DToArrayAsync_v3020
    {46, LaunchKind::kMemcpy},   // cudaMemcpy2DFromArrayAsync_v3020
    {47, LaunchKind::kMemcpy},   // cudaMemcpyToSymbolAsync_v3020
    {48, LaunchKind::kMemcpy},   // cudaMemcpyFromSymbolAsync_v3020
    {49, LaunchKind::kMemset},   // cudaMemset_v3020
    {50, LaunchKind::kMemset},   // cudaMemset2D_v3020
    {51, LaunchKind::kMemset},   // cudaMemsetAsync_v3020
    {52, LaunchKind::kMemset},   // cudaMemset2DAsync_v3020
    {142, LaunchKind::kMemset},  // cudaMemset3D_v3020
    {143, LaunchKind::kMemset},  // cudaMemset3DAsync_v3020
    {144, LaunchKind::kMemcpy},  // cudaMemcpy3D_v3020
    {145, LaunchKind::kMemcpy},  // cudaMemcpy3DAsync_v3020
    {160, LaunchKind::kMemcpy},  // cudaMemcpyPeer_v4000
    {161, LaunchKind::kMemcpy},  // cudaMemcpyPeerAsync_v4000
    {162, LaunchKind::kMemcpy},  // cudaMemcpy3DPeer_v4000
    {163, LaunchKind::kMemcpy},  // cudaMemcpy3DPeerAsync_v4000
    {211, LaunchKind::kKernel},  // cudaLaunchKernel_v7000
    {213, LaunchKind::kKernel},  // cudaLaunch_ptsz_v7000
    {214, LaunchKind::kKernel},  // cudaLaunchKernel_ptsz_v7000
    {215, LaunchKind::kMemcpy},  // cudaMemcpy_ptds_v7000
    {216, LaunchKind::kMemcpy},  // cudaMemcpy2D_ptds_v7000
    {217, LaunchKind::kMemcpy},  // cudaMemcpyToArray_ptds_v7000
    {218, LaunchKind::kMemcpy},  // cudaMemcpy2DToArray_ptds_v7000
    {219, LaunchKind::kMemcpy},  // cudaMemcpyFromArray_ptds_v7000
    {220, LaunchKind::kMemcpy},  // cudaMemcpy2DFromArray_ptds_v7000
    {221, LaunchKind::kMemcpy},  // cudaMemcpyArrayToArray_ptds_v7000
    {222, LaunchKind::kMemcpy},  // cudaMemcpy2DArrayToArray_ptds_v7000
    {223, LaunchKind::kMemcpy},  // cudaMemcpyToSymbol_ptds_v7000
    {224, LaunchKind::kMemcpy},  // cudaMemcpyFromSymbol_ptds_v7000
    {225, LaunchKind::kMemcpy},  // cudaMemcpyAsync_ptsz_v7000
    {226, LaunchKind::kMemcpy},  // cudaMemcpyToArrayAsync_ptsz_v7000
    {227, LaunchKind::kMemcpy},  // cudaMemcpyFromArrayAsync_ptsz_v7000
    {228, LaunchKind::kMemcpy},  // cudaMemcpy2DAsync_ptsz_v7000
    {229, LaunchKind::kMemcpy},  // cudaMemcpy2DToArrayAsync_ptsz_v7000
    {230, LaunchKind::kMemcpy},  // cudaMemcpy2DFromArrayAsync_ptsz_v7000
    {231, LaunchKind::kMemcpy},  // cudaMemcpyToSymbolAsync_ptsz_v7000
    {232, LaunchKind::kMemcpy},  // cudaMemcpyFromSymbolAsync_ptsz_v7000
    {233, LaunchKind::kMemset},  // cudaMemset_ptds_v7000
    {234, LaunchKind::kMemset},  // cudaMemset2D_ptds_v7000
    {235, LaunchKind::kMemset},  // cudaMemsetAsync_ptsz_v7000
    {236, LaunchKind::kMemset},  // cudaMemset2DAsync_ptsz_v7000
    {243, LaunchKind::kMemset},  // cudaMemset3D_ptds_v7000
    {244, LaunchKind::kMemset},  // cudaMemset3DAsync_ptsz_v7000
    {245, LaunchKind::kMemcpy},  // cudaMemcpy3D_ptds_v7000
    {246, LaunchKind::kMemcpy},  // cudaMemcpy3DAsync_ptsz_v7000
    {249, LaunchKind::kMemcpy},  // cudaMemcpy3DPeer_ptds_v7000
    {250, LaunchKind::kMemcpy},  // cudaMemcpy3DPeerAsync_ptsz_v7000
    {269, LaunchKind::kKernel},  // cudaLaunchCooperativeKernel_v9000
    {270, LaunchKind::kKernel},  // cudaLaunchCooperativeKernel_ptsz_v9000
    {272, LaunchKind::kKernel},  // cudaLaunchCooperativeKernelMultiDevice_v9000
    {311, LaunchKind::kGraph},   // cudaGraphLaunch_v10000
    {312, LaunchKind::kGraph},   // cudaGraphLaunch_ptsz_v10000
    {430, LaunchKind::kKernel},  // cudaLaunchKernelExC_v11060
    {431, LaunchKind::kKernel},  // cudaLaunchKernelExC_ptsz_v11060
    {505, LaunchKind::kKernel},  // __cudaLaunchKernel_v13000: what nvcc 13 makes of <<<>>>
    {506, LaunchKind::kKernel},  // __cudaLaunchKernel_ptsz_v13000
    {482, LaunchKind::kMemcpy},  // cudaMemcpyBatchAsync_v12080
    {483, LaunchKind::kMemcpy},  // cudaMemcpyBatchAsync_ptsz_v12080
    {484, LaunchKind::kMemcpy},  // cudaMemcpy3DBatchAsync_v12080
    {485, LaunchKind::kMemcpy},  // cudaMemcpy3DBatchAsync_ptsz_v12080
    {505, LaunchKind::kKernel},  // __cudaLaunchKernel_v13000: what nvcc 13 makes of <<<>>>
    {506, LaunchKind::kKernel},  // __cudaLaunchKernel_ptsz_v13000
    {509, LaunchKind::kMemcpy},  // cudaMemcpyBatchAsync_v13000
    {510, LaunchKind::kMemcpy},  // cudaMemcpyBatchAsync_ptsz_v13000
    {511, LaunchKind::kMemcpy},  // cudaMemcpy3DBatchAsync_v13000
    {512, LaunchKind::kMemcpy},  // cudaMemcpy3DBatchAsync_ptsz_v13000
    {554, LaunchKind::kMemcpy},  // cudaMemcpyWithAttributesAsync_v13020
    {555, LaunchKind::kMemcpy},  // cudaMemcpyWithAttributesAsync_ptsz_v13020
    {556, LaunchKind::kMemcpy},  // cudaMemcpy3DWithAttributesAsync_v13020
    {557, LaunchKind::kMemcpy},  // cudaMemcpy3DWithAttributesAsync_ptsz_v13020
};

/// What a callback id of a domain means to us; an id beyond the table means nothing.
class LaunchTable {
 public:
  template <std::size_t kCount>
  constexpr explicit LaunchTable(const LaunchCall (&calls)[kCount]) {
    for (const LaunchCall& call : calls) kind_[call.cbid] = call.kind;
  }
  [[nodiscard]] constexpr LaunchKind of(std::uint32_t id) const noexcept {
    return id < kIds ? kind_[id] : LaunchKind::kNone;
  }

 private:
  static constexpr std::uint32_t kIds = 1024;
  std::array<LaunchKind, kIds> kind_{};
};
inline constexpr LaunchTable kDriverLaunchTable(kDriverLaunchCalls);
inline constexpr LaunchTable kRuntimeLaunchTable(kRuntimeLaunchCalls);

[[nodiscard]] constexpr LaunchKind launch_kind(bool driver, std::uint32_t id) noexcept {
  return driver ? kDriverLaunchTable.of(id) : kRuntimeLaunchTable.of(id);
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
/// Of these, the ones that wait for one stream: the first member of their parameters.
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

enum class CaptureEdge : std::uint8_t { kNone, kBegin, kEnd };
[[nodiscard]] constexpr CaptureEdge capture_edge(bool driver, std::uint32_t id) noexcept {
  const auto among = [id](const auto& ids) { return std::find(std::begin(ids), std::end(ids), id) != std::end(ids); };
  if (driver ? among(kDriverBeginCapture) : among(kRuntimeBeginCapture)) return CaptureEdge::kBegin;
  if (driver ? among(kDriverEndCapture) : among(kRuntimeEndCapture)) return CaptureEdge::kEnd;
  return CaptureEdge::kNone;
}

}  // namespace mfu

// Who else profiles this process, and what is done about it: the one table, which injection/README.md shows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/units.h"

namespace mfu {

enum class OtherProfiler : std::uint8_t {
  kForeignTool,
  kMps,
  kSlotHolder,
  kShared,
  kOwnForms,
  kRegistering,
  kTaker,
  kTakerWithEnd,
  kWholeGraphs,
};

struct Coexistence {
  OtherProfiler who;
  const char* name;
  const char* seen_by;
  const char* level;           ///< of the library from then on; `as before`: it stays
  const char* then;            ///< the library's answer
  bool takes_records = false;  ///< while it works it has CUPTI's records
  DurationNs gone_after = 0;   ///< silence after which it has finished and we register again; 0: never
};

inline constexpr Coexistence kCoexistence[] = {
    {OtherProfiler::kForeignTool, "Nsight Systems, Nsight Compute, compute-sanitizer, cuda-gdb",
     "its library is in the process (`entry/foreign_tools`)", "inert", "CUPTI is not opened; one line", true},
    {OtherProfiler::kMps, "MPS, with CUPTI or a driver older than CUDA 13.0",
     "CUDA_MPS_PIPE_DIRECTORY, or the control pipe (`entry/cupti_ladder`)", "ranges",
     "nothing is traced: cooperative kernels can hang; MFU_PROFILER=own traces all the same"},
    {OtherProfiler::kSlotHolder, "a tool that holds CUPTI's one subscriber", "cuptiSubscribe refuses", "ranges",
     "it keeps it", true},
    {OtherProfiler::kShared, "torch.profiler with MFU_PROFILER=share", "MFU_PROFILER", "share",
     "no subscriber: launches are known by their API records; graphs keep their nodes"},
    {OtherProfiler::kOwnForms, "other subscribers with MFU_CUPTI_V2=1 and CUPTI 13.3 or newer",
     "MFU_CUPTI_V2 (`CuptiSession::own_forms`)", "full", "kinds, callbacks and buffers of our own: nothing is taken"},
    {OtherProfiler::kRegistering, "torch.profiler, about to begin",
     "its call of cuptiActivityRegisterCallbacks (`entry/host_calls`)", "as before",
     "what CUPTI holds is flushed first, and the end is looked for 20 times a second", true},
    {OtherProfiler::kTaker, "any activity client, with CUPTI before 13.0",
     "evidence (`ClientWatch`): foreign buffers, refused calls, launches or finished work without records", "as before",
     "its windows are not measured; register again when it has been silent", true, 30 * kNsPerSecond},
    {OtherProfiler::kTakerWithEnd, "the same, where the end of a session of Kineto is seen (CUPTI 13.0 or newer)",
     "the same; its end by PER_THREAD_ACTIVITY_BUFFER, which Kineto sets to 0", "as before",
     "its windows are not measured; register again at its end, or when it has been silent", true, 600 * kNsPerSecond},
    {OtherProfiler::kWholeGraphs, "anybody, with MFU_GRAPHS=auto or graph", "GRAPH_TRACE is on before the first graph",
     "as before", "one record a graph launch, and none for its nodes: the other's rows lack them too"},
};

[[nodiscard]] constexpr const Coexistence& coexistence_with(OtherProfiler who) noexcept {
  return kCoexistence[static_cast<std::size_t>(who)];
}
static_assert([] {
  for (std::size_t i = 0; i < sizeof kCoexistence / sizeof *kCoexistence; ++i)
    if (kCoexistence[i].who != static_cast<OtherProfiler>(i)) return false;
  return true;
}());

}  // namespace mfu

// Work of known length on the GPU, to hold a measurement against.
#pragma once

#include <cstdint>
#include <string>

namespace mfu {

/// The work that was launched, as its program knows it. Times by CUDA events, which CUPTI has no part in.
struct KnownWork {
  std::uint64_t launches = 0;      ///< calls that put work on a stream
  std::uint64_t kernels = 0;       ///< kernels that ran to their end, those inside graphs among them
  std::uint64_t unfinished = 0;    ///< launches whose kernel still runs when the process ends
  double kernel_s = 0;             ///< sum of the lengths that the kernels were given [s]
  double by_events_s = 0;          ///< of the kernels that ran alone between two events: their sum by events [s]
  double measured_alone_s = 0;     ///< the same kernels: the lengths they were given [s]
  std::int64_t loop_begin_ns = 0;  ///< the loop that never waits: CLOCK_REALTIME
  std::int64_t loop_end_ns = 0;
};

/// Runs on device 0 of this process: single kernels between events, two streams at once, a graph, launches that a
/// capture records, `loop_s` seconds of launches without any synchronisation, and one kernel that still runs at the
/// end. \param error gets one clause where a call of the driver fails. \return false then.
[[nodiscard]] bool run_known_work(double loop_s, KnownWork& work, std::string& error);

}  // namespace mfu

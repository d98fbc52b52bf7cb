// A stall of the GPU's work, and what is known of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "core/attribution/record_queue.h"
#include "core/drain/drain.h"
#include "core/drain/stall_watch.h"
#include "core/kernels/kernel_names.h"
#include "core/sinks/sink.h"
#include "injection/threads/look_thread.h"

namespace mfu {

/// [mfu-drain] CUPTI holds records of finished work back while work in the same buffer runs, so it is unknown which
/// kernel of those under way has stalled. A collective is named first, since it waits for other ranks.
class Stalls {
 public:
  /// \param least_s MFU_STALL [s].
  explicit Stalls(double least_s) noexcept : watch_(static_cast<DurationNs>(least_s * 1e9)) {}

  void took(const RecordBatch& batch, KernelNames& names, const Attribution& attribution) {
    for (const ActivityRecord& record : std::span(batch.records).first(batch.count))
      if (names.class_of(record.name) == KernelClass::kComm)
        ++comm_kernels_[attribution.map().place_of(record.correlation).lane()];
  }
  /// Once per tick. \param records_come none is lost, and none goes to another client. \param records so far.
  /// \param host asked where the host is; nullptr: there is none. \return an event where a stall begins or ends.
  [[nodiscard]] std::optional<RunEvent> look(const Drain& drain, const Attribution& attribution, bool records_come,
                                             std::uint64_t records, LookThread* host);
  /// A launch has not ended.
  [[nodiscard]] bool waits() const noexcept { return waits_; }
  /// The stall that lasts; none: nothing has stalled.
  [[nodiscard]] const std::optional<Stall>& now() const noexcept { return stall_; }

 private:
  StallWatch watch_;
  std::map<std::uint32_t, std::uint64_t> comm_kernels_;  ///< with a record, by the lane of their stream
  bool waits_ = false;
  std::optional<Stall> stall_;
};

}  // namespace mfu

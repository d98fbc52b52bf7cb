// CUPTI's activity records > ActivityRecord, for every CUPTI from 11.1 on with one set of offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/attribution/context_devices.h"
#include "core/attribution/graph_products.h"
#include "core/attribution/record_queue.h"
#include "core/base/counters.h"
#include "core/kernels/kernel_names.h"
#include "cuda/cupti_api.h"

namespace mfu {

/// Decodes whole buffers inside CUPTI's completed callback: names and the walk from record to record are good only
/// there. [CUPTI's worker, or the flushing thread] No lock but at the first sight of a kernel name.
class ActivityDecoder {
 public:
  /// \param nodes products of the kernels that CUDA graphs launch; nullptr: none are known
  ActivityDecoder(const CuptiApi& api, KernelNames& names, ContextDevices& contexts, RecordQueue& queue,
                  Counters& counters, const GraphProducts* nodes = nullptr)
      : api_(api), names_(names), contexts_(contexts), queue_(queue), counters_(counters), nodes_(nodes) {}

  /// From now on records are those of a subscriber with separate buffers.
  void read_for(CUpti_SubscriberHandle subscriber) noexcept { subscriber_ = subscriber; }
  /// \param may_wait the calling thread is our own, so it may give the drain a moment to make room.
  void decode(std::uint8_t* buffer, std::size_t valid_bytes, bool may_wait) noexcept;

 private:
  [[nodiscard]] RecordBatch* take_batch(bool may_wait) noexcept;

  const CuptiApi& api_;
  KernelNames& names_;
  ContextDevices& contexts_;
  RecordQueue& queue_;
  Counters& counters_;
  const GraphProducts* nodes_;
  CUpti_SubscriberHandle subscriber_ = nullptr;  ///< nullptr: the buffers are the process's
};

}  // namespace mfu

// The GPUs that a run works on: who they are, and what their peak is.
#pragma once

#include <utility>
#include <vector>

#include "core/account/ledger.h"
#include "core/attribution/record_queue.h"
#include "core/config/config.h"
#include "core/kernels/kernel_names.h"
#include "core/peak/peak.h"
#include "core/sinks/sink.h"

namespace mfu {

/// [mfu-drain] Devices become known with their first record. The driver and NVML are asked then, on this thread: never
/// inside a callback, and never a context.
class RunDevices {
 public:
  RunDevices(const Config& config, KernelNames& names);

  /// Looks for devices that the ledger has and that are new, and gives the ledger their peak. True when there is one,
  /// or when the peak of one changed. Where the kernels say the data type, the first device waits to the end of its
  /// first window for them: a model may begin with small products in another type, as rotary embeddings in fp32.
  /// \param last at exit nothing waits.
  bool find(Ledger& ledger, TimeNs now, bool last);
  /// Kernels that ran: while it is unknown of the operands' dtype, the one in which matmuls run longest is taken.
  void took(const RecordBatch& batch) noexcept {
    if (!by_kernels()) return;
    for (std::uint32_t i = 0; i < batch.count; ++i) {
      const ActivityRecord& r = batch.records[i];
      if (r.kind == ActivityKind::kKernel && r.end_ns > r.begin_ns) names_.ran(r.name, r.end_ns - r.begin_ns);
    }
  }

  [[nodiscard]] const std::vector<DeviceInfo>& infos() const noexcept { return infos_; }
  /// By device.
  [[nodiscard]] const std::vector<std::pair<DeviceFacts, Peak>>& facts() const noexcept { return facts_; }
  /// Asks NVML for the clock of each device, and puts the ratio to the peak's clock into the rows of `window`.
  void add_clock_ratios(WindowSummary& window) const;

 private:
  /// Neither config nor model names the operands' dtype, so that the kernels' names do.
  [[nodiscard]] bool by_kernels() const noexcept { return !config_.peak.dtype && !of_model_; }

  bool look_at_kernels(Ledger& ledger, TimeNs now, bool last);
  DeviceInfo describe(Ledger& ledger, std::uint32_t device, const std::string& uuid);

  const Config& config_;
  KernelNames& names_;
  std::optional<DType> of_model_, of_kernels_;  ///< of the matmul operands
  TimeNs look_at_ = 0;                          ///< when the kernels are asked again; 0: no device so far
  bool looked_ = false;
  std::vector<bool> known_;
  std::vector<DeviceInfo> infos_;
  std::vector<std::pair<DeviceFacts, Peak>> facts_;
};

}  // namespace mfu

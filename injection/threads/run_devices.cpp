#include "injection/threads/run_devices.h"

#include "core/rows/metrics.h"

#include "cuda/device.h"

namespace mfu {

RunDevices::RunDevices(const Config& config, KernelNames& names) : config_(config), names_(names) {
  of_model_ = config.model ? config.model->dtype() : std::nullopt;
}

bool RunDevices::find(Ledger& ledger, TimeNs now, bool last) {
  bool any = false;
  for (std::uint32_t d = 0; d < ledger.devices(); ++d) {
    if (!ledger.has_device(d) || (d < known_.size() && known_[d])) continue;
    if (by_kernels() && !of_kernels_ && !(of_kernels_ = names_.matmul_dtype_seen()) && !last) {
      const DurationNs window = ledger.window_ns();
      if (dtype_wait_until_ == 0) dtype_wait_until_ = ledger.origin() + ((now - ledger.origin()) / window + 1) * window;
      if (now < dtype_wait_until_) return any;
    }
    if (known_.size() <= d) known_.resize(d + 1, false);
    known_[d] = true;
    const auto identity = identify_device(d);
    const DeviceFacts facts = identity ? identity->facts : DeviceFacts{};
    const OperandDType operands = operand_dtype(config_.peak.dtype, of_model_, of_kernels_);
    const Peak peak = find_peak(facts, operands.dtype, config_.peak);
    ledger.set_peak(d, peak);
    if (facts_.size() <= d) facts_.resize(d + 1);
    facts_[d] = {facts, peak};
    DeviceInfo info = describe_device(d, facts, peak, operands);
    info.uuid = identity ? identity->uuid : "";
    infos_.push_back(std::move(info));
    any = true;
  }
  return any;
}

void RunDevices::add_clock_ratios(WindowSummary& window) const {
  for (const DeviceInfo& device : infos_) {
    const auto clock = sm_clock_khz(device.uuid);
    if (!clock) continue;
    for (RegionSummary& region : window.regions)
      if (region.device == device.device) set_clock_ratio(clock_ratio(*clock, facts_[device.device].second), region);
  }
}

}  // namespace mfu

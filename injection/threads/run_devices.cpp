#include "injection/threads/run_devices.h"

#include <utility>

#include "core/rows/metrics.h"

#include "cuda/device.h"
#include "cuda/nvml.h"

namespace mfu {

RunDevices::RunDevices(const Config& config, KernelNames& names) : config_(config), names_(names) {
  of_model_ = config.model ? config.model->dtype() : std::nullopt;
}

/// At the end of each window: the dtype of most FLOP may be another one by now.
bool RunDevices::look_at_kernels(Ledger& ledger, TimeNs now, bool last) {
  const DurationNs window = ledger.window_ns();
  if (look_at_ == 0) look_at_ = ledger.origin() + ((now - ledger.origin()) / window + 1) * window;
  if (now < look_at_ && !last) return false;
  look_at_ = now + window;
  looked_ = true;
  const std::optional<DType> before = std::exchange(of_kernels_, names_.matmul_dtype_seen());
  if (before == of_kernels_) return false;
  for (DeviceInfo& info : infos_) info = describe(ledger, info.device, info.uuid);
  return !infos_.empty();
}

DeviceInfo RunDevices::describe(Ledger& ledger, std::uint32_t device, const std::string& uuid) {
  const OperandDType operands = operand_dtype(config_.peak.dtype, of_model_, of_kernels_);
  auto& [facts, peak] = facts_[device];
  peak = find_peak(facts, operands.dtype, config_.peak);
  ledger.set_peak(device, peak);
  DeviceInfo info = describe_device(device, facts, peak, operands);
  info.uuid = uuid;
  return info;
}

bool RunDevices::find(Ledger& ledger, TimeNs now, bool last) {
  std::vector<std::uint32_t> fresh;
  for (std::uint32_t d = 0; d < ledger.devices(); ++d)
    if (ledger.has_device(d) && (d >= known_.size() || !known_[d])) fresh.push_back(d);
  if (fresh.empty() && infos_.empty()) return false;
  bool any = by_kernels() && look_at_kernels(ledger, now, last);
  if (by_kernels() && !looked_ && !last) return false;
  for (const std::uint32_t d : fresh) {
    if (known_.size() <= d) known_.resize(d + 1, false);
    known_[d] = true;
    const auto identity = identify_device(d);
    if (facts_.size() <= d) facts_.resize(d + 1);
    facts_[d].first = identity ? identity->facts : DeviceFacts{};
    infos_.push_back(describe(ledger, d, identity ? identity->uuid : ""));
    any = true;
  }
  return any;
}

void RunDevices::add_clock_ratios(WindowSummary& window) const {
  for (const DeviceInfo& device : infos_) {
    const auto nvml = NvmlDevice::find(device.uuid);
    const auto clock = nvml ? nvml->sm_clock_khz() : std::nullopt;
    if (!clock) continue;
    for (RegionSummary& region : window.regions)
      if (region.device == device.device) set_clock_ratio(clock_ratio(*clock, facts_[device.device].second), region);
  }
}

}  // namespace mfu

#include "core/rows/device_info.h"

namespace mfu {

DeviceInfo describe_device(std::uint32_t device, const DeviceFacts& facts, const Peak& peak,
                           const OperandDType& operands) {
  DeviceInfo info;
  info.device = device;
  info.name = facts.name;
  info.peak_flop_per_s = peak.flop_per_s;
  info.peak_bytes_per_s = peak.bytes_per_s;
  info.peak_source = peak.source;
  info.dtype = std::string(name(peak.dtype));
  info.dtype_source = operands.source;
  info.sparse = peak.sparse;
  return info;
}

}  // namespace mfu

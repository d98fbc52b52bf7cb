#include "core/sinks/row_peak.h"

namespace mfu {
namespace {

std::optional<double> mean_peak(const std::vector<DeviceInfo>& devices, const RegionSummary& row,
                                std::optional<double> DeviceInfo::*peak) noexcept {
  double sum = 0;
  int count = 0;
  for (const DeviceInfo& d : devices) {
    if (row.device && d.device != *row.device) continue;
    if (!(d.*peak) || !(*(d.*peak) > 0)) return std::nullopt;
    sum += *(d.*peak);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

}  // namespace

RowPeak row_peak(const std::vector<DeviceInfo>& devices, const RegionSummary& row) noexcept {
  return {mean_peak(devices, row, &DeviceInfo::peak_flop_per_s),
          mean_peak(devices, row, &DeviceInfo::peak_bytes_per_s)};
}

}  // namespace mfu

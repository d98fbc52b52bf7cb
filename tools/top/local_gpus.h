// The GPUs of this machine by its driver: memory, power, temperature, clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace mfu {

struct GpuNow {
  std::optional<std::uint64_t> memory_used, memory_total;  ///< [B]
  std::optional<double> power_w, power_limit_w;            ///< [W]
  std::optional<int> temperature_c;                        ///< [deg C]
  std::optional<int> clock_mhz;                            ///< SM clock [MHz]
};

/// By UUID, as the run directory's `devices[].uuid` names them.
using GpusNow = std::map<std::string, GpuNow>;

/// NVML, opened at the first look. Without it, or without a GPU, nothing is known. One thread.
class LocalGpus {
 public:
  LocalGpus() = default;
  ~LocalGpus();
  LocalGpus(const LocalGpus&) = delete;
  LocalGpus& operator=(const LocalGpus&) = delete;
  /// A few calls of the driver per GPU.
  [[nodiscard]] GpusNow look();

 private:
  bool open();
  void* library_ = nullptr;
  bool tried_ = false, usable_ = false;
};

}  // namespace mfu

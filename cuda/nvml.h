// Clock, energy and throttling of a device as NVML reports them. Asked for on our own threads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace mfu {

/// Loads NVML if the machine has one, and calls nothing of it. [the thread that starts the guest] Loading a library
/// opens its file for a moment. Done later, beside the running host, that could take the descriptor the host expects
/// next.
void load_nvml() noexcept;

/// A device by its UUID as the driver says it. Calls may take milliseconds (3 ms for the energy on an H100).
class NvmlDevice {
 public:
  /// nullopt where NVML is not loaded, or does not know the device.
  [[nodiscard]] static std::optional<NvmlDevice> find(const std::string& uuid);

  /// SM clock at this moment [kHz].
  [[nodiscard]] std::optional<std::uint32_t> sm_clock_khz() const;
  static constexpr int kNoFunction = 13;  ///< NVML_ERROR_FUNCTION_NOT_FOUND
  /// Since the driver was loaded [J], by nvmlDeviceGetTotalEnergyConsumption. \param refused its result.
  [[nodiscard]] std::optional<double> joules(int& refused) const;
  /// Time in which power, heat or the board's limit held the clock down so far [s] (nvmlDeviceGetViolationStatus).
  [[nodiscard]] std::array<std::optional<double>, 3> throttled_s() const;
  /// It is a part of a GPU (MIG), whose energy nobody counts; its clock is that of the whole one.
  [[nodiscard]] bool is_part() const noexcept { return is_part_; }

 private:
  void* device_ = nullptr;
  bool is_part_ = false;
};

}  // namespace mfu

// Devices as the driver has them. Asked for on our own threads only, after the host has initialised CUDA; the
// versions may be called earlier.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/peak/peak.h"

namespace mfu {

struct DeviceIdentity {
  DeviceFacts facts;
  std::string uuid;  ///< `GPU-...` as the driver says, of a part of a GPU (MIG) too; or empty
};

/// Facts of the device with this CUDA ordinal, from the libcuda that the process has open; nothing is loaded. Facts
/// that the driver does not give stay zero. nullopt when there is no libcuda or no such device.
[[nodiscard]] std::optional<DeviceIdentity> identify_device(std::uint32_t ordinal);

/// Whether the process has a libcuda that was initialised.
[[nodiscard]] bool cuda_initialised();

inline constexpr int kNoDevice = 100;  ///< CUDA_ERROR_NO_DEVICE

/// [inside cuInit] cuInit(0) of the driver that the process has open, called within the host's own call: the driver
/// answers as it will answer the host (tried with 535.261 and 550.163), and CUPTI makes the same call when it cannot
/// work. 0 also where there is no driver.
[[nodiscard]] int nested_init_result();

/// A result of cuInit in words, with its number: `cuInit fails with 802: the system is not ready; ...`.
[[nodiscard]] std::string init_error_text(int result);

/// Is the driver's library in the process? Loads nothing.
[[nodiscard]] bool driver_mapped();

/// [also inside cuInit] CUDA version of the driver that the process has open, 13000 for 13.0; 0 when there is none.
/// Nothing is loaded and nothing initialised.
[[nodiscard]] int mapped_driver_version();

/// The same of the machine's driver. Loads libcuda: for the command line, not the
/// guest.
[[nodiscard]] int driver_version();

}  // namespace mfu

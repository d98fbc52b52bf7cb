#include "tools/top/local_gpus.h"

#include <dlfcn.h>

#include <array>

namespace mfu {
namespace {

// The few declarations of nvml.h that are needed: the command is built without the driver's headers.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
constexpr unsigned kClockSm = 1;       // NVML_CLOCK_SM
constexpr unsigned kSensorGpu = 0;     // NVML_TEMPERATURE_GPU
constexpr unsigned kUuidLength = 96;   // NVML_DEVICE_UUID_V2_BUFFER_SIZE
constexpr unsigned kMostDevices = 64;  // of one machine; more is no sane answer

template <typename... Arguments>
bool call(void* library, const char* name, Arguments... arguments) {
  using Function = int (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr && function(arguments...) == 0;  // NVML_SUCCESS
}

}  // namespace

LocalGpus::~LocalGpus() {
  if (usable_) call(library_, "nvmlShutdown");
  if (library_ != nullptr) ::dlclose(library_);
}

bool LocalGpus::open() {
  if (tried_) return usable_;
  tried_ = true;
  library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  usable_ = library_ != nullptr && call(library_, "nvmlInit_v2");
  return usable_;
}

GpusNow LocalGpus::look() {
  GpusNow gpus;
  unsigned count = 0;
  if (!open() || !call(library_, "nvmlDeviceGetCount_v2", &count)) return gpus;
  for (unsigned i = 0; i < count && i < kMostDevices; ++i) {
    Device device = nullptr;
    std::array<char, kUuidLength> uuid{};
    if (!call(library_, "nvmlDeviceGetHandleByIndex_v2", i, &device) ||
        !call(library_, "nvmlDeviceGetUUID", device, uuid.data(), kUuidLength))
      continue;
    uuid.back() = '\0';
    GpuNow& now = gpus[uuid.data()];
    Memory memory{};
    if (call(library_, "nvmlDeviceGetMemoryInfo", device, &memory) && memory.total != 0) {
      now.memory_used = memory.used;
      now.memory_total = memory.total;
    }
    unsigned value = 0;
    if (call(library_, "nvmlDeviceGetPowerUsage", device, &value)) now.power_w = value / 1000.0;
    if (call(library_, "nvmlDeviceGetEnforcedPowerLimit", device, &value)) now.power_limit_w = value / 1000.0;
    if (call(library_, "nvmlDeviceGetTemperature", device, kSensorGpu, &value))
      now.temperature_c = static_cast<int>(value);
    if (call(library_, "nvmlDeviceGetClockInfo", device, kClockSm, &value)) now.clock_mhz = static_cast<int>(value);
  }
  return gpus;
}

}  // namespace mfu

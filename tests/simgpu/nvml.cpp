// The simulated libnvidia-ml.so.1: the queries that a monitoring tool makes of devices, from the same script.
#include <sys/prctl.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tools/simgpu/interface.h"

namespace {

using mfu::sim::DeviceSpec;
using mfu::sim::settings;

// nvml.h: nvmlReturn_t, nvmlClockType_t, nvmlTemperatureSensors_t.
enum Return : int {
  kOk = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7
};
constexpr unsigned kClockMemory = 2;
constexpr std::pair<int, const char*> kErrors[] = {
    {kOk, "The operation was successful"},
    {kUninitialized, "NVML was not first initialized with nvmlInit()"},
    {kInvalidArgument, "A supplied argument is invalid"},
    {kNotSupported, "The requested operation is not available on target device"},
    {kNotFound, "A query to find an object was unsuccessful"},
    {kInsufficientSize, "An input argument is not large enough"},
};

using Handle = const DeviceSpec*;

bool initialised = false;

/// Loading a library opens its file for a moment. A profiler's thread that does so beside the running program can take
/// the descriptor that the program expects next.
[[gnu::constructor]] void look_who_loads() {
  std::array<char, 16> name{};
  if (::prctl(PR_GET_NAME, name.data()) == 0 && std::strcmp(name.data(), "mfu-drain") == 0)
    std::fprintf(stderr, "[simgpu] libnvidia-ml was loaded beside the program, by %s\n", name.data());
}

bool valid(Handle device) {
  const auto& devices = settings().devices;
  return !devices.empty() && device >= devices.data() && device < devices.data() + devices.size();
}

unsigned index_of(Handle device) { return static_cast<unsigned>(device - settings().devices.data()); }

int copy_text(char* out, unsigned length, const char* text) {
  if (out == nullptr) return kInvalidArgument;
  if (std::strlen(text) + 1 > length) return kInsufficientSize;
  std::memcpy(out, text, std::strlen(text) + 1);
  return kOk;
}

void uuid_text(unsigned index, char (&out)[48]) {
  std::snprintf(out, sizeof out, "GPU-513a6d0f-7369-6d75-8c61-7465640000%02x", index);
}

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

}  // namespace

#define CHECK(device)                      \
  if (!initialised) return kUninitialized; \
  if (!valid(device)) return kInvalidArgument
// A query of one device that has one answer.
#define SIM_NVML_GET(name, type, ...)             \
  SIM_EXPORT int name(Handle device, type* out) { \
    CHECK(device);                                \
    *out = __VA_ARGS__;                           \
    return kOk;                                   \
  }

SIM_EXPORT int nvmlInit_v2() {
  initialised = true;
  return kOk;
}
SIM_EXPORT int nvmlInit() { return nvmlInit_v2(); }
SIM_EXPORT int nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
SIM_EXPORT int nvmlShutdown() {
  if (!initialised) return kUninitialized;
  initialised = false;
  return kOk;
}
SIM_EXPORT const char* nvmlErrorString(int result) {
  for (const auto& [code, text] : kErrors) {
    if (code == result) return text;
  }
  return "An internal driver error occurred";
}
SIM_EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return copy_text(version, length, "580.0.simulated");
}
SIM_EXPORT int nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return copy_text(version, length, "13.580.0.simulated");
}
SIM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = static_cast<int>(settings().driver_version);
  return kOk;
}
SIM_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (!initialised) return kUninitialized;
  *count = static_cast<unsigned>(settings().devices.size());
  return kOk;
}
SIM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* device) {
  if (!initialised) return kUninitialized;
  if (index >= settings().devices.size()) return kInvalidArgument;
  *device = &settings().devices[index];
  return kOk;
}
SIM_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, Handle* device) {
  if (!initialised) return kUninitialized;
  for (unsigned i = 0; i < settings().devices.size(); ++i) {
    char text[48];
    uuid_text(i, text);
    if (std::strcmp(uuid, text) == 0) return nvmlDeviceGetHandleByIndex_v2(i, device);
  }
  return kNotFound;
}
SIM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Handle* device) {
  if (!initialised) return kUninitialized;
  for (unsigned i = 0; i < settings().devices.size(); ++i) {
    char text[32];
    std::snprintf(text, sizeof text, "0000:%02X:00.0", 0x18 + i);
    // NVML takes the domain with four or with eight digits.
    if (std::strlen(bus_id) >= 12 && std::strcmp(bus_id + std::strlen(bus_id) - 12, text) == 0) {
      return nvmlDeviceGetHandleByIndex_v2(i, device);
    }
  }
  return kNotFound;
}
SIM_NVML_GET(nvmlDeviceGetIndex, unsigned, index_of(device))
SIM_NVML_GET(nvmlDeviceGetMemoryInfo, Memory, {device->memory_bytes, device->memory_bytes, 0})
SIM_NVML_GET(nvmlDeviceGetMemoryBusWidth, unsigned, device->bus_bits)
SIM_NVML_GET(nvmlDeviceGetUtilizationRates, Utilization, {100, 50})
SIM_NVML_GET(nvmlDeviceGetPowerUsage, unsigned, 650'000)  // [mW]
SIM_NVML_GET(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 0)
SIM_EXPORT int nvmlDeviceGetName(Handle device, char* name, unsigned length) {
  CHECK(device);
  return copy_text(name, length, device->name.c_str());
}
SIM_EXPORT int nvmlDeviceGetUUID(Handle device, char* uuid, unsigned length) {
  CHECK(device);
  char text[48];
  uuid_text(index_of(device), text);
  return copy_text(uuid, length, text);
}
SIM_EXPORT int nvmlDeviceGetPciInfo_v3(Handle device, PciInfo* info) {
  CHECK(device);
  std::memset(info, 0, sizeof *info);
  info->bus = 0x18 + index_of(device);
  std::snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  return kOk;
}
SIM_EXPORT int nvmlDeviceGetMaxClockInfo(Handle device, unsigned type, unsigned* mhz) {
  CHECK(device);
  *mhz = (type == kClockMemory ? device->memory_clock_khz : device->clock_khz) / 1000;
  return kOk;
}
SIM_EXPORT int nvmlDeviceGetClockInfo(Handle device, unsigned type, unsigned* mhz) {
  return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}
SIM_EXPORT int nvmlDeviceGetCudaComputeCapability(Handle device, int* major, int* minor) {
  CHECK(device);
  *major = static_cast<int>(device->cc_major);
  *minor = static_cast<int>(device->cc_minor);
  return kOk;
}
SIM_EXPORT int nvmlDeviceGetTemperature(Handle device, unsigned /*sensor*/, unsigned* celsius) {
  CHECK(device);
  *celsius = 55;
  return kOk;
}
SIM_EXPORT int nvmlDeviceGetMigMode(Handle device, unsigned* current, unsigned* pending) {
  CHECK(device);
  *current = *pending = 0;
  return kOk;
}

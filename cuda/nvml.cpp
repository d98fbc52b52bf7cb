#include "cuda/nvml.h"

#include <dlfcn.h>

#include <atomic>

namespace mfu {
namespace {

std::atomic<void*> g_nvml{nullptr};

/// nvml.h: nvmlViolationTime_t. Microseconds, and nanoseconds.
struct ViolationTime {
  unsigned long long reference_us, violation_ns;
};

// NVML's own types, by its published ABI (nvml.h): every return value is an enum whose 0 is success.
struct Nvml {
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*parent_of)(void*, void**) = nullptr;
  int (*clock_info)(void*, int, unsigned*) = nullptr;
  int (*energy)(void*, unsigned long long*) = nullptr;
  int (*violation)(void*, int, ViolationTime*) = nullptr;
};

const Nvml& nvml() {
  static const Nvml functions = [] {
    Nvml n;
    void* library = g_nvml.load(std::memory_order_acquire);
    const auto find = [library](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    int (*init)() = nullptr;
    if (library != nullptr) find("nvmlInit_v2", init);
    if (init == nullptr || init() != 0) return n;
    find("nvmlDeviceGetHandleByUUID", n.by_uuid);
    find("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", n.parent_of);
    find("nvmlDeviceGetClockInfo", n.clock_info);
    find("nvmlDeviceGetTotalEnergyConsumption", n.energy);
    find("nvmlDeviceGetViolationStatus", n.violation);
    return n;
  }();
  return functions;
}

}  // namespace

void load_nvml() noexcept {
  g_nvml.store(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), std::memory_order_release);
}

std::optional<NvmlDevice> NvmlDevice::find(const std::string& uuid) {
  NvmlDevice found;
  if (nvml().by_uuid == nullptr || uuid.empty()) return std::nullopt;
  if (nvml().by_uuid(uuid.c_str(), &found.device_) != 0) {
    // The driver gives a part of a GPU its own UUID (12.8 and newer), with nothing in it that says so.
    if (nvml().parent_of == nullptr || !uuid.starts_with("GPU-") ||
        nvml().by_uuid(("MIG-" + uuid.substr(4)).c_str(), &found.device_) != 0)
      return std::nullopt;
  }
  void* parent = nullptr;
  found.is_part_ = nvml().parent_of != nullptr && nvml().parent_of(found.device_, &parent) == 0;
  if (found.is_part_) found.device_ = parent;
  return found;
}

std::optional<std::uint32_t> NvmlDevice::sm_clock_khz() const {
  constexpr int kSmClock = 1;  // NVML_CLOCK_SM
  unsigned mhz = 0;
  if (nvml().clock_info == nullptr || nvml().clock_info(device_, kSmClock, &mhz) != 0 || mhz == 0) return std::nullopt;
  return mhz * 1000;
}

std::optional<double> NvmlDevice::joules(int& refused) const {
  unsigned long long millijoules = 0;
  refused = nvml().energy != nullptr ? nvml().energy(device_, &millijoules) : kNoFunction;
  return refused == 0 ? std::optional(static_cast<double>(millijoules) * 1e-3) : std::nullopt;
}

std::array<std::optional<double>, 3> NvmlDevice::throttled_s() const {
  constexpr std::array kPolicies{0, 1, 3};  // NVML_PERF_POLICY_POWER, _THERMAL, _BOARD_LIMIT
  std::array<std::optional<double>, 3> times;
  for (std::size_t i = 0; i < kPolicies.size() && nvml().violation != nullptr; ++i)
    if (ViolationTime time{}; nvml().violation(device_, kPolicies[i], &time) == 0)
      times[i] = static_cast<double>(time.violation_ns) * 1e-9;
  return times;
}

}  // namespace mfu

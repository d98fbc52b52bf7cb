#include "cuda/device.h"

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <utility>

namespace mfu {
namespace {

template <typename F>
F find(void* library, const char* name) noexcept {
  return library != nullptr ? reinterpret_cast<F>(::dlsym(library, name)) : nullptr;
}

void* mapped_driver() noexcept { return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

std::string uuid_text(const CUuuid& uuid) {
  std::array<char, 48> text{};
  const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  std::snprintf(text.data(), text.size(), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text.data();
}

}  // namespace

std::optional<DeviceIdentity> identify_device(std::uint32_t ordinal) {
  void* driver = mapped_driver();
  const auto get = find<CUresult (*)(CUdevice*, int)>(driver, "cuDeviceGet");
  const auto get_name = find<CUresult (*)(char*, int, CUdevice)>(driver, "cuDeviceGetName");
  const auto get_attribute = find<CUresult (*)(int*, CUdevice_attribute, CUdevice)>(driver, "cuDeviceGetAttribute");
  auto get_uuid = find<CUresult (*)(CUuuid*, CUdevice)>(driver, "cuDeviceGetUuid_v2");
  if (get_uuid == nullptr) get_uuid = find<CUresult (*)(CUuuid*, CUdevice)>(driver, "cuDeviceGetUuid");
  const auto total_memory = find<CUresult (*)(std::size_t*, CUdevice)>(driver, "cuDeviceTotalMem_v2");
  CUdevice device = 0;
  if (get == nullptr || get(&device, static_cast<int>(ordinal)) != CUDA_SUCCESS) return std::nullopt;
  DeviceIdentity identity;
  std::array<char, 256> name{};
  if (get_name != nullptr && get_name(name.data(), static_cast<int>(name.size() - 1), device) == CUDA_SUCCESS)
    identity.facts.name = name.data();
  const auto attribute = [&](CUdevice_attribute which) -> std::uint32_t {
    int value = 0;
    return get_attribute != nullptr && get_attribute(&value, which, device) == CUDA_SUCCESS && value > 0
               ? static_cast<std::uint32_t>(value)
               : 0;
  };
  identity.facts.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  identity.facts.clock_khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  identity.facts.cc_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  identity.facts.cc_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  identity.facts.memory_clock_khz = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  identity.facts.memory_bus_bits = attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  if (std::size_t bytes = 0; total_memory != nullptr && total_memory(&bytes, device) == CUDA_SUCCESS)
    identity.facts.memory_bytes = bytes;
  if (CUuuid uuid{}; get_uuid != nullptr && get_uuid(&uuid, device) == CUDA_SUCCESS) identity.uuid = uuid_text(uuid);
  return identity;
}

int nested_init_result() {
  const auto init = find<CUresult (*)(unsigned)>(mapped_driver(), "cuInit");
  return init != nullptr ? static_cast<int>(init(0)) : 0;
}

std::string init_error_text(int result) {
  static constexpr std::pair<int, const char*> kMeanings[] = {
      {kNoDevice, "no CUDA device; check CUDA_VISIBLE_DEVICES, and in a container whether the GPU is passed through"},
      {802, "the system is not ready; is nvidia-fabricmanager running?"},
      {803, "the driver's library and its kernel module are of different versions; reboot, or update the container"},
      {804, "the forward-compatibility package does not support this GPU"},
      {999, "an unknown error; see dmesg and nvidia-smi"}};
  std::string text = "cuInit fails with " + std::to_string(result);
  for (const auto& [number, meaning] : kMeanings)
    if (number == result) text += std::string(": ") + meaning;
  return text;
}

bool cuda_initialised() {
  // cuCtxGetCurrent says CUDA_ERROR_NOT_INITIALIZED before cuInit and has no effect otherwise.
  const auto current = find<CUresult (*)(CUcontext*)>(mapped_driver(), "cuCtxGetCurrent");
  CUcontext context = nullptr;
  return current != nullptr && current(&context) == CUDA_SUCCESS;
}

bool driver_mapped() { return mapped_driver() != nullptr; }

int mapped_driver_version() {
  const auto get = find<CUresult (*)(int*)>(mapped_driver(), "cuDriverGetVersion");
  int version = 0;
  return get != nullptr && get(&version) == CUDA_SUCCESS ? version : 0;
}

int driver_version() {
  const auto get = find<CUresult (*)(int*)>(::dlopen("libcuda.so.1", RTLD_NOW), "cuDriverGetVersion");
  int version = 0;
  return get != nullptr && get(&version) == CUDA_SUCCESS ? version : 0;
}

}  // namespace mfu

// An injection library that does as little as a client of CUPTI can: kernel records come, and are thrown away.
#include <cupti.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

namespace {

constexpr std::size_t kBuffer = 1 << 20;

void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBuffer));
  *size = *buffer != nullptr ? kBuffer : 0;
  *records = 0;
}
void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) { std::free(buffer); }

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  void* cupti = ::dlopen("libcupti.so.13", RTLD_NOW);
  if (cupti == nullptr) return 1;
  const auto register_callbacks =
      reinterpret_cast<decltype(&cuptiActivityRegisterCallbacks)>(::dlsym(cupti, "cuptiActivityRegisterCallbacks"));
  const auto enable = reinterpret_cast<decltype(&cuptiActivityEnable)>(::dlsym(cupti, "cuptiActivityEnable"));
  register_callbacks(requested, completed);
  enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  return 1;
}

// The simulated libcudnn.so.9: a handle and a version, which is all that XLA needs to compile what has no convolution.
#include <cstddef>

#include "tools/simgpu/interface.h"

namespace {
constexpr int kMajor = SIMGPU_CUDNN_VERSION / 10000, kMinor = SIMGPU_CUDNN_VERSION / 100 % 100;
constexpr int kPatch = SIMGPU_CUDNN_VERSION % 100;
int g_handle = 0;  // its address is the handle
}  // namespace

SIM_EXPORT int cudnnCreate(void** handle) {
  *handle = &g_handle;
  return 0;
}
SIM_EXPORT int cudnnDestroy(void*) { return 0; }
SIM_EXPORT int cudnnSetStream(void*, void*) { return 0; }
SIM_EXPORT std::size_t cudnnGetVersion() { return SIMGPU_CUDNN_VERSION; }
/// \param which 0 to 2: major, minor and patch version
SIM_EXPORT int cudnnGetProperty(int which, int* value) {
  *value = which == 0 ? kMajor : which == 1 ? kMinor : kPatch;
  return 0;
}
SIM_EXPORT const char* cudnnGetErrorString(int) { return "not simulated"; }

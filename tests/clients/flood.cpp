// `flood RATE SECONDS [PER_RANGE]`: launches so many kernels a second (0: as fast as it can), PER_RANGE of them inside
// a range `decode` each, and prints, just before it exits, what it launched, its peak of resident memory [KiB] and its
// CPU time [s]. Links no CUDA library.
#include <cuda.h>
#include <dlfcn.h>
#include <malloc.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr const char* kKernel =
    "// simgpu: flood ns=200\n.version 6.4\n.target sm_70\n.visible .entry flood()\n{ ret; }\n";

std::int64_t now_ns() {
  ::timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

int main(int argc, char** argv) {
  const double rate = argc > 1 ? std::strtod(argv[1], nullptr) : 0,
               length_s = argc > 2 ? std::strtod(argv[2], nullptr) : 5;
  const std::int64_t per_range = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 0;
  // Blocks that a library frees change from when on malloc returns memory, and so what the simulated GPU's own costs.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  void* cuda = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == nullptr) return 70;
  const auto launch = find<decltype(&cuLaunchKernel)>(cuda, "cuLaunchKernel");
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  if (find<decltype(&cuInit)>(cuda, "cuInit")(0) != CUDA_SUCCESS ||
      find<decltype(&cuDeviceGet)>(cuda, "cuDeviceGet")(&device, 0) != CUDA_SUCCESS ||
      find<decltype(&cuDevicePrimaryCtxRetain)>(cuda, "cuDevicePrimaryCtxRetain")(&context, device) != CUDA_SUCCESS ||
      find<decltype(&cuCtxSetCurrent)>(cuda, "cuCtxSetCurrent")(context) != CUDA_SUCCESS ||
      find<decltype(&cuModuleLoadData)>(cuda, "cuModuleLoadData")(&module, kKernel) != CUDA_SUCCESS ||
      find<decltype(&cuModuleGetFunction)>(cuda, "cuModuleGetFunction")(&kernel, module, "flood") != CUDA_SUCCESS)
    return 70;
  const std::int64_t begin = now_ns(), end = begin + static_cast<std::int64_t>(length_s * 1e9);
  std::int64_t launched = 0;
  constexpr std::int64_t kAtOnce = 200;
  for (std::int64_t now = begin; now < end; now = now_ns()) {
    if (rate > 0 && static_cast<double>(launched) > rate * 1e-9 * static_cast<double>(now - begin)) {
      const ::timespec pause{0, 100'000};
      ::nanosleep(&pause, nullptr);
      continue;
    }
    for (std::int64_t i = 0; i < kAtOnce; ++i, ++launched) {
      if (per_range != 0 && launched % per_range == 0) nvtxRangePushA("decode batch=1 context=100");
      if (launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS) return 70;
      if (per_range != 0 && launched % per_range == per_range - 1) nvtxRangePop();
    }
  }
  find<decltype(&cuCtxSynchronize)>(cuda, "cuCtxSynchronize")();
  ::rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const ::timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  std::printf("%lld %ld %.3f\n", static_cast<long long>(launched), usage.ru_maxrss,
              seconds(usage.ru_utime) + seconds(usage.ru_stime));
  return 0;
}

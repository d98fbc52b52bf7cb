// A program that is linked against CUPTI and traces itself now and then, as PyTorch does with torch.profiler: it
// registers buffers, switches kernels on, launches, switches them off and asks for everything.
//
//   profiler_client SESSIONS LAUNCHES BETWEEN_MS
//
// Before, between and after its sessions it launches as many kernels again, in pieces; where BETWEEN_MS is 0, before
// the first alone. It prints what each session got.
#include <cuda.h>
#include <cupti.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

namespace {

void check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %d\n", what, result);
  std::exit(70);
}

std::mutex mutex;
std::set<const void*> own;
std::atomic<unsigned> rows{0}, unknown{0};

void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *size = std::size_t{4} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
  *max_records = 0;
  const std::lock_guard lock(mutex);
  own.insert(*buffer);
}

/// Like Kineto it leaves alone what it did not hand out.
void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  {
    const std::lock_guard lock(mutex);
    if (own.erase(buffer) == 0) {
      ++unknown;
      return;
    }
  }
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    rows += record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  std::free(buffer);
}

void launch(CUfunction kernel, int count) {
  for (int i = 0; i < count; ++i) {
    check(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
    if (i % 100 == 99) check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
}

void session(CUfunction kernel, int launches, int number) {
  rows = 0;
  check(cuptiActivityRegisterCallbacks(requested, completed), "cuptiActivityRegisterCallbacks");
  check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
  launch(kernel, launches);
  check(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable");
  check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  std::uint8_t off = 0;
  std::size_t size = sizeof off;
  check(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &size, &off), "attribute");
  std::printf("session %d: %u of %d kernels, %u unknown buffers\n", number, rows.load(), launches, unknown.load());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: profiler_client SESSIONS LAUNCHES BETWEEN_MS\n");
    return 64;
  }
  const int sessions = std::atoi(argv[1]), launches = std::atoi(argv[2]), between_ms = std::atoi(argv[3]);
  check(cuInit(0), "cuInit");
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  check(cuModuleLoadData(&module,
                         ".version 7.0\n.target sm_75\n.address_size 64\n// simgpu: gemm_step ns=20000\n"
                         ".visible .entry gemm_step()\n{\n  ret;\n}\n"),
        "cuModuleLoadData");
  check(cuModuleGetFunction(&kernel, module, "gemm_step"), "cuModuleGetFunction");
  for (int i = 0; i <= sessions; ++i) {
    for (int piece = 0; piece < 10 && (between_ms != 0 || i == 0); ++piece) {
      launch(kernel, launches / 10);
      ::usleep(static_cast<unsigned>(between_ms) * 100);
    }
    if (i < sessions) session(kernel, launches, i);
  }
  std::printf("done\n");
}

// Hosts that do what ours should not have to expect, one per word:
//   descriptor2 DATABASE   starts CUDA, closes its descriptors and opens a file of its own, which becomes number 2
//   smallstack BYTES       the first NVTX call comes from a thread with a stack of that size
//   chdir FOLDER           works, goes to another folder, works
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

void start_cuda() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) std::exit(90);
  const auto init = reinterpret_cast<decltype(&::cuInit)>(::dlsym(driver, "cuInit"));
  const auto retain =
      reinterpret_cast<decltype(&::cuDevicePrimaryCtxRetain)>(::dlsym(driver, "cuDevicePrimaryCtxRetain"));
  const auto current = reinterpret_cast<decltype(&::cuCtxSetCurrent)>(::dlsym(driver, "cuCtxSetCurrent"));
  CUcontext context = nullptr;
  if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS || current(context) != CUDA_SUCCESS) std::exit(91);
}

void steps(int count) {
  for (int i = 0; i < count; ++i) {
    nvtxRangePushA("step batch=1 seq_len=8");
    ::usleep(20'000);
    nvtxRangePop();
  }
}

int descriptor2(const char* path) {
  start_cuda();
  steps(3);
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
  for (int fd = 0; fd < 2; ++fd)
    if (::open("/dev/null", O_RDWR) != fd) return 1;
  if (::open(path, O_RDWR | O_CREAT | O_TRUNC, 0644) != 2) return 2;
  if (::write(2, "database", 8) != 8) return 3;
  steps(30);
  return 0;
}

void* first_range(void*) {
  nvtxRangePushA("step");
  nvtxRangePop();
  return nullptr;
}

int small_stack(std::size_t bytes) {
  ::pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  if (::pthread_attr_setstacksize(&attributes, bytes) != 0) return 1;
  ::pthread_t thread;
  if (::pthread_create(&thread, &attributes, first_range, nullptr) != 0) return 2;
  ::pthread_join(thread, nullptr);
  std::puts("lives");
  return 0;
}

int change_folder(const char* folder) {
  start_cuda();
  steps(10);
  if (::mkdir(folder, 0755) != 0 || ::chdir(folder) != 0) return 1;
  steps(30);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string word = count > 1 ? words[1] : "";
  if (word == "descriptor2" && count > 2) return descriptor2(words[2]);
  if (word == "smallstack" && count > 2) return small_stack(static_cast<std::size_t>(std::atol(words[2])));
  if (word == "chdir" && count > 2) return change_folder(words[2]);
  return 99;
}

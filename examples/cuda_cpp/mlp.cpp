// A CUDA program in C++ that names its work with NVTX: four MLP blocks of 1024 x 4096 in fp16, forward only, again and
// again.
//
//   g++ -O2 mlp.cpp -o mlp -I/usr/local/cuda/include -L/usr/local/cuda/lib64/stubs -lcuda -ldl
//   mfu run -c config.json -i 1 ./mlp --seconds 5
//
// config.json describes the model in mfuinject's own schema and says that ranges named `forward ...` are forward
// passes; the tokens of a pass stand in the range's name. Options: --seconds S (default 5), --tokens N (4096),
// --kernels FILE (kernels.ptx beside this program). The driver API is all it uses: no nvcc, no CUDA runtime.
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

constexpr int kWidth = 1024, kInner = 4096, kBlocks = 4;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  std::fprintf(stderr, "mlp: %s: %s\n", what, text != nullptr ? text : "unknown error");
  std::exit(1);
}

std::string beside_this_program(const char* argv0, const char* file) {
  const std::string path = argv0;
  const std::size_t slash = path.rfind('/');
  return (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + file;
}

CUdeviceptr zeros(std::size_t halves) {
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, halves * 2), "cuMemAlloc");
  check(cuMemsetD8(memory, 0, halves * 2), "cuMemsetD8");
  return memory;
}

struct Kernels {
  CUfunction gemm = nullptr, relu = nullptr;

  /// out[rows, n] = in[rows, k] * weights[k, n]
  void matmul(CUdeviceptr in, CUdeviceptr weights, CUdeviceptr out, int rows, int n, int k) const {
    void* arguments[] = {&in, &weights, &out, &n, &k};
    check(cuLaunchKernel(gemm, static_cast<unsigned>(n) / 64, static_cast<unsigned>(rows) / 16, 1, 128, 1, 1, 0,
                         nullptr, arguments, nullptr),
          "cuLaunchKernel");
  }
  void activate(CUdeviceptr x, int count) const {
    void* arguments[] = {&x, &count};
    check(cuLaunchKernel(relu, static_cast<unsigned>(count) / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr),
          "cuLaunchKernel");
  }
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 5;
  int tokens = 4096;
  std::string file = beside_this_program(argv[0], "kernels.ptx");
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (option == "--seconds" && value != nullptr) {
      seconds = std::atof(value);
    } else if (option == "--tokens" && value != nullptr && std::atoi(value) > 0 && std::atoi(value) % 16 == 0) {
      tokens = std::atoi(value);
    } else if (option == "--kernels" && value != nullptr) {
      file = value;
    } else {
      std::fprintf(stderr, "usage: mlp [--seconds S] [--tokens N, a multiple of 16] [--kernels FILE]\n");
      return 2;
    }
  }
  std::ifstream stream(file);
  const std::string image((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (image.empty()) {
    std::fprintf(stderr, "mlp: %s: cannot be read\n", file.c_str());
    return 1;
  }

  check(cuInit(0), "cuInit");
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuModuleLoadData(&module, image.c_str()), "cuModuleLoadData");
  Kernels kernels;
  check(cuModuleGetFunction(&kernels.gemm, module, "gemm_wmma_f16"), "cuModuleGetFunction");
  check(cuModuleGetFunction(&kernels.relu, module, "relu_f16"), "cuModuleGetFunction");

  const auto size = static_cast<std::size_t>(tokens);
  const CUdeviceptr x = zeros(size * kWidth), inner = zeros(size * kInner);
  const CUdeviceptr up = zeros(std::size_t{kWidth} * kInner), down = zeros(std::size_t{kInner} * kWidth);

  const std::string name = "forward tokens=" + std::to_string(tokens);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  long passes = 0;
  while (std::chrono::steady_clock::now() < end) {
    nvtxRangePushA(name.c_str());
    for (int block = 0; block < kBlocks; ++block) {
      kernels.matmul(x, up, inner, tokens, kInner, kWidth);
      kernels.activate(inner, tokens * kInner);
      kernels.matmul(inner, down, x, tokens, kWidth, kInner);
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    nvtxRangePop();
    ++passes;
  }
  std::printf("%ld passes of %d tokens\n", passes, tokens);
  return 0;
}

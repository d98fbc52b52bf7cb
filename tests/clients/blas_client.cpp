// A program that multiplies matrices with the simulated cuBLAS and cuBLASLt, in the way that its argument says.
//
//   blas_client calls N       N rounds of every kind of call, on one stream
//   blas_client threads N     the same on a second thread, as PyTorch's backward pass
//   blas_client graph N       calls that a stream capture records, and N launches of the graph; then of a copy of it
//   blas_client fork N        before CUDA is initialised the program forks, and both multiply
//   blas_client deep_gemm N MODULE   no call of a library: kernels of DeepGEMM, also in a graph; its module is loaded
//   blas_client deep_gemm N          the same without a module of its own, 50 ms after each other
//   blas_client fork_after N  a child forked afterwards calls the library, which cannot work there
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

extern "C" {
int cublasCreate_v2(void** handle);
int cublasSetStream_v2(void* handle, CUstream stream);
int cublasSetMathMode(void* handle, int mode);
int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, const void*, const void*, int a, int, const void*, int b,
                 int, const void*, void*, int c, int, int compute, int);
int cublasGemmStridedBatchedEx(void*, int ta, int tb, int m, int n, int k, const void*, const void*, int a, int,
                               long long, const void*, int b, int, long long, const void*, void*, int c, int, long long,
                               int batch, int compute, int);
int cublasSgemm_v2(void*, int ta, int tb, int m, int n, int k, const float*, const float*, int, const float*, int,
                   const float*, float*, int);
int cublasLtCreate(void** handle);
int cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t ld);
int cublasLtMatmulDescCreate(void** desc, int compute, int scale);
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* from, std::size_t bytes);
int cublasLtMatmul(void*, const void* desc, const void*, const void*, const void* a, const void*, const void* b,
                   const void*, const void*, const void* c, void*, const void* d, const void*, void*, std::size_t,
                   CUstream stream);
}

namespace {

constexpr int kBf16 = 14, kFp32 = 0, kCompute = 68;

void check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %d\n", what, result);
  std::exit(70);
}

struct Library {
  void *blas = nullptr, *lt = nullptr, *desc = nullptr, *a = nullptr, *b = nullptr, *d = nullptr, *wrong = nullptr;
  CUstream stream = nullptr;

  void open(CUcontext context) {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cublasCreate_v2(&blas), "cublasCreate");
    check(cublasSetStream_v2(blas, stream), "cublasSetStream");
    check(cublasLtCreate(&lt), "cublasLtCreate");
    const int transpose = 1;
    check(cublasLtMatmulDescCreate(&desc, kCompute, kFp32), "desc");
    check(cublasLtMatmulDescSetAttribute(desc, 3, &transpose, sizeof transpose), "transpose");
    check(cublasLtMatrixLayoutCreate(&a, kBf16, 512, 768, 512), "layout");
    check(cublasLtMatrixLayoutCreate(&b, kBf16, 512, 1024, 512), "layout");
    check(cublasLtMatrixLayoutCreate(&d, kBf16, 768, 1024, 768), "layout");
    check(cublasLtMatrixLayoutCreate(&wrong, kBf16, 500, 1024, 500), "layout");
  }
  /// One product of each kind: one whose sum is split and needs two kernels, one that fails and is done otherwise, one
  /// of single precision as TF32.
  void multiply() const {
    check(cublasGemmEx(blas, 1, 0, 640, 384, 1024, nullptr, nullptr, kBf16, 1, nullptr, kBf16, 1, nullptr, nullptr,
                       kBf16, 1, kCompute, -1),
          "GemmEx");
    check(cublasGemmEx(blas, 0, 0, 64, 64, 8192, nullptr, nullptr, kBf16, 1, nullptr, kBf16, 1, nullptr, nullptr, kBf16,
                       1, kCompute, -1),
          "GemmEx, split");
    check(cublasGemmStridedBatchedEx(blas, 0, 1, 128, 128, 64, nullptr, nullptr, kBf16, 1, 1, nullptr, kBf16, 1, 1,
                                     nullptr, nullptr, kBf16, 1, 1, 12, kCompute, -1),
          "GemmStridedBatchedEx");
    check(cublasSetMathMode(blas, 3), "cublasSetMathMode");
    check(cublasSgemm_v2(blas, 0, 0, 256, 256, 256, nullptr, nullptr, 1, nullptr, 1, nullptr, nullptr, 1), "Sgemm");
    if (cublasLtMatmul(lt, desc, nullptr, nullptr, a, nullptr, wrong, nullptr, nullptr, d, nullptr, d, nullptr, nullptr,
                       0, stream) == 0)
      check(1, "a product whose sizes do not fit");
    check(cublasLtMatmul(lt, desc, nullptr, nullptr, a, nullptr, b, nullptr, nullptr, d, nullptr, d, nullptr, nullptr,
                         0, stream),
          "LtMatmul");
  }
};

CUcontext start() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

void calls(CUcontext context, int rounds) {
  Library library;
  library.open(context);
  for (int i = 0; i < rounds; ++i) library.multiply();
  check(cuStreamSynchronize(library.stream), "cuStreamSynchronize");
}

void graph(CUcontext context, int launches) {
  Library library;
  library.open(context);
  CUgraph captured = nullptr, copy = nullptr;
  CUgraphExec exec = nullptr;
  check(cuStreamBeginCapture(library.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  library.multiply();
  check(cuStreamEndCapture(library.stream, &captured), "cuStreamEndCapture");
  check(cuGraphInstantiateWithFlags(&exec, captured, 0), "cuGraphInstantiate");
  for (int i = 0; i < launches; ++i) check(cuGraphLaunch(exec, library.stream), "cuGraphLaunch");
  check(cuStreamSynchronize(library.stream), "cuStreamSynchronize");
  check(cuGraphClone(&copy, captured), "cuGraphClone");
  check(cuGraphDestroy(captured), "cuGraphDestroy");
  check(cuGraphInstantiateWithFlags(&exec, copy, 0), "cuGraphInstantiate");
  check(cuGraphLaunch(exec, library.stream), "cuGraphLaunch");
  check(cuStreamSynchronize(library.stream), "cuStreamSynchronize");
}

/// As csrc/jit/handle.hpp of DeepGEMM launches them, N times each; the second is a product of groups, whose rows nobody
/// knows. Then the first again, captured, the graph launched N times.
void deep_gemm(CUcontext context, int rounds, bool slowly) {
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  const std::string sized =
      "_ZN9deep_gemm23sm90_fp8_gemm_1d2d_implILN4cute4UMMA5MajorE0ELj0ELj4096ELj7168ELj1ELj128ELj128ELj128ELNS_"
      "8GemmTypeE0EN7cutlass10bfloat16_tEEEvPfPijjj";
  std::string grouped = sized;
  grouped.replace(grouped.find("GemmTypeE0"), 10, "GemmTypeE2");
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n";
  for (const std::string& name : {sized, grouped})
    text += "// simgpu: " + name + " ns=20000\n.visible .entry " + name + "()\n{\n  ret;\n}\n";
  CUmodule module = nullptr;
  CUfunction kernels[2] = {};
  CUstream stream = nullptr;
  check(cuModuleLoadData(&module, text.c_str()), "cuModuleLoadData");
  check(cuModuleGetFunction(&kernels[0], module, sized.c_str()), "cuModuleGetFunction");
  check(cuModuleGetFunction(&kernels[1], module, grouped.c_str()), "cuModuleGetFunction");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  CUlaunchConfig config{};
  config.gridDimX = 132;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 384;
  config.hStream = stream;
  const auto launch = [&](CUfunction kernel, std::uint32_t m) {
    void *scales = nullptr, *layout = nullptr;
    std::uint32_t n = 4096, k = 7168;
    std::uint64_t descriptor[16] = {};
    void* parameters[] = {&scales, &layout, &m, &n, &k, descriptor, descriptor, descriptor, descriptor};
    check(cuLaunchKernelEx(&config, kernel, parameters, nullptr), "cuLaunchKernelEx");
  };
  for (int i = 0; i < rounds; ++i) {
    launch(kernels[0], static_cast<std::uint32_t>(i + 1));
    launch(kernels[1], static_cast<std::uint32_t>(i + 1));
    if (slowly) usleep(50'000);
  }
  CUgraph captured = nullptr;
  CUgraphExec exec = nullptr;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  launch(kernels[0], 1000);
  check(cuStreamEndCapture(stream, &captured), "cuStreamEndCapture");
  check(cuGraphInstantiateWithFlags(&exec, captured, 0), "cuGraphInstantiate");
  for (int i = 0; i < rounds; ++i) check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "calls";
  const int n = argc > 2 ? std::atoi(argv[2]) : 10;
  const pid_t child = what == "fork" ? fork() : -1;
  if (argc > 3 && dlopen(argv[3], RTLD_NOW) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 70;
  }
  const CUcontext context = start();
  if (what == "graph") {
    graph(context, n);
  } else if (what == "deep_gemm") {
    deep_gemm(context, n, argc <= 3);
  } else if (what == "threads") {
    std::thread([&] { calls(context, n); }).join();
  } else {
    calls(context, n);
  }
  if (what == "fork_after") {
    const pid_t after = fork();
    if (after == 0)
      _exit(cublasGemmEx(nullptr, 0, 0, 8, 8, 8, nullptr, nullptr, kBf16, 1, nullptr, kBf16, 1, nullptr, nullptr, kBf16,
                         1, kCompute, -1));
    int status = 0;
    waitpid(after, &status, 0);
    std::printf("child %d\n", WEXITSTATUS(status));
  }
  if (child > 0) {
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }
  return 0;
}

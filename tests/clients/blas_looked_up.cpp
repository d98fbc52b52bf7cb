// A program that imports nothing of cuBLAS and looks its functions up, as XLA (xla/tsl/cuda/cublas_stub.cc,
// cublasLt_stub.cc: a handle of dlopen, a table that is filled at the first call of each function) and Triton
// (third_party/nvidia/include/cublas_instance.h) do. Built as a program and as a plugin.
//
//   blas_looked_up N           looks them up itself
//   blas_looked_up N before    looks them up before it starts CUDA, when nobody looks at it yet
//   blas_looked_up N PLUGIN    the plugin does
//
// Prints what dlerror() says after the last look-up: nothing. Built at a fixed address too, with the address of dlsym
// taken: then what every other module gets for that address is a slot of the program.
#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

void check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %d\n", what, result);
  std::exit(70);
}

void* open(const char* file) {
  void* handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) check(1, dlerror());
  return handle;
}

std::map<std::string, void*> g_known;  ///< of functions that were looked up before

void* look_up(void* library, const char* name) {
  if (const auto known = g_known.find(name); known != g_known.end()) return known->second;
  void* function = dlsym(library, name);
  if (const char* error = dlerror(); function == nullptr || error != nullptr) check(1, error);
  return function;
}

template <typename... Arguments>
int call(void* library, const char* name, Arguments... arguments) {
  void* function = look_up(library, name);
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

}  // namespace

/// N products of cuBLAS and N of cuBLASLt.
extern "C" [[gnu::visibility("default")]] void multiply(CUstream stream, int rounds) {
  constexpr int kBf16 = 14, kFp32 = 0, kCompute = 68, kTransposeA = 3, kTransposed = 1;
  const void* none = nullptr;
  void *out = nullptr, *cublas = open("libcublas.so.13"), *lt = open("libcublasLt.so.13");
  void *handle = nullptr, *lt_handle = nullptr, *desc = nullptr, *a = nullptr, *b = nullptr, *d = nullptr;
  check(call(cublas, "cublasCreate_v2", &handle), "cublasCreate");
  check(call(cublas, "cublasSetStream_v2", handle, stream), "cublasSetStream");
  check(call(lt, "cublasLtCreate", &lt_handle), "cublasLtCreate");
  check(call(lt, "cublasLtMatmulDescCreate", &desc, kCompute, kFp32), "desc");
  check(call(lt, "cublasLtMatmulDescSetAttribute", desc, kTransposeA, static_cast<const void*>(&kTransposed),
             sizeof kTransposed),
        "transpose");
  const auto layout = [&](void** to, unsigned long rows, unsigned long columns) {
    check(call(lt, "cublasLtMatrixLayoutCreate", to, kBf16, rows, columns, static_cast<long>(rows)), "layout");
  };
  layout(&a, 512, 768);
  layout(&b, 512, 1024);
  layout(&d, 768, 1024);
  for (int i = 0; i < rounds; ++i) {
    check(call(cublas, "cublasGemmEx", handle, 1, 0, 640, 384, 1024, none, none, kBf16, 1, none, kBf16, 1, none, out,
               kBf16, 1, kCompute, -1),
          "cublasGemmEx");
    check(call(lt, "cublasLtMatmul", lt_handle, static_cast<const void*>(desc), none, none, static_cast<const void*>(a),
               none, static_cast<const void*>(b), none, none, static_cast<const void*>(d), out,
               static_cast<const void*>(d), none, out, std::size_t{0}, stream),
          "cublasLtMatmul");
  }
  std::printf("%s\n", dlerror() == nullptr ? "no error" : "an error");
}

#ifndef MFU_PLUGIN
#ifdef MFU_FIXED_ADDRESS
void* (*volatile g_dlsym)(void*, const char*);
#endif

int main(int argc, char** argv) {
#ifdef MFU_FIXED_ADDRESS
  g_dlsym = &dlsym;
#endif
  // JAX's plugin is loaded before it starts CUDA itself.
  auto* work = &multiply;
  const std::string where = argc > 2 ? argv[2] : "";
  if (where == "before") {
    g_known["cublasGemmEx"] = look_up(open("libcublas.so.13"), "cublasGemmEx");
    g_known["cublasLtMatmul"] = look_up(open("libcublasLt.so.13"), "cublasLtMatmul");
  } else if (!where.empty())
    work = reinterpret_cast<void (*)(CUstream, int)>(dlsym(open(where.c_str()), "multiply"));
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  work(stream, argc > 1 ? std::atoi(argv[1]) : 10);
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  return 0;
}
#endif

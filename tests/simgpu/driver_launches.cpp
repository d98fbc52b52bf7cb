// The exported functions of the simulated libcuda.so.1 that load and launch in other ways than the demo.
#include <fstream>
#include <iterator>
#include <string>

#include "tools/simgpu/driver/driver_call.h"

namespace {

using namespace mfu::sim;

CUresult load_module_file(Module** out, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return image.size() < 4 ? CUDA_ERROR_INVALID_IMAGE : load_module(out, image.c_str());
}

CUresult launch_config(const CUlaunchConfig* config, CUfunction f, void** kernel_params, bool per_thread) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchOptions options;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) options.cooperative = attribute.value.cooperative != 0;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      options.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
    }
  }
  return launch(f, config->hStream, per_thread,
                {{config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes,
                 kernel_params},
                options);
}

}  // namespace

SIM_API(cuModuleLoad, (CUmodule * module, const char* fname), (module, fname),
        { return load_module_file(reinterpret_cast<Module**>(module), fname); })
SIM_API(cuModuleLoadDataEx,
        (CUmodule * module, const void* image, unsigned numOptions, CUjit_option* options, void** optionValues),
        (module, image, numOptions, options, optionValues),
        { return load_module(reinterpret_cast<Module**>(module), image); })
SIM_STREAM_API(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra),
               (config, f, kernelParams, extra), { return launch_config(config, f, kernelParams, per_thread); })
SIM_STREAM_API(
    cuLaunchCooperativeKernel,
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
     CUstream hStream, void** kernelParams),
    (f, gx, gy, gz, bx, by, bz, shared, hStream, kernelParams), {
      return launch(f, hStream, per_thread, {{gx, gy, gz}, {bx, by, bz}, shared, kernelParams}, {.cooperative = true});
    })
